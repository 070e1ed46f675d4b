//! What this server serves, as clients ask for it before anything else: `/api`, `/apis` and below.
//!
//! Two forms of the same facts: the old one with a document per group version, and the aggregated one where `/api` and `/apis` tell
//! everything at once. Both are made from the registry on request: a few kilobytes, not worth a cache that could be stale.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::accept;
use crate::registry::{Origin, Registry, Resource};
use crate::request;
use crate::reviews::{self, Review};

const JSON: &str = "application/json";

/// The versions of aggregated discovery, with the exact content types that clients compare.
const AGGREGATED: [(&str, &str); 2] = [
    ("v2", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
    ("v2beta1", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"),
];

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// In the order in which Kubernetes names those of a custom resource.
const CUSTOM_VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
/// What is left of a resource whose definition is being deleted.
const TERMINATING_VERBS: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The body, its content type and its ETag, quoted as the header has it. `None`: nothing to discover at this path.
pub(crate) fn respond(
    registry: &Registry,
    path: &str,
    accept: &str,
    host: &str,
) -> Option<(Bytes, &'static str, String)> {
    let segments: Vec<&str> = request::segments(path)?.collect();
    let catalog = Catalog::new(registry);
    let aggregated = aggregated_version(accept);
    let (document, content_type) = match (segments.as_slice(), aggregated) {
        (["api"], Some((version, content_type))) => (catalog.aggregated(version, str::is_empty), content_type),
        (["apis"], Some((version, content_type))) => {
            (catalog.aggregated(version, |group| !group.is_empty()), content_type)
        }
        (["api"], None) => (catalog.core_versions(host), JSON),
        (["apis"], None) => (catalog.group_list(), JSON),
        (["api", version], _) => (catalog.resource_list("", version)?, JSON),
        (["apis", group], _) => (catalog.group(group)?, JSON),
        (["apis", group, version], _) if !group.is_empty() => (catalog.resource_list(group, version)?, JSON),
        _ => return None,
    };
    let body = Bytes::from(document.to_string());
    let etag = format!("\"{:X}\"", Sha256::digest(&body));
    Some((body, content_type, etag))
}

/// The aggregated form that the client prefers to the plain one.
fn aggregated_version(accept: &str) -> Option<(&'static str, &'static str)> {
    accept::alternatives(accept).iter().filter(|alternative| alternative.allows(JSON)).find_map(|alternative| {
        match alternative.shape() {
            None => Some(None),
            Some(("apidiscovery.k8s.io", version, "APIGroupDiscoveryList")) => {
                AGGREGATED.into_iter().find(|(v, _)| *v == version).map(Some)
            }
            Some(_) => None,
        }
    })?
}

/// Groups with their versions, and what each version holds.
struct Catalog<'a> {
    registry: &'a Registry,
    /// Kubernetes' own groups first: where a short name exists twice, clients take the first.
    groups: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> Catalog<'a> {
    fn new(registry: &'a Registry) -> Self {
        let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (group, served) in registry.groups() {
            versions.insert(group, served.iter().map(String::as_str).collect());
        }
        for review in reviews::resources() {
            let served = versions.entry(review.group).or_default();
            if !served.contains(&review.version) {
                served.push(review.version);
            }
        }
        let mut groups: Vec<_> = versions.into_iter().collect();
        groups.sort_by_key(|(group, versions)| versions.iter().all(|version| is_custom(registry, group, version)));
        Self { registry, groups }
    }

    fn core_versions(&self, host: &str) -> Value {
        json!({
            "kind": "APIVersions",
            "versions": self.registry.versions(""),
            "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": host }],
        })
    }

    fn group_list(&self) -> Value {
        let groups: Vec<Value> = self
            .groups
            .iter()
            .filter(|(group, _)| !group.is_empty())
            .map(|(group, versions)| group_entry(group, versions))
            .collect();
        json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
    }

    fn group(&self, name: &str) -> Option<Value> {
        let (group, versions) = self.groups.iter().find(|(group, _)| *group == name && !name.is_empty())?;
        let mut entry = group_entry(group, versions);
        entry["kind"] = json!("APIGroup");
        entry["apiVersion"] = json!("v1");
        Some(entry)
    }

    fn resource_list(&self, group: &str, version: &str) -> Option<Value> {
        self.groups.iter().find(|(name, versions)| *name == group && versions.contains(&version))?;
        let resources: Vec<Value> = self.entries(group, version).iter().flat_map(Entry::plain).collect();
        let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        Some(
            json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources }),
        )
    }

    fn aggregated(&self, form: &str, wanted: impl Fn(&str) -> bool) -> Value {
        let groups = self.groups.iter().filter(|(group, _)| wanted(group));
        let items: Vec<Value> = groups.map(|(group, versions)| self.aggregated_group(group, versions)).collect();
        json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": format!("apidiscovery.k8s.io/{form}"),
            "metadata": {},
            "items": items,
        })
    }

    fn aggregated_group(&self, group: &str, versions: &[&str]) -> Value {
        let versions: Vec<Value> = versions
            .iter()
            .map(|version| {
                let resources: Vec<Value> = self.entries(group, version).iter().map(Entry::aggregated).collect();
                json!({ "version": version, "resources": resources, "freshness": "Current" })
            })
            .collect();
        let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
        json!({ "metadata": metadata, "versions": versions })
    }

    /// By plural.
    fn entries(&self, group: &str, version: &str) -> Vec<Entry> {
        let stored = self.registry.resources_of(group, version).map(|resource| Entry::of_resource(resource));
        let asked =
            reviews::resources().iter().filter(|r| r.group == group && r.version == version).map(Entry::of_review);
        let mut entries: Vec<_> = stored.chain(asked).collect();
        entries.sort_by(|a, b| a.plural.cmp(&b.plural));
        entries
    }
}

/// Whether every resource of the version comes from a definition.
fn is_custom(registry: &Registry, group: &str, version: &str) -> bool {
    let mut resources = registry.resources_of(group, version).peekable();
    resources.peek().is_some() && resources.all(|resource| resource.custom().is_some())
}

fn group_entry(group: &str, versions: &[&str]) -> Value {
    let versions: Vec<Value> =
        versions.iter().map(|v| json!({ "groupVersion": format!("{group}/{v}"), "version": v })).collect();
    json!({ "name": group, "preferredVersion": versions.first(), "versions": versions })
}

/// One resource, ready to be written in either form.
struct Entry {
    group: String,
    version: String,
    kind: String,
    plural: String,
    singular: String,
    namespaced: bool,
    short_names: Vec<String>,
    categories: Vec<String>,
    verbs: Vec<&'static str>,
    /// Empty for what is not stored.
    storage_hash: String,
    subresources: Vec<Subresource>,
}

struct Subresource {
    name: &'static str,
    /// Where its kind is not the resource's: (group, version, kind).
    other_kind: Option<(&'static str, &'static str, &'static str)>,
    verbs: &'static [&'static str],
}

impl Entry {
    fn of_resource(resource: &Resource) -> Self {
        Self {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: resource.kind.clone(),
            plural: resource.plural.clone(),
            singular: resource.singular.clone(),
            namespaced: resource.namespaced,
            short_names: resource.short_names.clone(),
            categories: resource.categories.clone(),
            verbs: verbs(resource),
            storage_hash: storage_hash(resource),
            subresources: subresources(resource),
        }
    }

    fn of_review(review: &Review) -> Self {
        Self {
            group: review.group.to_owned(),
            version: review.version.to_owned(),
            kind: review.kind.to_owned(),
            plural: review.plural.to_owned(),
            singular: review.singular.to_owned(),
            namespaced: review.namespaced,
            short_names: Vec::new(),
            categories: Vec::new(),
            verbs: vec!["create"],
            storage_hash: String::new(),
            subresources: Vec::new(),
        }
    }

    /// `APIResource`s: the resource, then its subresources.
    fn plain(&self) -> Vec<Value> {
        let mut main = json!({
            "name": self.plural, "singularName": self.singular, "namespaced": self.namespaced, "kind": self.kind, "verbs": self.verbs,
        });
        self.add_names(&mut main);
        if !self.storage_hash.is_empty() {
            main["storageVersionHash"] = json!(self.storage_hash);
        }
        let mut resources = vec![main];
        resources.extend(self.subresources.iter().map(|sub| {
            let name = format!("{}/{}", self.plural, sub.name);
            let mut entry = json!({
                "name": name, "singularName": "", "namespaced": self.namespaced, "kind": self.kind, "verbs": sub.verbs,
            });
            if let Some((group, version, kind)) = sub.other_kind {
                (entry["group"], entry["version"], entry["kind"]) = (json!(group), json!(version), json!(kind));
            }
            entry
        }));
        resources
    }

    /// `APIResourceDiscovery`.
    fn aggregated(&self) -> Value {
        let kind = |group: &str, version: &str, kind: &str| json!({ "group": group, "version": version, "kind": kind });
        let own_kind = || kind(&self.group, &self.version, &self.kind);
        let mut main = json!({
            "resource": self.plural,
            "responseKind": own_kind(),
            "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": self.singular,
            "verbs": self.verbs,
        });
        self.add_names(&mut main);
        if !self.subresources.is_empty() {
            let subresources = self.subresources.iter().map(|sub| {
                let response = sub.other_kind.map_or_else(own_kind, |(g, v, k)| kind(g, v, k));
                json!({ "subresource": sub.name, "responseKind": response, "verbs": sub.verbs })
            });
            main["subresources"] = subresources.collect();
        }
        main
    }

    fn add_names(&self, entry: &mut Value) {
        for (field, names) in [("shortNames", &self.short_names), ("categories", &self.categories)] {
            if !names.is_empty() {
                entry[field] = json!(names);
            }
        }
    }
}

fn verbs(resource: &Resource) -> Vec<&'static str> {
    if let Some(custom) = resource.custom() {
        return if custom.terminating { TERMINATING_VERBS.to_vec() } else { CUSTOM_VERBS.to_vec() };
    }
    // Emptying a server of all its namespaces in one call is not a verb that Kubernetes has.
    let all = !resource.is("", "Namespace");
    VERBS.into_iter().filter(|verb| all || *verb != "deletecollection").collect()
}

fn subresources(resource: &Resource) -> Vec<Subresource> {
    let own = |name, verbs| Subresource { name, other_kind: None, verbs };
    let finalize = resource.is("", "Namespace").then(|| own("finalize", &["update"]));
    let scale = resource.scale.is_some().then_some(Subresource {
        name: "scale",
        other_kind: Some(("autoscaling", "v1", "Scale")),
        verbs: &SUBRESOURCE_VERBS,
    });
    let status = resource.status.then(|| own("status", &SUBRESOURCE_VERBS));
    [finalize, scale, status].into_iter().flatten().collect()
}

/// Tells clients whether two versions are stored as the same thing, computed as Kubernetes does.
fn storage_hash(resource: &Resource) -> String {
    let stored_group = match &resource.origin {
        // Both kinds of Event are stored in the shape of the core one.
        Origin::Builtin(builtin) if builtin.bucket == "events" => "",
        _ => &resource.group,
    };
    let stored = format!("{stored_group}/{}/{}", resource.storage_version(), resource.kind);
    BASE64_STANDARD.encode(&Sha256::digest(stored)[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT_GO: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                             application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

    fn definition(terminating: bool) -> Value {
        let mut definition = json!({
            "metadata": { "name": "widgets.apps.example.com" },
            "spec": {
                "group": "apps.example.com", "scope": "Cluster",
                "names": {
                    "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
                    "shortNames": ["wg"], "categories": ["all"],
                },
                "versions": [
                    { "name": "v1beta1", "served": true, "storage": false },
                    { "name": "v1", "served": true, "storage": true, "subresources": {
                        "status": {}, "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" },
                    } },
                    { "name": "v2", "served": false, "storage": false },
                ],
            },
        });
        if terminating {
            definition["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        definition
    }

    fn get(path: &str, accept: &str) -> Option<(Value, &'static str, String)> {
        let registry =
            Registry::build(Resource::from_definition(&definition(false), &crate::registry::Since::default()), 1);
        let (body, content_type, etag) = respond(&registry, path, accept, "127.0.0.1:6443")?;
        Some((serde_json::from_slice(&body).unwrap(), content_type, etag))
    }

    fn named<'a>(list: &'a Value, field: &str, name: &str) -> &'a Value {
        let found = list.as_array().unwrap().iter().find(|entry| entry[field] == name);
        found.unwrap_or_else(|| panic!("{name} in {list}"))
    }

    #[test]
    fn the_plain_form_names_versions_and_groups() {
        let (api, content_type, _) = get("/api", "").unwrap();
        assert_eq!(content_type, "application/json");
        assert_eq!(
            api,
            json!({
                "kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443" }],
            })
        );
        let (apis, _, _) = get("/apis/", "application/json").unwrap();
        assert_eq!(
            *named(&apis["groups"], "name", "apps.example.com"),
            json!({
                "name": "apps.example.com",
                "preferredVersion": { "groupVersion": "apps.example.com/v1", "version": "v1" },
                "versions": [
                    { "groupVersion": "apps.example.com/v1", "version": "v1" },
                    { "groupVersion": "apps.example.com/v1beta1", "version": "v1beta1" },
                ],
            })
        );
        named(&apis["groups"], "name", "authorization.k8s.io");
        assert_eq!(
            apis["groups"].as_array().unwrap().last().unwrap()["name"],
            "apps.example.com",
            "custom groups come last"
        );
        assert_eq!(get("/apis/apps.example.com", "").unwrap().0["kind"], "APIGroup");
    }

    #[test]
    fn a_group_version_lists_resources_and_subresources() {
        let (list, _, _) = get("/apis/apps.example.com/v1", "").unwrap();
        assert_eq!(list["groupVersion"], "apps.example.com/v1");
        let widgets = named(&list["resources"], "name", "widgets");
        assert_eq!(widgets["verbs"], json!(CUSTOM_VERBS));
        assert_eq!(widgets["shortNames"], json!(["wg"]));
        assert_eq!(widgets["namespaced"], false);
        let hash = BASE64_STANDARD.encode(&Sha256::digest("apps.example.com/v1/Widget")[..8]);
        assert_eq!(widgets["storageVersionHash"], hash);
        assert_eq!(
            *named(&list["resources"], "name", "widgets/scale"),
            json!({
                "name": "widgets/scale", "singularName": "", "namespaced": false,
                "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"],
            })
        );
        assert_eq!(named(&list["resources"], "name", "widgets/status")["kind"], "Widget");
        let (beta, _, _) = get("/apis/apps.example.com/v1beta1", "").unwrap();
        assert_eq!(beta["resources"].as_array().unwrap().len(), 1);
        assert_eq!(beta["resources"][0]["storageVersionHash"], hash);
    }

    #[test]
    fn hashes_are_those_of_kubernetes() {
        let (core, _, _) = get("/api/v1", "").unwrap();
        assert_eq!(named(&core["resources"], "name", "configmaps")["storageVersionHash"], "qFsyl6wFWjQ=");
        assert_eq!(named(&core["resources"], "name", "events")["storageVersionHash"], "r2yiGXH7wu8=");
        let (events, _, _) = get("/apis/events.k8s.io/v1", "").unwrap();
        assert_eq!(named(&events["resources"], "name", "events")["storageVersionHash"], "r2yiGXH7wu8=");
        let (apps, _, _) = get("/apis/apps/v1", "").unwrap();
        assert_eq!(named(&apps["resources"], "name", "deployments")["storageVersionHash"], "8aSe+NMegvE=");
    }

    #[test]
    fn namespaces_cannot_be_deleted_at_once() {
        let (core, _, _) = get("/api/v1", "").unwrap();
        let verbs = &named(&core["resources"], "name", "namespaces")["verbs"];
        assert!(!verbs.as_array().unwrap().contains(&json!("deletecollection")));
        assert_eq!(named(&core["resources"], "name", "namespaces/finalize")["verbs"], json!(["update"]));
    }

    #[test]
    fn the_aggregated_form_tells_everything_at_once() {
        let (apis, content_type, _) = get("/apis", CLIENT_GO).unwrap();
        assert_eq!(content_type, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
        assert_eq!(apis["apiVersion"], "apidiscovery.k8s.io/v2");
        let group =
            apis["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "apps.example.com").unwrap();
        let version = named(&group["versions"], "version", "v1");
        assert_eq!(version["freshness"], "Current");
        assert_eq!(version["resources"][0]["scope"], "Cluster");
        assert_eq!(
            version["resources"][0]["responseKind"],
            json!({ "group": "apps.example.com", "version": "v1", "kind": "Widget" })
        );
        let scale = named(&version["resources"][0]["subresources"], "subresource", "scale");
        assert_eq!(scale["responseKind"], json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" }));

        let (api, _, _) = get("/api", CLIENT_GO).unwrap();
        assert_eq!(api["items"].as_array().unwrap().len(), 1);
        named(&api["items"][0]["versions"][0]["resources"], "resource", "namespaces");
    }

    #[test]
    fn the_form_is_the_one_that_the_client_prefers() {
        let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        assert_eq!(get("/apis", beta).unwrap().1, beta);
        assert_eq!(get("/apis", &format!("application/json, {beta}")).unwrap().1, JSON);
        assert_eq!(
            get("/apis", "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,*/*").unwrap().1,
            JSON
        );
        assert_eq!(get("/apis/apps/v1", CLIENT_GO).unwrap().0["kind"], "APIResourceList");
    }

    #[test]
    fn reviews_can_only_be_created() {
        let (list, _, _) = get("/apis/authorization.k8s.io/v1", "").unwrap();
        assert_eq!(
            *named(&list["resources"], "name", "localsubjectaccessreviews"),
            json!({
                "name": "localsubjectaccessreviews", "singularName": "localsubjectaccessreview", "namespaced": true,
                "kind": "LocalSubjectAccessReview", "verbs": ["create"],
            })
        );
    }

    #[test]
    fn a_definition_that_is_being_deleted_loses_its_writing_verbs() {
        let registry =
            Registry::build(Resource::from_definition(&definition(true), &crate::registry::Since::default()), 1);
        let (body, _, _) = respond(&registry, "/apis/apps.example.com/v1", "", "").unwrap();
        let list: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(list["resources"][0]["verbs"], json!(TERMINATING_VERBS));
    }

    #[test]
    fn the_tag_follows_the_content() {
        assert_eq!(get("/apis", "").unwrap().2, get("/apis", "").unwrap().2);
        assert_ne!(get("/apis", "").unwrap().2, get("/apis", CLIENT_GO).unwrap().2);
        assert!(get("/apis", "").unwrap().2.starts_with('"'));
    }

    #[test]
    fn elsewhere_there_is_nothing_to_discover() {
        for path in [
            "/",
            "/apis/unknown",
            "/apis/apps/v9",
            "/apis/apps.example.com/v2",
            "/api/v1/pods",
            "/apis//v1",
            "/openapi/v2",
            "/api/v2",
        ] {
            assert!(get(path, "").is_none(), "{path}");
        }
    }
}
