//! What should exist, decided from what was observed: pure, deterministic, with reasons
