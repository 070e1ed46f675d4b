//! The two ways in which a client and we talk on a stream: the state of the world, and changes to it.

use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource as Versioned,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::google::rpc::Status;

use crate::resources::Resource;
use crate::snapshot::{Kind, Snapshot};
use crate::stream::{Asked, Stream, Update};

/// Every resource, whatever it is called.
const EVERYTHING: &str = "*";
/// Behind the version of whoever does not have exactly what there is of a kind.
const IN_PART: &str = "-in-part";

/// One of the two ways.
pub(crate) trait Dialect: Send + 'static {
    type Request: Send + 'static;
    type Response: Send + 'static;

    fn node(request: &Self::Request) -> Option<&Node>;
    fn type_url(request: &Self::Request) -> &str;
    fn nonce(request: &Self::Request) -> &str;
    fn refusal(request: &Self::Request) -> Option<&Status>;
    /// Whether a request whose nonce is not the newest counts.
    const OLD_REQUESTS_COUNT: bool;
    /// Takes note of what is asked for.
    fn ask(stream: &mut Stream, kind: Kind, request: Self::Request, snapshot: &Snapshot);
    fn response(stream: &Stream, update: Update) -> Self::Response;
    /// The answer to somebody who asks for what we never have.
    fn nothing(type_url: &str) -> Self::Response;
}

pub(crate) struct StateOfTheWorld;
pub(crate) struct Changes;

impl Dialect for StateOfTheWorld {
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;
    /// They repeat everything that is asked for, and so does the one that answers the newest.
    const OLD_REQUESTS_COUNT: bool = false;

    fn node(request: &DiscoveryRequest) -> Option<&Node> {
        request.node.as_ref()
    }

    fn type_url(request: &DiscoveryRequest) -> &str {
        &request.type_url
    }

    fn nonce(request: &DiscoveryRequest) -> &str {
        &request.response_nonce
    }

    fn refusal(request: &DiscoveryRequest) -> Option<&Status> {
        request.error_detail.as_ref()
    }

    fn ask(stream: &mut Stream, kind: Kind, request: DiscoveryRequest, snapshot: &Snapshot) {
        let before = stream.asked(kind);
        let (is_first, had_everything) = (before.is_none(), before.is_some_and(|asked| asked.everything));
        let no_names = request.resource_names.is_empty() && kind != Kind::Endpoints && (is_first || had_everything);
        let everything = no_names || request.resource_names.iter().any(|name| name == EVERYTHING);
        let names = request.resource_names.iter().map(String::as_str).filter(|name| *name != EVERYTHING);
        // Mostly it repeats what was asked before.
        if before.is_some_and(|asked| asked.everything == everything && asked.is(names.clone())) {
            return;
        }
        let wanted = snapshot.of(kind);
        stream.ask(kind, &Asked { everything, names: names.map(|name| wanted.name(name)).collect() });
        // A client that comes back with what it would get needs nothing.
        if is_first && *request.version_info == *wanted.version {
            stream.has_all(kind, wanted);
        }
    }

    fn response(stream: &Stream, update: Update) -> DiscoveryResponse {
        let bodies = |resources: &mut dyn Iterator<Item = &Arc<Resource>>| {
            resources.map(|resource| resource.packed()).collect::<Vec<Any>>()
        };
        let resources = match update.kind {
            // What is not in the answer is as it was.
            Kind::Endpoints => bodies(&mut update.changed.iter().map(|(_, resource)| resource)),
            // What is not in the answer is gone.
            Kind::Cluster | Kind::Listener => bodies(&mut stream.held(update.kind)),
        };
        // Whoever comes back with a version may ask for more than it was given with that.
        let part = if update.is_whole { "" } else { IN_PART };
        DiscoveryResponse {
            version_info: format!("{}{part}", update.version),
            resources,
            type_url: update.kind.type_url().into(),
            nonce: update.nonce,
            ..DiscoveryResponse::default()
        }
    }

    fn nothing(type_url: &str) -> DiscoveryResponse {
        DiscoveryResponse { type_url: type_url.into(), nonce: "0".into(), ..DiscoveryResponse::default() }
    }
}

impl Dialect for Changes {
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;
    /// Each asks for something that no other repeats.
    const OLD_REQUESTS_COUNT: bool = true;

    fn node(request: &DeltaDiscoveryRequest) -> Option<&Node> {
        request.node.as_ref()
    }

    fn type_url(request: &DeltaDiscoveryRequest) -> &str {
        &request.type_url
    }

    fn nonce(request: &DeltaDiscoveryRequest) -> &str {
        &request.response_nonce
    }

    fn refusal(request: &DeltaDiscoveryRequest) -> Option<&Status> {
        request.error_detail.as_ref()
    }

    fn ask(stream: &mut Stream, kind: Kind, request: DeltaDiscoveryRequest, snapshot: &Snapshot) {
        let (is_first, wanted) = (stream.asked(kind).is_none(), snapshot.of(kind));
        let (no_more, no_more_names) = partition(&request.resource_names_unsubscribe);
        let (all, names) = partition(&request.resource_names_subscribe);
        let for_all = is_first && kind != Kind::Endpoints && request.resource_names_subscribe.is_empty();
        if all || for_all {
            stream.ask_for_everything(kind, true);
        } else if is_first || no_more {
            stream.ask_for_everything(kind, false);
        }
        stream.ask_no_more(kind, no_more_names.into_iter().map(|name| wanted.name(name)));
        stream.ask_again(kind, names.into_iter().map(|name| wanted.name(name)));
        if is_first && !request.initial_resource_versions.is_empty() {
            let has = request.initial_resource_versions.into_iter().map(|(name, version)| {
                let same = wanted.get(&name).filter(|resource| *resource.version == *version);
                (wanted.name(&name), same.cloned().unwrap_or_else(|| Resource::of_version(version.into())))
            });
            stream.has(kind, has);
        }
    }

    fn response(_: &Stream, update: Update) -> DeltaDiscoveryResponse {
        let resources = update.changed.into_iter().map(|(name, resource)| Versioned {
            name: name.to_string(),
            version: resource.version.to_string(),
            resource: Some(resource.packed()),
            ..Versioned::default()
        });
        DeltaDiscoveryResponse {
            system_version_info: update.version.to_string(),
            resources: resources.collect(),
            type_url: update.kind.type_url().into(),
            removed_resources: update.removed.iter().map(ToString::to_string).collect(),
            nonce: update.nonce,
            ..DeltaDiscoveryResponse::default()
        }
    }

    fn nothing(type_url: &str) -> DeltaDiscoveryResponse {
        DeltaDiscoveryResponse { type_url: type_url.into(), nonce: "0".into(), ..DeltaDiscoveryResponse::default() }
    }
}

/// Whether everything is named, and what else is.
fn partition(names: &[String]) -> (bool, Vec<&str>) {
    let (all, names): (Vec<&str>, Vec<&str>) = names.iter().map(String::as_str).partition(|name| *name == EVERYTHING);
    (!all.is_empty(), names)
}
