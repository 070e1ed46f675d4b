//! GET and LIST: stored texts handed out as they are, wherever that is possible.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use underpass_store::{At, Entry, ReadError};

use crate::request::{ListOptions, VersionMatch};
use crate::status::ApiError;
use crate::write::Call;

/// A part of a collection at one revision.
pub(crate) struct Page {
    pub(crate) revision: u64,
    pub(crate) entries: Vec<Arc<Entry>>,
    pub(crate) continue_token: Option<String>,
    pub(crate) remaining: Option<usize>,
}

/// Where a list goes on. Opaque to clients; a damaged one is refused.
#[derive(Serialize, Deserialize)]
struct Continue {
    v: String,
    /// 0 = at whatever is newest: the list is not consistent with its first part any more.
    rv: u64,
    after: String,
}

const CONTINUE_FORMAT: &str = "underpass/v1";

impl Call<'_> {
    pub(crate) fn get(&self) -> Result<Arc<Entry>, ApiError> {
        let key = self.key(&self.target.name);
        let subject = self.resource.subject(&self.target.name);
        self.api.store.get(&self.resource.bucket, &key).ok_or_else(|| ApiError::not_found(&subject))
    }

    /// The entries that a list shows: those that match, from where it goes on, as many as asked.
    pub(crate) fn page(&self, options: &ListOptions) -> Result<Page, ApiError> {
        let resource = &*self.resource;
        options.fields.check(resource)?;
        let (at, after) = self.position(options)?;
        let prefix = resource.prefix(&self.target.namespace);
        let listing = self
            .api
            .store
            .list(&resource.bucket, &prefix, after.as_deref(), at)
            .map_err(|e| self.list_error(&e, at, after.as_deref()))?;
        let filtered = !options.labels.is_empty() || !options.fields.is_empty();
        let mut entries = listing.entries;
        if filtered {
            entries.retain(|entry| self.matches(options, &entry.value, entry.revision));
        }
        let (mut continue_token, mut remaining) = (None, None);
        if options.limit > 0 && entries.len() > options.limit {
            // Kubernetes leaves the count out where a selector would make it dear; so do we, to be alike.
            remaining = (!filtered).then(|| entries.len() - options.limit);
            entries.truncate(options.limit);
            let last = entries.last().map(|e| e.name.to_string()).unwrap_or_default();
            continue_token =
                Some(Continue { v: CONTINUE_FORMAT.to_owned(), rv: listing.revision, after: last }.encode());
        }
        Ok(Page { revision: listing.revision, entries, continue_token, remaining })
    }

    fn position(&self, options: &ListOptions) -> Result<(At, Option<String>), ApiError> {
        if !options.continue_token.is_empty() {
            if options.resource_version.is_some_and(|v| v != 0) {
                return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
            }
            let token = Continue::decode(&options.continue_token)?;
            let at = if token.rv == 0 { At::Now } else { At::Revision(token.rv) };
            return Ok((at, Some(token.after)));
        }
        let at = match (options.version_match, options.resource_version) {
            (VersionMatch::Exact, Some(version)) => At::Revision(version),
            // A limited list at a version means exactly that one, as Kubernetes reads it.
            (VersionMatch::Unset, Some(version)) if version > 0 && options.limit > 0 => At::Revision(version),
            (_, Some(version)) if version > self.api.store.revision() => {
                return Err(ApiError::future_revision(version, self.api.store.revision()));
            }
            _ => At::Now,
        };
        Ok((at, None))
    }

    fn list_error(&self, error: &ReadError, at: At, after: Option<&str>) -> ApiError {
        match error {
            ReadError::Future { newest } => {
                ApiError::future_revision(if let At::Revision(asked) = at { asked } else { 0 }, *newest)
            }
            ReadError::Compacted { .. } => {
                let mut gone = ApiError::expired(
                    "The provided continue parameter or resource version is too old to display a consistent list result. \
                     Start a new list, or go on with the continue token in this response, which shows the rest as it is now.",
                );
                if let Some(after) = after {
                    gone.continue_token =
                        Some(Continue { v: CONTINUE_FORMAT.to_owned(), rv: 0, after: after.to_owned() }.encode());
                }
                gone
            }
        }
    }

    pub(crate) fn matches(&self, options: &ListOptions, value: &Bytes, revision: u64) -> bool {
        if options.labels.is_empty() && options.fields.is_empty() {
            return true;
        }
        let object = self.resource.object_of(value, revision);
        options.labels.matches(&object) && options.fields.matches(&object)
    }

    /// The list object, in pieces: the items are the stored texts themselves.
    pub(crate) fn list_text(&self, page: &Page) -> Vec<Bytes> {
        let resource = &*self.resource;
        let mut metadata = page.metadata();
        if resource.custom().is_some() && page.continue_token.is_none() {
            // Kubernetes leaves it out of lists whose items it knows, and of no others.
            metadata["continue"] = json!("");
        }
        let head = format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
            Value::from(resource.list_kind.as_str()),
            Value::from(resource.api_version()),
            metadata
        );
        let mut pieces = Vec::with_capacity(page.entries.len() * 2 + 2);
        pieces.push(Bytes::from(head));
        for (index, entry) in page.entries.iter().enumerate() {
            if index > 0 {
                pieces.push(Bytes::from_static(b","));
            }
            pieces.push(resource.text_of(&entry.value, entry.revision));
        }
        pieces.push(Bytes::from_static(b"]}\n"));
        pieces
    }
}

impl Page {
    pub(crate) fn metadata(&self) -> Value {
        let mut metadata = json!({ "resourceVersion": self.revision.to_string() });
        if let Some(token) = &self.continue_token {
            metadata["continue"] = json!(token);
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        metadata
    }
}

impl Continue {
    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("a continue token can be written"))
    }

    fn decode(text: &str) -> Result<Self, ApiError> {
        let refuse =
            || ApiError::bad_request("continue key is not valid: use one that a list answered with, unchanged");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| refuse())?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|_| refuse())?;
        if token.v == CONTINUE_FORMAT { Ok(token) } else { Err(refuse()) }
    }
}
