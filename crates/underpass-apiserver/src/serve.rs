//! From an HTTP request to its answer.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HOST, HeaderValue, IF_NONE_MATCH, USER_AGENT};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use underpass_store::Entry;

use crate::api::Api;
use crate::audit::Verb;
use crate::auth::User;
use crate::body::Body;
use crate::decode::{self, Decoded};
use crate::definitions;
use crate::delete::DeleteOptions;
use crate::discovery;
use crate::listen::Handler;
use crate::metrics::Metrics;
use crate::object::Object;
use crate::patch::PatchType;
use crate::protobuf;
use crate::registry::Resource;
use crate::request::{ListOptions, Query, Target, WriteOptions, Writing};
use crate::reviews;
use crate::status::ApiError;
use crate::table::{self, IncludeObject, Representation};
use crate::write::{Call, Written, to_bytes};

const JSON: &str = "application/json";
/// Warnings are headers, and clients take only so many bytes of those.
const MAX_WARNINGS: usize = 4096;

/// What answers requests: the API and what surrounds it.
pub(crate) struct Service {
    pub(crate) api: Arc<Api>,
    pub(crate) metrics: Arc<Metrics>,
    /// Ends all watches.
    pub(crate) stop: CancellationToken,
}

type Answer = Result<Response<Body>, ApiError>;

impl Handler for Service {
    fn handle(
        self: Arc<Self>,
        request: Request<Bytes>,
        user: Arc<User>,
    ) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>> {
        let reads = request.method() == Method::GET;
        let answer = async move {
            let (parts, body) = request.into_parts();
            let answer = self.answer(&parts, body, &user).await.unwrap_or_else(|error| error_response(&error));
            let protobuf = table::wants_protobuf(&header(&parts, ACCEPT.as_str()));
            if protobuf { protobuf::translated(answer) } else { answer }
        };
        if reads {
            return Box::pin(answer);
        }
        // A client that leaves must not leave a write half done.
        let written = tokio::spawn(answer);
        Box::pin(async move { written.await.unwrap_or_else(|e| error_response(&ApiError::internal(e.to_string()))) })
    }
}

impl Service {
    async fn answer(&self, parts: &Parts, body: Bytes, user: &User) -> Answer {
        let path = parts.uri.path();
        if parts.headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
            let why = "impersonation is not supported here: there is one user, who may do everything";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "Forbidden", why));
        }
        if let Some(answer) = self.health(path, parts) {
            return Ok(answer);
        }
        match path {
            "/version" | "/version/" => {
                only_read(parts)?;
                return Ok(respond(StatusCode::OK, JSON, Body::Full(format!("{:#}", version()).into())));
            }
            "/metrics" => {
                return Ok(respond(StatusCode::OK, crate::metrics::CONTENT_TYPE, self.metrics.render().into()));
            }
            "/" => {
                return Ok(json_response(
                    StatusCode::OK,
                    &json!({ "paths": ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"] }),
                ));
            }
            _ => {}
        }
        if let Some(answer) = self.documents(parts) {
            return answer;
        }
        let target = Target::parse(path).ok_or_else(ApiError::no_such_path)?;
        // Before the resource is chosen, so that a definition that changes knows of everybody who writes by the old one.
        let _writing = (parts.method != Method::GET).then(|| self.api.writers.enter());
        if let Some(answer) = self.review(&target, parts, &body, user) {
            return answer;
        }
        let call = self.call(&target)?;
        table::check_form(&call.resource, &header(parts, ACCEPT.as_str()))?;
        let deprecated = call.resource.custom().and_then(|custom| custom.deprecated.clone());
        let mut answer = self.dispatch(&call, parts, body).await?;
        if let Some(warning) = deprecated {
            add_warnings(&mut answer, &[warning]);
        }
        Ok(answer)
    }

    /// All of a health check, or one part of it: `/livez`, `/livez/ping`.
    fn health(&self, path: &str, parts: &Parts) -> Option<Response<Body>> {
        let (kind, part) = path.strip_prefix('/')?.split_once('/').map_or((&path[1..], None), |(k, p)| (k, Some(p)));
        let checks: &[&str] = if kind == "readyz" { &["ping", "store", "serving"] } else { &["ping", "store"] };
        if !matches!(kind, "livez" | "healthz" | "readyz") || part.is_some_and(|part| !checks.contains(&part)) {
            return None;
        }
        if kind == "readyz" && part.is_none_or(|part| part == "serving") && !self.api.is_ready() {
            let why = "[-]serving failed: not ready yet\n".to_owned();
            return Some(text_response(StatusCode::INTERNAL_SERVER_ERROR, why));
        }
        let told: String = checks.iter().map(|check| format!("[+]{check} ok\n")).collect();
        let verbose = part.is_none() && Query::of(parts).flag("verbose");
        Some(text_response(
            StatusCode::OK,
            if verbose { format!("{told}{kind} check passed\n") } else { "ok".to_owned() },
        ))
    }

    /// Discovery and OpenAPI, with their tags.
    fn documents(&self, parts: &Parts) -> Option<Answer> {
        let registry = self.api.registry.load();
        let (path, accept) = (parts.uri.path(), header(parts, ACCEPT.as_str()));
        let host = parts.uri.host().map_or_else(|| header(parts, HOST.as_str()), str::to_owned);
        let found = match discovery::respond(&registry, path, &accept, &host) {
            Some(found) => only_read(parts).map(|()| found),
            None => self.api.openapi.respond(&registry, path, &accept)?,
        };
        Some(found.map(|(text, type_, etag)| {
            let etag = format!("\"{}\"", etag.trim_matches('"'));
            let known = header(parts, IF_NONE_MATCH.as_str()).split(',').any(|tag| tag.trim() == etag);
            let mut response = match known {
                true => respond(StatusCode::NOT_MODIFIED, type_, Body::Empty),
                false => respond(StatusCode::OK, type_, Body::Full(text)),
            };
            if let Ok(tag) = HeaderValue::from_str(&etag) {
                response.headers_mut().insert(ETAG, tag);
            }
            response.headers_mut().insert("Vary", HeaderValue::from_static("Accept"));
            response
        }))
    }

    fn review(&self, target: &Target, parts: &Parts, body: &Bytes, user: &User) -> Option<Answer> {
        let known = reviews::resources()
            .iter()
            .any(|r| (r.group, r.version, r.plural) == (&target.group, &target.version, &target.plural));
        if !known {
            return None;
        }
        if parts.method != Method::POST {
            return Some(Err(ApiError::method_not_allowed()));
        }
        let token_ok = |token: &str| subtle::ConstantTimeEq::ct_eq(token.as_bytes(), self.api.token.as_bytes()).into();
        let answer = decode_body(parts, body).and_then(|decoded| {
            reviews::respond(
                &target.group,
                &target.version,
                &target.plural,
                &decoded.value,
                &user.name,
                &user.groups,
                &token_ok,
            )
            .unwrap_or_else(|| Err(ApiError::no_such_path()))
        });
        Some(answer.and_then(|review| match table::negotiate(&header(parts, ACCEPT.as_str()))? {
            plain @ (Representation::Json | Representation::Yaml) => encode(&review, plain, StatusCode::CREATED),
            _ => Err(ApiError::not_acceptable("a review is written as application/json or application/yaml only")),
        }))
    }

    fn call<'a>(&'a self, target: &'a Target) -> Result<Call<'a>, ApiError> {
        let resource = self.api.registry.load().find(&target.group, &target.version, &target.plural);
        let resource = resource.ok_or_else(ApiError::no_such_path)?;
        let known = match target.subresource.as_str() {
            "" => true,
            "status" => resource.status,
            "scale" => resource.scale.is_some(),
            "finalize" => resource.is("", "Namespace"),
            _ => false,
        };
        if !known || (!resource.namespaced && !target.namespace.is_empty()) {
            return Err(ApiError::no_such_path());
        }
        Ok(Call { api: &self.api, resource, target })
    }

    async fn dispatch(&self, call: &Call<'_>, parts: &Parts, body: Bytes) -> Answer {
        let (target, query) = (call.target, Query::of(parts));
        let whole = target.name.is_empty();
        let refused = ApiError::method_not_allowed;
        // One object of a namespaced kind, or a new one, needs its namespace in the path.
        let placed = !call.resource.namespaced || !target.namespace.is_empty();
        match parts.method {
            Method::GET if whole || query.flag("watch") || target.watch => self.collection(call, parts, &query),
            Method::GET if placed => self.one(call, parts, &query),
            Method::POST if whole && placed => {
                let options = WriteOptions::parse(&query, &header(parts, USER_AGENT.as_str()), Writing::Create)?;
                let mut written = call.create(decode_body(parts, &body)?, &options).await?;
                written.warnings.extend(call.warnings(&written.text, None));
                written_response(call, parts, &written)
            }
            Method::PATCH if target.subresource == "finalize" => Err(refused()),
            Method::PUT | Method::PATCH if !whole && placed => self.change(call, parts, &query, &body).await,
            Method::DELETE if target.subresource.is_empty() => {
                let options = DeleteOptions::parse(&body, &query, &header(parts, CONTENT_TYPE.as_str()))?;
                let text = match whole {
                    // As in Kubernetes, neither all namespaces nor a kind in all of them can be deleted at once.
                    true if !placed || call.resource.is("", "Namespace") => return Err(refused()),
                    true => call.delete_collection(&ListOptions::parse(&query)?, &options).await?,
                    false if placed => call.delete(&options).await?,
                    false => return Err(refused()),
                };
                let mut response = respond(StatusCode::OK, JSON, Body::Full(text));
                if whole {
                    response.extensions_mut().insert(Verb("DELETECOLLECTION"));
                }
                Ok(response)
            }
            _ => Err(refused()),
        }
    }

    async fn change(&self, call: &Call<'_>, parts: &Parts, query: &Query, body: &Bytes) -> Answer {
        let content_type = header(parts, CONTENT_TYPE.as_str());
        let custom = call.resource.custom().is_some();
        let patch = if parts.method == Method::PATCH { Some(PatchType::of(&content_type, custom)?) } else { None };
        let writing = match patch {
            None => Writing::Update,
            Some(PatchType::Apply) => Writing::Apply,
            Some(_) => Writing::Patch,
        };
        let options = WriteOptions::parse(query, &header(parts, USER_AGENT.as_str()), writing)?;
        if call.target.subresource == "scale" {
            let text = call.change_scale(patch, &content_type, body, &options).await?;
            return Ok(respond(StatusCode::OK, JSON, Body::Full(text)));
        }
        let before = call.get().ok();
        let mut written = match patch {
            Some(type_) => call.patch(type_, body, &options).await?,
            None => call.replace(decode_body(parts, body)?, &options).await?,
        };
        written.warnings.extend(call.warnings(&written.text, before.as_deref()));
        written_response(call, parts, &written)
    }

    fn one(&self, call: &Call<'_>, parts: &Parts, query: &Query) -> Answer {
        if call.target.subresource == "scale" {
            return call.get_scale().map(|text| respond(StatusCode::OK, JSON, Body::Full(text)));
        }
        let representation = table::negotiate(&header(parts, ACCEPT.as_str()))?;
        if let Representation::PartialObjectMetadata { list: true, .. } = representation {
            let why = "you requested PartialObjectMetadataList, but the requested object is not a list";
            return Err(ApiError::not_acceptable(why));
        }
        let (asked, newest) = (ListOptions::parse(query)?.resource_version.unwrap_or(0), self.api.store.revision());
        if asked > newest {
            return Err(ApiError::future_revision(asked, newest));
        }
        let entry = call.get()?;
        let text = call.resource.text_of(&entry.value, entry.revision);
        show(&call.resource, text, representation, include(query)?, StatusCode::OK)
    }

    fn collection(&self, call: &Call<'_>, parts: &Parts, query: &Query) -> Answer {
        let mut options = ListOptions::parse(query)?;
        let representation = table::negotiate(&header(parts, ACCEPT.as_str()))?;
        let include = include(query)?;
        if options.watch || call.target.watch {
            options.only_name(&call.target.name);
            let stream = call.watch(self.api.clone(), options, representation, include, self.stop.clone())?;
            let mut response = respond(StatusCode::OK, JSON, Body::stream(stream));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type(representation, true)));
            return Ok(response);
        }
        if let Representation::PartialObjectMetadata { list: false, .. } = representation {
            let why = "you requested PartialObjectMetadata, but the requested object is a list";
            return Err(ApiError::not_acceptable(why));
        }
        let page = call.page(&options)?;
        if representation == Representation::Json {
            return Ok(listed(respond(StatusCode::OK, JSON, Body::from(call.list_text(&page)))));
        }
        let objects: Vec<Object> = page.entries.iter().map(|e| call.resource.object_of(&e.value, e.revision)).collect();
        let objects: Vec<&Object> = objects.iter().collect();
        let metadata = page.metadata();
        let shown = match representation {
            Representation::Table(version) => {
                table::table(&call.resource, &objects, metadata, version, include, Timestamp::now())
            }
            Representation::PartialObjectMetadata { version, .. } => {
                table::partial_metadata_list(&objects, metadata, version)
            }
            Representation::Json | Representation::Yaml => json!({
                "kind": call.resource.list_kind, "apiVersion": call.resource.api_version(), "metadata": metadata, "items": objects,
            }),
        };
        encode(&shown, representation, StatusCode::OK).map(listed)
    }
}

impl Call<'_> {
    /// What the author of a definition should know.
    fn warnings(&self, text: &Bytes, before: Option<&Entry>) -> Vec<String> {
        if !self.resource.is(definitions::GROUP, definitions::KIND) {
            return Vec::new();
        }
        let read = |text: &Bytes| serde_json::from_slice::<Object>(text).ok();
        read(text)
            .map(|new| definitions::warnings(&new, before.and_then(|b| read(&b.value)).as_ref()))
            .unwrap_or_default()
    }
}

fn only_read(parts: &Parts) -> Result<(), ApiError> {
    if matches!(parts.method, Method::GET | Method::HEAD) { Ok(()) } else { Err(ApiError::method_not_allowed()) }
}

/// Marks an answer as a list's, which the method alone does not tell.
fn listed(mut response: Response<Body>) -> Response<Body> {
    response.extensions_mut().insert(Verb("LIST"));
    response
}

/// One object in the shape that was asked for.
pub(crate) fn present(
    resource: &Resource,
    object: &Object,
    representation: Representation,
    include: IncludeObject,
) -> Value {
    match representation {
        Representation::Json | Representation::Yaml => object.clone(),
        Representation::PartialObjectMetadata { version, .. } => table::partial_metadata(object, version),
        Representation::Table(version) => {
            let metadata = json!({ "resourceVersion": crate::object::resource_version(object) });
            table::table(resource, &[object], metadata, version, include, Timestamp::now())
        }
    }
}

fn show(
    resource: &Resource,
    text: Bytes,
    representation: Representation,
    include: IncludeObject,
    code: StatusCode,
) -> Answer {
    if representation == Representation::Json {
        return Ok(respond(code, JSON, Body::Full(text)));
    }
    let object: Object = serde_json::from_slice(&text).map_err(|e| ApiError::internal(e.to_string()))?;
    encode(&present(resource, &object, representation, include), representation, code)
}

fn encode(shown: &Value, representation: Representation, code: StatusCode) -> Answer {
    let body = if representation == Representation::Yaml {
        serde_saphyr::to_string(shown).map_err(|e| ApiError::internal(e.to_string()))?.into()
    } else {
        to_bytes(shown)
    };
    Ok(respond(code, content_type(representation, false), Body::Full(body)))
}

fn content_type(representation: Representation, stream: bool) -> &'static str {
    match representation {
        Representation::Yaml if !stream => "application/yaml",
        _ => JSON,
    }
}

fn written_response(call: &Call<'_>, parts: &Parts, written: &Written) -> Answer {
    let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    let representation = table::negotiate(&header(parts, ACCEPT.as_str()))?;
    let include = include(&Query::of(parts))?;
    let mut response = show(&call.resource, written.text.clone(), representation, include, code)?;
    add_warnings(&mut response, &written.warnings);
    Ok(response)
}

fn include(query: &Query) -> Result<IncludeObject, ApiError> {
    IncludeObject::parse(Some(query.get("includeObject")))
}

fn add_warnings(response: &mut Response<Body>, warnings: &[String]) {
    let mut room = MAX_WARNINGS;
    for warning in warnings {
        let Some(left) = room.checked_sub(warning.len()) else { return };
        room = left;
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append("Warning", value);
        }
    }
}

fn decode_body(parts: &Parts, body: &Bytes) -> Result<Decoded, ApiError> {
    decode::object(&header(parts, CONTENT_TYPE.as_str()), body)
}

fn header(parts: &Parts, name: &str) -> String {
    let values = parts.headers.get_all(name).iter().filter_map(|v| v.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "gitVersion": concat!("v1.36.0+underpass-", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}

/// As Go names it, and so all of Kubernetes' tools.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(crate) fn error_response(error: &ApiError) -> Response<Body> {
    json_response(error.code, &error.to_json())
}

fn json_response(code: StatusCode, value: &Value) -> Response<Body> {
    respond(code, JSON, Body::Full(to_bytes(value)))
}

fn text_response(code: StatusCode, text: String) -> Response<Body> {
    respond(code, "text/plain; charset=utf-8", Body::Full(text.into()))
}

fn respond(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
