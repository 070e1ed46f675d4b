//! Containers.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use bollard::body_full;
use bollard::container::LogOutput;
use bollard::models::{ContainerCreateBody, EndpointSettings, HostConfig, NetworkingConfig, PortBinding, PortMap};
use bollard::query_parameters::{
    CreateContainerOptions, LogsOptions, RemoveContainerOptions, StartContainerOptions, UploadToContainerOptions,
};
use futures::TryStreamExt;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{ACT, ASK, Connection, gone_is_fine, if_found, label_filter};
use crate::container::{Attachment, Container, ContainerRequest, ContainerState, File, Limits, Published};
use crate::engine::EngineError;

/// Nobody: what a process gets that needs no rights.
const USER: u64 = 65534;

/// How often a container that is on its way out is looked at.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
}

/// As much of a container's description as matters here.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    id: String,
    name: String,
    image: String,
    #[serde(default)]
    created: Option<Timestamp>,
    state: State,
    config: Config,
    #[serde(default)]
    network_settings: NetworkSettings,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct State {
    status: String,
    /// 0 when there is none.
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    exit_code: i64,
    #[serde(default)]
    error: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
struct NetworkSettings {
    ports: Option<PortMap>,
    networks: Option<HashMap<String, EndpointSettings>>,
}

impl Connection {
    pub(crate) async fn create_container(&self, request: &ContainerRequest) -> Result<String, EngineError> {
        if request.private_folder.is_some() {
            self.create_volume(request).await?;
        }
        let options = CreateContainerOptions { name: Some(request.name.clone()), ..CreateContainerOptions::default() };
        let created = self.docker.create_container(Some(options), self.body(request));
        match self.within(ACT, created).await {
            Ok(created) => Ok(created.id),
            Err(error @ EngineError::NameTaken(_)) => self.same_container(request).await?.ok_or(error),
            Err(EngineError::NotFound(why)) if why.to_lowercase().contains("image") => {
                Err(EngineError::NoImage { reference: request.image.clone(), why })
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn put_files(&self, id: &str, folder: &str, files: &[File]) -> Result<(), EngineError> {
        let archive = archive(files).map_err(|error| EngineError::Refused(format!("cannot pack files: {error}")))?;
        let options = UploadToContainerOptions { path: folder.to_owned(), ..UploadToContainerOptions::default() };
        self.within(ACT, self.docker.upload_to_container(id, Some(options), body_full(archive.into()))).await
    }

    pub(crate) async fn start_container(&self, id: &str) -> Result<(), EngineError> {
        self.within(ACT, self.docker.start_container(id, None::<StartContainerOptions>)).await
    }

    pub(crate) async fn find_container(&self, id: &str) -> Result<Option<Container>, EngineError> {
        let last = Instant::now() + ASK;
        let found = loop {
            let answer = if_found(self.get(&format!("/containers/{}/json", encoded(id))).await);
            if !answer.as_ref().is_err_and(has_ended_meanwhile) || Instant::now() > last {
                break answer?.map(describe);
            }
            sleep(LOOK).await;
        };
        // An engine takes the beginning of an id for the id.
        Ok(found.filter(|container| container.id == id || container.name == id))
    }

    pub(crate) async fn list_containers(&self, labels: &[(&str, &str)]) -> Result<Vec<Container>, EngineError> {
        self.containers_where(json!(label_filter(labels))).await
    }

    pub(crate) async fn list_containers_on(
        &self,
        network: &str,
        label: Option<&str>,
    ) -> Result<Vec<Container>, EngineError> {
        let labels: Vec<&str> = label.into_iter().collect();
        self.containers_where(json!({ "network": [network], "label": labels })).await
    }

    async fn containers_where(&self, filters: serde_json::Value) -> Result<Vec<Container>, EngineError> {
        let filters = encoded(&filters.to_string());
        let listed: Vec<Listed> = self.get(&format!("/containers/json?all=true&filters={filters}")).await?;
        let mut containers = Vec::new();
        for Listed { id } in listed {
            containers.extend(self.find_container(&id).await?);
        }
        Ok(containers)
    }

    pub(crate) async fn remove_container(&self, id: &str) -> Result<(), EngineError> {
        let Some(Container { name, .. }) = self.find_container(id).await? else { return Ok(()) };
        self.remove_container_alone(id).await?;
        self.remove_volume(&name).await
    }

    /// The engine's answer is not enough: another removal may be under way, and then it answers before the end.
    async fn remove_container_alone(&self, id: &str) -> Result<(), EngineError> {
        let options = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
        let last = Instant::now() + ACT;
        loop {
            let removed = gone_is_fine(self.within(ACT, self.docker.remove_container(id, Some(options.clone()))).await);
            if self.find_container(id).await?.is_none() {
                return Ok(());
            }
            if Instant::now() > last || matches!(removed, Err(EngineError::Unavailable(_))) {
                return Err(removed
                    .err()
                    .unwrap_or_else(|| EngineError::Refused(format!("the container {id} does not go away"))));
            }
            sleep(LOOK).await;
        }
    }

    pub(crate) async fn container_logs(&self, id: &str, lines: usize) -> Result<String, EngineError> {
        let options = LogsOptions { stdout: true, stderr: true, tail: lines.to_string(), ..LogsOptions::default() };
        let pieces = self.docker.logs(id, Some(options)).map_ok(LogOutput::into_bytes);
        let text = self.within(ASK, pieces.try_collect::<Vec<_>>()).await?.concat();
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The id of the container that has the name, if it is the one that was asked for.
    async fn same_container(&self, request: &ContainerRequest) -> Result<Option<String>, EngineError> {
        let there = self.find_container(&request.name).await?;
        let same = |there: &Container| request.labels.iter().all(|(name, value)| there.labels.get(name) == Some(value));
        Ok(there.filter(|there| !request.labels.is_empty() && same(there)).map(|there| there.id))
    }

    fn body(&self, request: &ContainerRequest) -> ContainerCreateBody {
        let list = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
        let labels = self.maker.labels().into_iter().chain(request.labels.clone()).collect();
        let environment: Vec<String> =
            request.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let networks = request.network.iter().map(|network| {
            let settings = EndpointSettings { aliases: list(&network.aliases), ..EndpointSettings::default() };
            (network.id.clone(), settings)
        });
        ContainerCreateBody {
            image: Some(request.image.clone()),
            entrypoint: list(&request.entrypoint),
            cmd: list(&request.command),
            env: list(&environment),
            user: Some(format!("{USER}:{USER}")),
            labels: Some(labels),
            exposed_ports: Some(request.published.iter().map(ToString::to_string).collect()),
            networking_config: Some(NetworkingConfig { endpoints_config: Some(networks.collect()) }),
            host_config: Some(host_config(request)),
            ..ContainerCreateBody::default()
        }
    }
}

/// Podman describes a container that it takes for running by looking at its first process, and refuses when that has ended by then.
fn has_ended_meanwhile(error: &EngineError) -> bool {
    matches!(error, EngineError::Refused(why) if why.contains("no such process"))
}

fn host_config(request: &ContainerRequest) -> HostConfig {
    let Limits { memory_bytes, processes } = request.limits;
    HostConfig {
        network_mode: request.network.as_ref().map(|network| network.id.clone()),
        port_bindings: Some(port_bindings(request)),
        binds: request.private_folder.as_ref().map(|folder| vec![format!("{}:{folder}", request.name)]),
        // Ports below 1024 are nothing special in a network namespace of its own; Docker does this unasked.
        sysctls: Some(HashMap::from([("net.ipv4.ip_unprivileged_port_start".to_owned(), "0".to_owned())])),
        readonly_rootfs: Some(true),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        memory: memory_bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
        pids_limit: processes.map(i64::from),
        ..HostConfig::default()
    }
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// No host port means any that is free, on both engines; 0 does not.
fn port_bindings(request: &ContainerRequest) -> PortMap {
    let anywhere = PortBinding { host_ip: Some("127.0.0.1".to_owned()), host_port: Some(String::new()) };
    request.published.iter().map(|port| (port.to_string(), Some(vec![anywhere.clone()]))).collect()
}

fn archive(files: &[File]) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for file in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(file.contents.len() as u64);
        header.set_mode(file.mode);
        header.set_uid(USER);
        header.set_gid(USER);
        archive.append_data(&mut header, &file.name, file.contents.as_slice())?;
    }
    archive.into_inner()
}

fn describe(container: Inspected) -> Container {
    let Inspected { state, config, network_settings, .. } = container;
    let condition = condition(&state.status);
    Container {
        id: container.id,
        name: container.name.trim_start_matches('/').to_owned(),
        state: condition,
        created: container.created,
        pid: Some(state.pid).filter(|pid| *pid > 0),
        exit_code: (condition == ContainerState::Ended).then_some(state.exit_code),
        error: Some(state.error).filter(|error| !error.is_empty()),
        image_id: container.image,
        labels: config.labels.unwrap_or_default(),
        published: published(&network_settings.ports.unwrap_or_default()),
        networks: attachments(network_settings.networks.unwrap_or_default()),
    }
}

/// Docker's words and Podman's. A word that nobody knows is a state that will not stay.
fn condition(status: &str) -> ContainerState {
    match status {
        "created" | "configured" | "initialized" => ContainerState::Created,
        "running" => ContainerState::Running,
        "paused" => ContainerState::Paused,
        "exited" | "stopped" | "dead" => ContainerState::Ended,
        "removing" => ContainerState::Removing,
        _ => ContainerState::Changing,
    }
}

fn published(ports: &PortMap) -> Vec<Published> {
    let each = ports.iter().flat_map(|(port, bindings)| bindings.iter().flatten().map(move |binding| (port, binding)));
    let mut list: Vec<Published> = each.filter_map(|(port, binding)| read_binding(port, binding)).collect();
    list.sort();
    list
}

fn read_binding(port: &str, binding: &PortBinding) -> Option<Published> {
    let address = binding.host_ip.as_deref()?.parse().ok()?;
    let number = binding.host_port.as_deref()?.parse().ok()?;
    Some(Published { port: port.parse().ok()?, host: SocketAddr::new(address, number) })
}

fn attachments(networks: HashMap<String, EndpointSettings>) -> BTreeMap<String, Attachment> {
    let attachment = |settings: EndpointSettings| Attachment {
        addresses: [settings.ip_address, settings.global_ipv6_address]
            .into_iter()
            .filter_map(|address| address?.parse().ok())
            .collect(),
        aliases: settings.aliases.unwrap_or_default(),
    };
    networks.into_iter().map(|(name, settings)| (name, attachment(settings))).collect()
}
