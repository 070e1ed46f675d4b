// Serves the resources of a folder with go-control-plane's snapshot cache, for `make bench-xds`.
//
// The folder holds what underpass serves, in underpass' own bytes: "plain" are all resources; "endpoint" and "backend" are those that a
// change adds or puts in the place of others. A line on stdin with one of these names is that change; the next line takes it back.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

const module = "github.com/envoyproxy/go-control-plane"

// One snapshot for all clients: the least that the cache can be asked to do.
type everybody struct{}

func (everybody) ID(*core.Node) string { return "everybody" }

// What is served, by kind: the resources as a program would hold them.
type resources [types.UnknownType][]types.Resource

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(version())
		return
	}
	if len(os.Args) != 2 {
		log.Fatal("usage: snapshot-cache FOLDER")
	}
	plain, _ := read("plain")
	changed := map[string]resources{}
	kinds := map[string][]int{}
	for _, change := range []string{"endpoint", "backend"} {
		news, touched := read(change)
		changed[change], kinds[change] = plain.with(news), touched
	}
	snapshots := cache.NewSnapshotCache(true, everybody{}, nil)
	set := setter(snapshots)
	set(plain, []int{int(types.Cluster), int(types.Endpoint), int(types.Listener)})

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	service := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(service, server.NewServer(context.Background(), snapshots, nil))
	go func() { check(service.Serve(listener)) }()
	fmt.Println(listener.Addr())

	isChanged := false
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		isChanged = !isChanged
		now, touched := plain, kinds[lines.Text()]
		if isChanged {
			now = changed[lines.Text()]
		}
		set(now, touched)
	}
}

// setter gives a new version only to the kinds that changed, and leaves the others as they were: with one version for all, which the
// library's own constructor gives, every client would be sent everything at every change.
func setter(snapshots cache.SnapshotCache) func(now resources, touched []int) {
	count, before := 0, cache.Snapshot{}
	return func(now resources, touched []int) {
		count++
		next := cache.Snapshot{Resources: before.Resources}
		for _, kind := range touched {
			next.Resources[kind] = cache.NewResources(strconv.Itoa(count), now[kind])
		}
		check(snapshots.SetSnapshot(context.Background(), "everybody", &next))
		before = next
	}
}

// read gives the resources of a file by kind, and which kinds these are.
func read(name string) (all resources, touched []int) {
	data, err := os.ReadFile(filepath.Join(os.Args[1], name))
	check(err)
	var message discovery.DiscoveryResponse
	check(proto.Unmarshal(data, &message))
	for _, packed := range message.Resources {
		resource, err := packed.UnmarshalNew()
		check(err)
		kind := int(cache.GetResponseType(packed.TypeUrl))
		if all[kind] == nil {
			touched = append(touched, kind)
		}
		all[kind] = append(all[kind], resource)
	}
	return all, touched
}

// with gives the same resources with others of the same names in their place, or beside them.
func (plain resources) with(news resources) resources {
	for kind, resources := range news {
		places := map[string]int{}
		for place, resource := range plain[kind] {
			places[cache.GetResourceName(resource)] = place
		}
		plain[kind] = append([]types.Resource(nil), plain[kind]...)
		for _, resource := range resources {
			if place, found := places[cache.GetResourceName(resource)]; found {
				plain[kind][place] = resource
			} else {
				plain[kind] = append(plain[kind], resource)
			}
		}
	}
	return plain
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version[1:]
		}
	}
	return "unknown"
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
