//go:build programs

// Package etcd pins the store that the benchmark compares with. It is never compiled.
package etcd

import _ "go.etcd.io/etcd/server/v3"
