//! Kubernetes' own kinds as data: names, schemas, columns, checks; pure
