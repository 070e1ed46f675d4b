//go:build programs

// Package helm pins the client that the chart is tested with. It is never compiled.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
