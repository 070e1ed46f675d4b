# The only entry points, for people and for CI alike. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto

.PHONY: help demo test lint image lab-up lab-down lab-load test-lab conformance fuzz bench-apiserver bench-operator bench-relay bench-fidelity bench-tunnel bench-xds setup

help: ## list what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

demo: setup ## build underpass and watch a container reach a server on this machine's 127.0.0.1, and everything go again
	$(CARGO) build --locked
	./scripts/demo

test: setup lint ## everything that must hold: lints, then all tests, on real clients, engines and a cluster (LAB=no: without it)
	LAB=$(LAB) ./scripts/test

lint: setup ## formatting, clippy with warnings denied, dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked --workspace --test lab -- -D warnings
	./scripts/deny

image: setup ## the release as a container image, dist/underpass-image.tar, and what is in it, dist/underpass-image.cdx.json
	./scripts/image

lab-up: ## a real Kubernetes on this machine (NODES=2 for two nodes); its kubeconfig is .lab/kubeconfig
	./scripts/lab up $(if $(NODES),--nodes $(NODES))

lab-down: ## end it; nothing stays but .lab/logs
	./scripts/lab down

lab-load: ## put the images of an archive on its nodes: make lab-load IMAGE=archive.tar
	./scripts/lab load "$(IMAGE)"

test-lab: setup ## what is tested on a real Kubernetes, on a lab of its own with two nodes
	./scripts/test-lab

conformance: setup ## Kubernetes' own end-to-end tests against the embedded API server
	$(CARGO) build --locked --profile bench-fast
	./conformance/run

fuzz: setup ## every parser of what strangers send, a minute each (needs a nightly compiler)
	./fuzz/run

bench-apiserver: setup ## the embedded API server beside kube-apiserver and etcd
	$(CARGO) build --locked --profile bench-fast -p underpass -p underpass-testbed
	./bench/apiserver

bench-operator: setup ## the operator's memory with 10,000 objects of every kind; fails above 200 MiB
	$(CARGO) build --locked --profile bench-fast -p underpass -p underpass-testbed
	./bench/operator

bench-relay: setup ## the relay beside Envoy, HAProxy, nginx and sniproxy; writes docs/performance.md
	$(CARGO) build --locked --profile bench-fast -p underpass -p underpass-testbed
	./bench/relay --docs docs

bench-fidelity: setup ## what a relay owes to both sides, asked of the same five; writes docs/fidelity.md
	$(CARGO) build --locked --profile bench-fast -p underpass -p underpass-testbed
	./bench/fidelity --docs docs

bench-tunnel: setup ## the tunnel beside rathole, bore, frp and chisel; writes docs/performance-tunnel.md
	$(CARGO) build --locked --profile bench-fast -p underpass -p underpass-testbed
	./bench/tunnel --docs docs

bench-xds: setup ## the control plane for Envoys beside go-control-plane's snapshot cache; writes docs/performance-xds.md
	$(CARGO) build --locked --profile bench-fast -p underpass -p underpass-testbed
	./bench/xds --docs docs

setup: # tool chains are checked, Debian packages and clients are installed
	@./scripts/setup
