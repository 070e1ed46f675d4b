//! Kubernetes' API over a store
