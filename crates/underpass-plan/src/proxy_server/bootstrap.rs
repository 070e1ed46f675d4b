//! What an Envoy knows when it starts: who it is, where it is told the rest, and what it shows to whom.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};

/// The cluster by which Envoy reaches what feeds it.
const XDS_CLUSTER: &str = "xds_cluster";
/// The cluster by which Envoy's own pages are shown elsewhere, by a listener that it is told of.
pub const ADMIN_CLUSTER: &str = "admin";
/// When nothing else is asked for: more than a proxy carries, and fewer than what takes all of a container's descriptors, of which each takes
/// two. An Envoy that has none left for the next connection ends, with all of its connections.
const MOST_CONNECTIONS: u32 = 50_000;
// Linux' numbers.
const SOL_SOCKET: u8 = 1;
const SO_BINDTODEVICE: u8 = 25;
/// `lo`, in base64.
const LOOPBACK: &str = "bG8=";

/// What decides it.
#[derive(Clone, Debug)]
pub struct Bootstrap<'a> {
    /// `NAMESPACE/NAME` of the ProxyServer.
    pub node: &'a str,
    /// Of loopback.
    pub xds_port: u16,
    pub admin: SocketAddr,
    /// Whether the admin port takes only connections that come by the device of loopback: where loopback is routed, others come too.
    pub only_by_loopback: bool,
    pub max_connections: Option<u32>,
}

impl Bootstrap<'_> {
    pub fn to_json(&self) -> Value {
        let clusters = [self.xds_cluster(), static_cluster(ADMIN_CLUSTER, self.admin)];
        // Without a time-out, or an Envoy that nobody has told anything would say after 15 seconds that it is ready.
        let by_ads = || json!({ "ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s" });
        json!({
            "node": { "id": self.node, "cluster": self.node.rsplit('/').next() },
            "admin": self.admin(),
            "dynamic_resources": {
                "ads_config": {
                    "api_type": "DELTA_GRPC",
                    "transport_api_version": "V3",
                    "grpc_services": [{ "envoy_grpc": { "cluster_name": XDS_CLUSTER } }],
                },
                "cds_config": by_ads(),
                "lds_config": by_ads(),
            },
            "static_resources": { "clusters": clusters },
            "overload_manager": { "resource_monitors": [{
                "name": "envoy.resource_monitors.global_downstream_max_connections",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                    "max_active_downstream_connections": self.max_connections.unwrap_or(MOST_CONNECTIONS),
                },
            }]},
        })
    }

    fn admin(&self) -> Value {
        let mut admin = json!({ "address": socket_address(self.admin) });
        if self.only_by_loopback {
            admin["socket_options"] = json!([{
                "description": "only by the device of loopback",
                "level": SOL_SOCKET,
                "name": SO_BINDTODEVICE,
                "buf_value": LOOPBACK,
                "state": "STATE_PREBIND",
            }]);
        }
        admin
    }

    fn xds_cluster(&self) -> Value {
        let mut cluster = static_cluster(XDS_CLUSTER, (Ipv4Addr::LOCALHOST, self.xds_port).into());
        cluster["typed_extension_protocol_options"] = json!({
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { "http2_protocol_options": {
                    // A manager that is gone without a word is noticed.
                    "connection_keepalive": { "interval": "10s", "timeout": "5s" },
                }},
            },
        });
        cluster
    }
}

fn static_cluster(name: &str, address: SocketAddr) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": socket_address(address) } }] }],
        },
    })
}

fn socket_address(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
}
