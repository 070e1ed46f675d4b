// CoreDNS with the plugins that the lab's cluster DNS uses. The one that its own main package builds carries the clients of every cloud's
// DNS as well: 1382 packages instead of 784.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	// The order in which a query passes them, whatever the order in a Corefile.
	dnsserver.Directives = []string{"reload", "ready", "health", "errors", "log", "cache", "template", "kubernetes"}
	coremain.Run()
}
