//! An append-only, fsync'd log of revisions: list at a revision, watch from one, compact; knows no kinds
