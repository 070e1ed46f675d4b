//! A container on a network that uses tunnels as their users do: it has a shell, and nothing of ours.

use std::time::Duration;

use tokio::runtime::Runtime;
use underpass_engines::{Container, ContainerEngine, ContainerRequest, ContainerState, NetworkChoice};
use underpass_testbed::{PATIENCE, TestEngine, wait_until};

/// Some have a lot to carry.
const PATIENT: Duration = Duration::from_secs(300);

/// Before what a script says, so that nothing said can be told from nothing heard.
const SAID: &str = "said: ";

pub(super) struct Guest<'a> {
    pub(super) runtime: &'a Runtime,
    pub(super) engine: &'a TestEngine,
    /// The engine's id of the network that it stands on.
    pub(super) network: String,
}

impl Guest<'_> {
    /// Sends a word to a port of a host, known by name, and gives what comes back until the other side ends.
    #[track_caller]
    pub(super) fn echo(&self, host: &str, port: &serde_json::Value, word: &str) -> String {
        self.run(&format!("{}\nprintf {word} | /busybox nc $ip {port}", resolve(host)))
    }

    /// Runs a script to its end, and gives what it printed.
    #[track_caller]
    pub(super) fn run(&self, script: &str) -> String {
        let (container, printed) = self.try_run(script);
        assert_eq!(container.exit_code, Some(0), "{script}\n{printed}");
        let said = printed.split_once(SAID).unwrap_or_else(|| panic!("its words are lost: {printed:?}")).1;
        said.trim_end().to_owned()
    }

    pub(super) fn try_run(&self, script: &str) -> (Container, String) {
        let id = self.runtime.block_on(self.start(script));
        let engine = &self.engine.engine;
        let ended = wait_until("the end of a guest", PATIENT, || {
            let found = self.runtime.block_on(engine.find_container(&id)).unwrap().unwrap();
            (found.state == ContainerState::Ended).then_some(found)
        });
        // Podman's log is written a moment after the container's end is told.
        let printed = wait_until("what a guest has said", PATIENCE, || {
            let printed = self.runtime.block_on(engine.container_logs(&id, 1000)).unwrap();
            (ended.exit_code != Some(0) || printed.contains(SAID)).then_some(printed)
        });
        self.runtime.block_on(engine.remove_container(&id)).unwrap();
        (ended, printed)
    }

    /// A container that stands on the network under these names and does nothing, until it is removed. Gives its id.
    pub(super) fn bystander(&self, name: &str, aliases: &[&str]) -> String {
        let aliases = aliases.iter().map(ToString::to_string).collect();
        self.runtime.block_on(self.start_as(name, aliases, "exec /busybox sleep 600".to_owned()))
    }

    /// A container that connects to a port of a host, says nothing and stays, until it is removed. Gives its id.
    pub(super) fn hold(&self, host: &str, port: &serde_json::Value) -> String {
        let script = format!("{}\n/busybox sleep 600 | /busybox nc $ip {port}", resolve(host));
        self.runtime.block_on(self.start_as(&self.engine.name("holds"), Vec::new(), script))
    }

    async fn start(&self, script: &str) -> String {
        // In one piece: Podman loses lines that come in several.
        let script = format!("set -e\nsaid=$({script})\necho \"{SAID}$said\"");
        self.start_as(&self.engine.name("guest"), Vec::new(), script).await
    }

    async fn start_as(&self, name: &str, aliases: Vec<String>, script: String) -> String {
        let request = ContainerRequest {
            name: name.to_owned(),
            image: self.engine.busybox().await,
            entrypoint: ["/busybox", "sh", "-c"].map(str::to_owned).to_vec(),
            command: vec![script],
            network: Some(NetworkChoice { id: self.network.clone(), aliases }),
            ..ContainerRequest::default()
        };
        let id = self.engine.engine.create_container(&request).await.unwrap();
        self.engine.engine.start_container(&id).await.unwrap();
        id
    }
}

/// Debian's static busybox cannot resolve names by itself, but its nslookup can; the first address is the name server's. Podman's name
/// server learns of a new container a moment after the container runs, and asks the world for what it does not know: only it is asked,
/// and not for long.
pub(super) fn resolve(host: &str) -> String {
    let addresses = "/busybox sed -n 's/^Address[^:]*: *//p' | /busybox sed -n '2s/ .*//;2p'";
    format!(
        "names=$(/busybox sed -n '/^nameserver /{{s///;p;q}}' /etc/resolv.conf)
         for try in $(/busybox seq 50); do
             ip=$(/busybox nslookup -timeout=2 -retry=1 {host} $names 2>/dev/null | {addresses})
             [ -z \"$ip\" ] || break; /busybox sleep 0.1
         done
         [ -n \"$ip\" ] || {{ echo '{host} has no address' >&2; exit 9; }}"
    )
}
