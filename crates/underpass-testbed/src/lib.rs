//! For tests only: a running underpass, kubectl, scratch folders
