//! xDS on the wire, as far as a client has to look at it: what a control plane sends is not taken apart more than needed, because the client
//! shares the machine with what is measured.

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use underpass_xds::Kind;

/// One of the two ways to talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Dialect {
    Delta,
    World,
}

/// Messages as bytes, both ways.
#[derive(Clone, Copy, Default)]
pub(crate) struct AsBytes;

/// An answer in either dialect.
pub(crate) struct Answer {
    pub(crate) kind: Kind,
    pub(crate) version: String,
    pub(crate) nonce: String,
    pub(crate) bodies: Vec<Bytes>,
    /// Named only in changes.
    pub(crate) removed: Vec<String>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Packed {
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// `DiscoveryResponse`.
#[derive(Clone, PartialEq, Message)]
struct WorldAnswer {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(message, repeated, tag = "2")]
    resources: Vec<Packed>,
    #[prost(string, tag = "4")]
    type_url: String,
    #[prost(string, tag = "5")]
    nonce: String,
}

/// `DeltaDiscoveryResponse`.
#[derive(Clone, PartialEq, Message)]
struct DeltaAnswer {
    #[prost(message, repeated, tag = "2")]
    resources: Vec<Versioned>,
    #[prost(string, tag = "4")]
    type_url: String,
    #[prost(string, tag = "5")]
    nonce: String,
    #[prost(string, repeated, tag = "6")]
    removed: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Versioned {
    #[prost(message, tag = "2")]
    resource: Option<Packed>,
}

/// The first field of clusters, endpoints and listeners alike.
#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

impl Dialect {
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Delta => "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
            Self::World => "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
        }
    }

    pub(crate) fn read(self, message: Bytes) -> anyhow::Result<Answer> {
        let kind = |url: &str| Kind::of_type_url(url).ok_or_else(|| anyhow::anyhow!("nobody asked for {url}"));
        Ok(match self {
            Self::Delta => {
                let DeltaAnswer { resources, type_url, nonce, removed } = DeltaAnswer::decode(message)?;
                let bodies = resources.into_iter().filter_map(|it| Some(it.resource?.value)).collect();
                Answer { kind: kind(&type_url)?, version: String::new(), nonce, bodies, removed }
            }
            Self::World => {
                let WorldAnswer { version, resources, type_url, nonce } = WorldAnswer::decode(message)?;
                let bodies = resources.into_iter().map(|it| it.value).collect();
                Answer { kind: kind(&type_url)?, version, nonce, bodies, removed: Vec::new() }
            }
        })
    }
}

impl Answer {
    /// Whether there is a resource of this name: everybody writes fields in their order, and the name is the first.
    pub(crate) fn has(&self, name: &str) -> bool {
        let beginning = Named { name: name.to_owned() }.encode_to_vec();
        self.bodies.iter().any(|body| body.starts_with(&beginning))
    }

    pub(crate) fn names(&self) -> anyhow::Result<Vec<String>> {
        self.bodies.iter().map(|body| Ok(Named::decode(body.clone())?.name)).collect()
    }
}

impl Codec for AsBytes {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for AsBytes {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for AsBytes {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
