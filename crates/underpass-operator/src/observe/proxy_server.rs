//! A ProxyServer, and everything that stands for it on the cluster.

use std::collections::BTreeSet;

use async_trait::async_trait;
use futures::channel::mpsc::UnboundedSender;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use underpass_plan::proxy_deployment::{
    self, Attachment, NETWORK_ATTACHMENT, Observed, Site, asked_addresses, places, role, target_namespaces,
};
use underpass_plan::{Failure, OWNER_LABEL, Plan};
use underpass_resources::ProxyServer;

use super::addresses::{Addresses, Place};
use crate::objects;
use crate::reconcile::{Key, ObserveError, Reconcile};

const KIND: &str = "ProxyServer";

pub struct ProxyServers {
    client: Client,
    site: Site,
    addresses: Addresses,
}

impl ProxyServers {
    /// `wake` gets the keys of objects that another object concerns.
    pub fn new(client: Client, site: Site, wake: UnboundedSender<Key>) -> Self {
        Self { client, site, addresses: Addresses::new(wake) }
    }

    async fn found(&self, object: &ProxyServer) -> kube::Result<Vec<Value>> {
        let role = objects::read(&self.client, &role(object)).await?;
        let places = places(object, role.as_ref());
        let found = try_join_all(places.iter().map(|place| objects::read(&self.client, place))).await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Of the namespaces that it leads to, those in which something can be made.
    async fn namespaces(&self, object: &ProxyServer) -> kube::Result<BTreeSet<String>> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let names = target_namespaces(object);
        let found = try_join_all(names.iter().map(|name| api.get_metadata_opt(name))).await?;
        let usable = found.into_iter().flatten().filter(|found| found.metadata.deletion_timestamp.is_none());
        Ok(usable.filter_map(|found| found.metadata.name).collect())
    }

    async fn pods(&self, namespace: &str, uid: &str) -> kube::Result<Vec<Pod>> {
        let params = ListParams::default().labels(&format!("{OWNER_LABEL}={uid}"));
        Ok(Api::namespaced(self.client.clone(), namespace).list(&params).await?.items)
    }

    async fn attachment(&self, object: &ProxyServer, namespace: &str) -> kube::Result<Attachment> {
        let Some(wanted) = object.spec.network_config.attachment.resolve(namespace) else {
            return Ok(Attachment::NotWanted);
        };
        let definitions = objects::api(&self.client, NETWORK_ATTACHMENT, Some(&wanted.namespace));
        match definitions.get(&wanted.name).await {
            Ok(found) => Ok(Attachment::Found { config: found.data["spec"]["config"].as_str().map(str::to_owned) }),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                // Of an object that is missing the answer has the name.
                let named = status.details.as_ref().is_some_and(|details| details.name == wanted.name);
                Ok(if named { Attachment::Missing } else { Attachment::NoMultus })
            }
            Err(error) => Err(error),
        }
    }
}

/// The addresses that its Deployment and its pods ask for.
fn held(object: &ProxyServer, found: &[Value], pods: &[Pod]) -> BTreeSet<Place> {
    let uid = object.metadata.uid.as_deref();
    let is_ours = |found: &&Value| uid.is_some() && found["metadata"]["labels"][OWNER_LABEL].as_str() == uid;
    let deployments = found.iter().filter(is_ours).flat_map(asked_addresses);
    deployments.chain(pods.iter().flat_map(|pod| asked_addresses(&json!(pod)))).collect()
}

#[async_trait]
impl Reconcile for ProxyServers {
    type Observed = Observed;

    fn kind(&self) -> &'static str {
        KIND
    }

    async fn observe(&self, key: &Key, failure: Option<&Failure>) -> Result<Option<Observed>, ObserveError> {
        let unreadable =
            |source: kube::Error| ObserveError::Object { kind: KIND, key: key.clone(), source: source.into() };
        let namespace = key.namespace.as_deref().unwrap_or("default");
        let objects: Api<ProxyServer> = Api::namespaced(self.client.clone(), namespace);
        self.addresses.fill(&self.client).await.map_err(unreadable)?;
        let Some(object) = objects.get_opt(&key.name).await.map_err(unreadable)? else {
            self.addresses.forget(key);
            return Ok(None);
        };
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let (found, namespaces, pods, attachment) = tokio::try_join!(
            self.found(&object),
            self.namespaces(&object),
            self.pods(namespace, &uid),
            self.attachment(&object, namespace),
        )
        .map_err(unreadable)?;
        let address_owner = self.addresses.claim(key, &object, &held(&object, &found, &pods));
        let address_owner = address_owner.map(|owner| owner.to_string());
        Ok(Some(Observed {
            object,
            found,
            namespaces,
            pods,
            attachment,
            address_owner,
            site: self.site.clone(),
            failure: failure.cloned(),
            now: Timestamp::now(),
        }))
    }

    fn plan(observed: &Observed) -> Plan {
        proxy_deployment::plan(observed)
    }
}
