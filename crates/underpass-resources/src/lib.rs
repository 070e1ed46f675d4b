//! Our kinds: spec, status, defaults, validation, CRD manifests; pure
