//! Starting the two halves: a container from the image, and a process of this program.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{Timestamp, Unit};
use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use underpass_engines::{ContainerRequest, File, NetworkChoice, Port, labels};
use underpass_plan::tunnel_proxy::{CONTROL_PORT, DATA_PORT, StartedClient};
use underpass_plan::{ClientRequest, ServerRequest, Subject};
use underpass_tunnel::PairSecrets;

use super::folder::{Folder, Record, ServerRecord};
use super::process::start_of;
use super::{MARK, PairError, Pairs};
use crate::reconcile::Key;

/// Where the client proxy finds its secrets, in its container.
const SECRETS_FOLDER: &str = "/etc/underpass";
const SECRETS_FILE: &str = "pair.json";

/// How long a server proxy may take until it says that it is ready.
const READY_DEADLINE: Duration = Duration::from_secs(10);
/// A file gives no signal when it is written to, and a pipe would end with this process.
const LOOK_FOR_LINE: Duration = Duration::from_millis(5);

/// The line that a server proxy prints when it is ready.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadyLine {
    control_port: u16,
}

impl Pairs {
    /// Makes new secrets, and a container that has its part of them before it starts.
    pub async fn start_client(&self, subject: &Subject, request: &ClientRequest) -> Result<(), PairError> {
        self.check_ground(request).await?;
        let folder = self.folder(&subject.uid)?;
        let unusable = |error| PairError::Folder(self.root.clone(), error);
        let secrets = PairSecrets::generate().map_err(|error| PairError::Server(error.to_string()))?;
        folder.make().and_then(|()| folder.write_secrets(&secrets)).map_err(unusable)?;
        let contents = serde_json::to_vec(&secrets.client).map_err(|error| unusable(error.into()))?;
        let file = File { name: SECRETS_FILE.to_owned(), mode: 0o400, contents };
        let container_id = self.run_container(&container(subject, request), file).await.map_err(PairError::Client)?;
        let client = StartedClient { container_id, network_id: request.network_id.clone() };
        folder.write_record(&Record { client: Some(client), server: None }).map_err(unusable)?;
        self.note_alive(&subject.uid);
        Ok(())
    }

    /// What was true when it was told may be so no more; that is no failure of the pair.
    async fn check_ground(&self, request: &ClientRequest) -> Result<(), PairError> {
        let image = self.engine.find_image(&request.image).await.map_err(PairError::Client)?;
        if image.is_none() {
            return Err(PairError::ImageGone(request.image.clone()));
        }
        let network = self.engine.find_network(&request.network_name).await.map_err(PairError::Client)?;
        if network.is_none_or(|network| network.id != request.network_id) {
            return Err(PairError::NetworkGone(request.network_name.clone()));
        }
        Ok(())
    }

    async fn run_container(
        &self,
        request: &ContainerRequest,
        secrets: File,
    ) -> Result<String, underpass_engines::EngineError> {
        let id = self.engine.create_container(request).await?;
        self.engine.put_files(&id, SECRETS_FOLDER, &[secrets]).await?;
        self.engine.start_container(&id).await?;
        Ok(id)
    }

    /// Starts the process and returns when it is ready. It outlives this process: the next one adopts it.
    pub async fn start_server(self: &Arc<Self>, subject: &Subject, request: &ServerRequest) -> Result<(), PairError> {
        let folder = self.folder(&subject.uid)?;
        let cannot = |error: io::Error| PairError::Server(error.to_string());
        self.stop_unrecorded(&subject.uid).await.map_err(cannot)?;
        let mut child = self.spawn_server(&subject.uid, &folder, request).await.map_err(cannot)?;
        let server = match ready(&mut child, &folder).await {
            Ok(server) => server,
            Err(why) => {
                // It may have ended by itself.
                let _ = child.kill().await;
                return Err(PairError::Server(why));
            }
        };
        let record = Record { server: Some(server.clone()), ..folder.record() };
        folder.write_record(&record).map_err(|error| PairError::Folder(self.root.clone(), error))?;
        let mut memories = self.memories.lock();
        memories.entry(subject.uid.clone()).or_default().watched = Some(server.pid);
        drop(memories);
        let key = Key { namespace: subject.namespace.clone(), name: subject.name.clone() };
        tokio::spawn(Arc::clone(self).reap(child, subject.uid.clone(), server.pid, key));
        Ok(())
    }

    /// A process that an earlier one started and was killed before it could write it down.
    async fn stop_unrecorded(&self, uid: &str) -> io::Result<()> {
        for (server, _) in Self::living(&self.instance).into_iter().filter(|(_, owner)| owner == uid) {
            server.stop().await?;
        }
        Ok(())
    }

    async fn spawn_server(&self, uid: &str, folder: &Folder, request: &ServerRequest) -> io::Result<Child> {
        let secrets = serde_json::to_vec(&folder.secrets()?.server)?;
        let mut command = Command::new(&self.program);
        command.arg0("underpass").arg("tunnel-server").env(MARK, format!("{}/{uid}", self.instance));
        for place in &request.control {
            command.arg("--control").arg(place.to_string());
        }
        for place in &request.data {
            command.arg("--data").arg(place.to_string());
        }
        let (out, err) = (folder.create(&folder.stdout())?, folder.create(&folder.stderr())?);
        // A group of its own: a Ctrl-C at the terminal is for the controllers, who end their pairs in order.
        command.stdin(Stdio::piped()).stdout(out).stderr(err).process_group(0);
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take().ok_or_else(|| io::Error::other("it has no standard input"))?;
        stdin.write_all(&secrets).await?;
        stdin.shutdown().await?;
        Ok(child)
    }

    async fn reap(self: Arc<Self>, mut child: Child, uid: String, pid: u32, key: Key) {
        let how = match child.wait().await {
            Ok(status) => described(status),
            Err(error) => format!("ended ({error})"),
        };
        if let Some(memory) = self.memories.lock().get_mut(&uid) {
            memory.ended = Some((pid, how));
        }
        // Nobody listens at the end of the process.
        let _ = self.wake.unbounded_send(key);
    }
}

/// Waits for the line that says that it is ready.
async fn ready(child: &mut Child, folder: &Folder) -> Result<ServerRecord, String> {
    let pid = child.id().ok_or("it ended at once")?;
    let start = start_of(pid);
    let deadline = tokio::time::Instant::now() + READY_DEADLINE;
    let control_port = loop {
        let text = std::fs::read_to_string(folder.stdout()).unwrap_or_default();
        if let Some((line, _)) = text.split_once('\n') {
            let line: ReadyLine = serde_json::from_str(line).map_err(|_| "it said something else than it should")?;
            break line.control_port;
        }
        if tokio::time::Instant::now() > deadline {
            return Err(format!("it was not ready after {} seconds", READY_DEADLINE.as_secs()));
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_FOR_LINE) => {}
            ended = child.wait() => {
                let how = ended.map_or_else(|error| error.to_string(), described);
                return Err(folder.last_words().map_or(how.clone(), |words| format!("it {how}: {words}")));
            }
        }
    };
    let start = start.ok_or("it ended at once")?;
    // The API keeps microseconds; what it gives back has to be equal.
    let started_at = Timestamp::now().round(Unit::Microsecond).map_err(|error| error.to_string())?;
    Ok(ServerRecord { pid, start, control_port, started_at })
}

fn container(subject: &Subject, request: &ClientRequest) -> ContainerRequest {
    let labels: BTreeMap<String, String> =
        labels::labels(&[(labels::KIND, &subject.kind), (labels::OBJECT, &subject.name), (labels::UID, &subject.uid)]);
    ContainerRequest {
        name: request.name.clone(),
        image: request.image.clone(),
        command: vec!["tunnel-client".to_owned()],
        network: Some(NetworkChoice { id: request.network_id.clone(), aliases: request.aliases.clone() }),
        published: vec![Port::tcp(CONTROL_PORT), Port::tcp(DATA_PORT)],
        labels,
        private_folder: Some(SECRETS_FOLDER.to_owned()),
        ..ContainerRequest::default()
    }
}

fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
