//go:build programs

// Package kubernetes pins the programs that judge the embedded API server.
// It is never compiled; it exists so that `go mod tidy` keeps their modules.
package kubernetes

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/test/e2e"
)
