//! The four patch types and field ownership over JSON documents; pure
