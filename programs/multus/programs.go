//go:build programs

// Package multus pins the CNI plugin that gives pods of the lab further networks. It is never compiled.
package multus

import _ "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus"
