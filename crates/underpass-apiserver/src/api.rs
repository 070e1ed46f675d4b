//! The server's heart: the store, what is served, and the one way to write an object.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::mpsc;
use underpass_builtins::Builtin;
use underpass_store::{Change, Entry, Expect, Store, Write, WriteError};

use crate::collector::Footprint;
use crate::object::{Encoder, Object};
use crate::openapi::OpenApi;
use crate::registry::{Origin, Registry, Resource};
use crate::status::ApiError;
use crate::writers::Writers;

/// What is stored must be readable again, and the JSON reader stops at 128 levels.
const MAX_DEPTH: usize = 120;

pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) registry: ArcSwap<Registry>,
    pub(crate) openapi: OpenApi,
    /// The certificate authority's PEM, which every namespace gets as `kube-root-ca.crt`.
    pub(crate) ca_pem: String,
    pub(crate) token: String,
    encoder: Encoder,
    /// Everybody who writes objects of definitions enters here first.
    pub(crate) writers: Writers,
    footprints: mpsc::UnboundedSender<Footprint>,
    ready: AtomicBool,
}

/// Why a write did not happen.
pub(crate) enum CommitError {
    /// The object is not in the state that the write expects.
    Conflict,
    Failed(ApiError),
}

pub(crate) enum Kept {
    Put,
    Deleted,
}

impl Api {
    /// Also returns where the garbage collector hears of every write.
    pub(crate) fn new(store: Store, ca_pem: String, token: String) -> (Self, mpsc::UnboundedReceiver<Footprint>) {
        let (footprints, heard) = mpsc::unbounded_channel();
        let api = Self {
            store,
            registry: ArcSwap::from_pointee(Registry::build([], 0)),
            openapi: OpenApi::new(),
            ca_pem,
            token,
            encoder: Encoder::new(),
            writers: Writers::new(),
            footprints,
            ready: AtomicBool::new(false),
        };
        (api, heard)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }

    /// Writes `object` (in the resource's version) under `key` if it is still in the expected state.
    pub(crate) async fn commit(
        &self,
        resource: &Resource,
        key: &str,
        expect: Expect,
        kept: Kept,
        object: Object,
    ) -> Result<Arc<Entry>, CommitError> {
        let footprint = Footprint::of(resource, key, &object, matches!(kept, Kept::Deleted));
        let mut stored = object;
        resource.to_storage(&mut stored);
        if is_deeper(&stored, MAX_DEPTH) {
            let why = format!("the object is nested more than {MAX_DEPTH} levels deep");
            return Err(CommitError::Failed(ApiError::bad_request(why)));
        }
        let template = self.encoder.template(&mut stored);
        let change = match kept {
            Kept::Put => Change::Put(template),
            Kept::Deleted => Change::Delete(template),
        };
        let write = Write { bucket: resource.bucket.clone(), name: key.into(), expect, change };
        match self.store.write(write).await {
            Ok(entry) => {
                // The receiver lives as long as the server; at the end of it nobody needs the message.
                let _ = self.footprints.send(footprint);
                Ok(entry)
            }
            Err(WriteError::Conflict { .. }) => Err(CommitError::Conflict),
            Err(error) => Err(CommitError::Failed(ApiError::internal(error.to_string()))),
        }
    }
}

impl Resource {
    /// An entry as a JSON text of this version: as it is stored, where possible.
    pub(crate) fn text_of(&self, value: &Bytes, revision: u64) -> Bytes {
        if self.is_current(value, revision) {
            return value.clone();
        }
        serde_json::to_vec(&self.object_of(value, revision)).map_or_else(|_| value.clone(), Bytes::from)
    }

    /// An entry as an object of this version, with the defaults that its schema has now.
    pub(crate) fn object_of(&self, value: &Bytes, revision: u64) -> Object {
        let mut object: Object = serde_json::from_slice(value).expect("the store holds what was written: JSON");
        if !self.is_current(value, revision) {
            self.convert_from_storage(&mut object);
        }
        object
    }

    /// An entry as an object to work on: without what is only written because Kubernetes' types would.
    pub(crate) fn live_of(&self, value: &Bytes, revision: u64) -> Object {
        let mut object = self.object_of(value, revision);
        if self.event().is_some() {
            underpass_builtins::bare_event(&mut object);
        }
        object
    }

    /// An object that is not stored, as it would be read.
    pub(crate) fn as_read(&self, mut object: Object) -> Object {
        if let Some(builtin) = self.event() {
            underpass_builtins::convert_event(&mut object, builtin.group);
        }
        object
    }

    fn event(&self) -> Option<&Builtin> {
        match &self.origin {
            Origin::Builtin(builtin) => Some(*builtin).filter(|builtin| builtin.kind == "Event"),
            Origin::Custom(_) => None,
        }
    }

    fn is_current(&self, value: &Bytes, revision: u64) -> bool {
        // Keys are written in order, so that every stored object begins with its version.
        let same_version = value.strip_prefix(b"{\"apiVersion\":\"").is_some_and(|rest| {
            rest.starts_with(self.api_version().as_bytes()) && rest.get(self.api_version().len()) == Some(&b'"')
        });
        same_version && self.custom().is_none_or(|custom| revision > custom.since.load(Ordering::Acquire))
    }

    fn convert_from_storage(&self, object: &mut Object) {
        match &self.origin {
            Origin::Builtin(builtin) => {
                if builtin.kind == "Event" {
                    underpass_builtins::convert_event(object, builtin.group);
                }
            }
            Origin::Custom(custom) => {
                object["apiVersion"] = self.api_version().into();
                custom.schema.prune(object);
                custom.schema.default_into(object);
            }
        }
    }

    fn to_storage(&self, object: &mut Object) {
        match &self.origin {
            Origin::Builtin(builtin) => {
                if builtin.kind == "Event" {
                    underpass_builtins::convert_event(object, "");
                }
            }
            Origin::Custom(custom) => {
                object["apiVersion"] = format!("{}/{}", self.group, custom.storage_version).into();
                if let Some(storage) = &custom.storage_schema {
                    storage.prune(object);
                    storage.default_into(object);
                }
            }
        }
    }
}

fn is_deeper(value: &Value, left: usize) -> bool {
    match value {
        Value::Object(map) => left == 0 || map.values().any(|below| is_deeper(below, left - 1)),
        Value::Array(list) => left == 0 || list.iter().any(|below| is_deeper(below, left - 1)),
        _ => false,
    }
}

/// Now, to the second, as Kubernetes writes times.
pub(crate) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
