//! The cluster that is installed on: objects as values, by whatever kind they name.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Context, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use underpass_deploy::{INSTALLED, OPERATOR, Platform, Settings, objects};
use underpass_operator::{Answer, explain};
use underpass_plan::{OWNER_LABEL, proxy_deployment};
use underpass_resources::KINDS;

use crate::args::ClusterFlags;
use crate::{server, settings};

/// Who owns the fields that an installation writes.
const FIELD_MANAGER: &str = "underpass-install";

pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) url: String,
}

/// Whether fields that somebody else set are taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conflicts {
    Refuse,
    Force,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Created,
    Changed,
    Unchanged,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created  ",
            Self::Changed => "changed  ",
            Self::Unchanged => "unchanged",
        })
    }
}

impl Cluster {
    /// A server that answers, and that runs pods.
    pub(crate) async fn connect(flags: ClusterFlags) -> anyhow::Result<Self> {
        let kubeconfig = settings::cluster_kubeconfig(flags.kubeconfig)?;
        let server = server::cluster_from_file(&kubeconfig, flags.context).await?;
        let version = server.client.apiserver_version().await.map_err(|error| explain(error, "its version"))?;
        if version.git_version.contains("+underpass") {
            bail!(
                "{} is an embedded API server of underpass, which runs no pods and has its controllers already: name a cluster with \
                 --kubeconfig or --context",
                server.url
            );
        }
        Ok(Self { client: server.client, url: server.url })
    }

    pub(crate) async fn is_openshift(&self) -> anyhow::Result<bool> {
        Ok(self.groups().await?.contains("security.openshift.io"))
    }

    pub(crate) async fn groups(&self) -> anyhow::Result<BTreeSet<String>> {
        let groups = self.client.list_api_groups().await.map_err(Answer::from);
        let groups = groups.context("cannot ask for its API groups")?.groups.into_iter();
        Ok(groups.map(|group| group.name).collect())
    }

    /// Where the API server listens behind its Service, which is where a NetworkPolicy sees connections to it go.
    pub(crate) async fn api_server_port(&self) -> anyhow::Result<Option<u16>> {
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), "default");
        let of_service = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
        let slices = slices.list(&of_service).await.map_err(Answer::from);
        let slices = slices.context("cannot ask for the API server's port; say it with --api-server-port")?;
        let ports = slices.items.into_iter().filter_map(|slice| slice.ports).flatten();
        Ok(ports.filter_map(|port| port.port).find_map(|port| u16::try_from(port).ok()))
    }

    /// Asks the server what would come of it: whoever may not do all of it, or is in somebody's way, does none of it. Of what goes into a namespace
    /// or gives a role that is not there yet it cannot tell: whether it was asked about all.
    pub(crate) async fn rehearse(&self, all: &[Value], conflicts: Conflicts) -> anyhow::Result<bool> {
        let (namespaced_too, mut asked) = (self.namespace_exists(all).await?, 0);
        for object in all.iter().filter(|object| namespaced_too || object["metadata"]["namespace"].is_null()) {
            if self.can_be_rehearsed(object).await? {
                self.patch(object, &params(conflicts).dry_run()).await?;
                asked += 1;
            }
        }
        Ok(asked == all.len())
    }

    /// Who may not give away just any role is told that one is not found, and not whether it may be given.
    async fn can_be_rehearsed(&self, object: &Value) -> anyhow::Result<bool> {
        let role = &object["roleRef"];
        if role.is_null() {
            return Ok(true);
        }
        let mut given = json!({
            "apiVersion": object["apiVersion"], "kind": role["kind"], "metadata": { "name": role["name"] },
        });
        if given["kind"] == "Role" {
            given["metadata"]["namespace"] = object["metadata"]["namespace"].clone();
        }
        Ok(self.get(&given).await?.is_some())
    }

    async fn namespace_exists(&self, all: &[Value]) -> anyhow::Result<bool> {
        let Some(namespace) = all.iter().find(|object| object["kind"] == "Namespace") else { return Ok(true) };
        Ok(self.get(namespace).await?.is_some())
    }

    pub(crate) async fn apply(&self, object: &Value, conflicts: Conflicts) -> anyhow::Result<Done> {
        let before = self.get(object).await?.and_then(|object| object.resource_version());
        let after = self.patch(object, &params(conflicts)).await?.resource_version();
        Ok(match before {
            None => Done::Created,
            before if before == after => Done::Unchanged,
            _ => Done::Changed,
        })
    }

    async fn patch(&self, object: &Value, params: &PatchParams) -> anyhow::Result<DynamicObject> {
        let (api, name) = (self.api(object), name(object));
        let applied = api.patch(&name, params, &Patch::Apply(object)).await.map_err(Answer::from);
        applied.map_err(|answer| match answer.status() {
            Some(status) if status.is_conflict() => anyhow::anyhow!(
                "{} was changed by somebody else since: {answer}; take it over with --force-conflicts",
                title(object)
            ),
            _ => anyhow::Error::new(answer).context(format!("cannot apply {}", title(object))),
        })
    }

    pub(crate) async fn get(&self, object: &Value) -> anyhow::Result<Option<DynamicObject>> {
        let found = self.api(object).get_opt(&name(object)).await.map_err(Answer::from);
        found.with_context(|| format!("cannot read {}", title(object)))
    }

    /// What an installation of any version has put here, in the order of applying.
    pub(crate) async fn installed(&self) -> anyhow::Result<Vec<Value>> {
        let (label, value) = INSTALLED;
        let groups = self.groups().await?;
        // Who may not do everything may not ask for kinds that there are not, either: those of OpenShift elsewhere, say.
        let served = resources().into_iter().filter(|kind| kind.group.is_empty() || groups.contains(&kind.group));
        self.labelled(served, &format!("{label}={value}")).await
    }

    /// What was built for objects, wherever it stands.
    pub(crate) async fn built(&self) -> anyhow::Result<Vec<Value>> {
        self.labelled(built_kinds(), OWNER_LABEL).await
    }

    async fn labelled(&self, kinds: impl Iterator<Item = ApiResource>, label: &str) -> anyhow::Result<Vec<Value>> {
        let (labelled, mut found) = (ListParams::default().labels(label), Vec::new());
        for resource in kinds {
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            let list = api.list(&labelled).await.map_err(Answer::from);
            let list = list.with_context(|| format!("cannot list {}", resource.plural))?;
            found.extend(list.items.into_iter().map(|object| as_value(&resource, &object)));
        }
        Ok(found)
    }

    /// Definitions of our kinds that no installation has put here: `underpass crds` prints them for everybody.
    pub(crate) async fn loose_definitions(&self) -> anyhow::Result<Vec<Value>> {
        let (label, mut found) = (INSTALLED.0, Vec::new());
        for kind in KINDS {
            let definition = json!({
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": { "name": kind.crd_name() },
            });
            if self.get(&definition).await?.is_some_and(|there| !there.labels().contains_key(label)) {
                found.push(definition);
            }
        }
        Ok(found)
    }

    /// Waits until it is gone, with all that it owns.
    pub(crate) async fn delete(&self, object: &Value) -> anyhow::Result<()> {
        let (api, name) = (self.api(object), name(object));
        let Some(found) = self.get(object).await? else { return Ok(()) };
        match api.delete(&name, &DeleteParams::foreground()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(error) => {
                return Err(anyhow::Error::new(Answer::from(error)).context(format!("cannot delete {}", title(object))));
            }
        }
        let gone = await_condition(api, &name, conditions::is_deleted(&found.uid().unwrap_or_default())).await;
        gone.map(|_| ()).with_context(|| format!("cannot watch {} go", title(object)))
    }

    /// It stays without what we wrote there. The mark goes also when it came with `kubectl apply`: it is ours whoever wrote it.
    pub(crate) async fn disown(&self, object: &Value) -> anyhow::Result<()> {
        let bare =
            json!({ "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": { "name": name(object) } });
        self.patch(&bare, &params(Conflicts::Force)).await?;
        let (label, _) = INSTALLED;
        let patch = json!({ "metadata": { "labels": { label: null } } });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patched = self.api(object).patch(&name(object), &params, &Patch::Merge(&patch)).await;
        patched.map(|_| ()).map_err(Answer::from).with_context(|| format!("cannot change {}", title(object)))
    }

    /// Leases that operators have made, in any namespace: no label tells them, but their name and who held them last.
    pub(crate) async fn leases(&self) -> anyhow::Result<Vec<Value>> {
        let named = ListParams::default().fields(&format!("metadata.name={OPERATOR}"));
        let found = Api::<Lease>::all(self.client.clone()).list(&named).await.map_err(Answer::from);
        let found = found.context("cannot look for the operator's lease")?;
        Ok(found.items.iter().filter(|lease| is_an_operators(lease)).map(lease).collect())
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let resource = resource(object);
        match namespace(object) {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }
}

/// How people call it.
pub(crate) fn title(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default();
    match namespace(object) {
        Some(namespace) => format!("{kind} {namespace}/{}", name(object)),
        None => format!("{kind} {}", name(object)),
    }
}

pub(crate) fn namespace(object: &Value) -> Option<&str> {
    object["metadata"]["namespace"].as_str()
}

/// Given back, or held by a pod of the Deployment.
fn is_an_operators(lease: &Lease) -> bool {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
    holder.is_empty() || holder.starts_with(&format!("{OPERATOR}-"))
}

fn lease(lease: &Lease) -> Value {
    let metadata = json!({ "name": lease.name_any(), "namespace": lease.namespace() });
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata })
}

/// Whether an object of the same kind and name is in the list.
pub(crate) fn among(object: &Value, all: &[Value]) -> bool {
    let metadata = |object: &Value| (object["metadata"]["namespace"].clone(), object["metadata"]["name"].clone());
    all.iter().any(|other| other["kind"] == object["kind"] && metadata(other) == metadata(object))
}

fn params(conflicts: Conflicts) -> PatchParams {
    let params = PatchParams::apply(FIELD_MANAGER).validation_strict();
    if conflicts == Conflicts::Force { params.force() } else { params }
}

pub(crate) fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Each kind that is installed anywhere, once.
fn resources() -> Vec<ApiResource> {
    let all = objects(&Settings { platform: Platform::OpenShift, ..Settings::default() });
    let mut seen = BTreeSet::new();
    all.iter().filter(|object| seen.insert(object["kind"].to_string())).map(resource).collect()
}

/// Of which anything is built for objects of ours: proxies, and the EndpointSlices of tunnels.
fn built_kinds() -> impl Iterator<Item = ApiResource> {
    let of_proxies = proxy_deployment::KINDS.into_iter().chain([proxy_deployment::LEASE]);
    let of_proxies = of_proxies.map(|kind| resource(&json!({ "apiVersion": kind.api_version, "kind": kind.kind })));
    of_proxies.chain([ApiResource::erase::<EndpointSlice>(&())])
}

pub(crate) fn resource(object: &Value) -> ApiResource {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap_or_default());
    // The one kind whose name is a plural already.
    match kind.kind.as_str() {
        "SecurityContextConstraints" => ApiResource::from_gvk_with_plural(&kind, "securitycontextconstraints"),
        _ => ApiResource::from_gvk(&kind),
    }
}

/// Objects in a list do not name their kind.
fn as_value(resource: &ApiResource, object: &DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = Value::from(resource.api_version.clone());
    value["kind"] = Value::from(resource.kind.clone());
    value
}
