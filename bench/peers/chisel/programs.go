//go:build programs

// Package programs pins what scripts/tunnel-peers builds. It is never compiled.
package programs

import _ "github.com/jpillora/chisel"
