//! Things go wrong around underpass: it says what, where and what to do in one sentence, fails, and destroys nothing.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tempfile::TempDir;
use underpass_testbed::{Ended, Launch, PATIENCE, Process, wait_until};

use crate::BINARY;

const NAMES: [&str; 3] = ["one", "three", "two"];

type Damage = fn(&mut Vec<u8>);

/// A data directory that a server has used and left.
struct Used {
    folder: TempDir,
}

impl Used {
    async fn new() -> Used {
        let folder = tempfile::tempdir().unwrap();
        let used = Used { folder };
        let server = used.launch().start();
        for name in NAMES {
            create(&server.client().await, name, name).await.unwrap();
        }
        server.stop().ok();
        used
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn store(&self) -> PathBuf {
        self.path().join("objects.redb")
    }

    fn launch(&self) -> Launch {
        Launch::apiserver(BINARY).data_dir(&self.path())
    }

    /// Starts a server that must fail, and returns what it said.
    #[track_caller]
    fn refused(&self, launch: Launch) -> String {
        sentence(&launch.spawn_server().0.wait())
    }

    /// Starts a server now that the cause is gone: everything must be there.
    async fn is_whole(&self) {
        let server = self.launch().start();
        let maps = Api::<ConfigMap>::namespaced(server.client().await, "default");
        for name in NAMES {
            assert_eq!(maps.get(name).await.unwrap().data.unwrap()["text"], name);
        }
        server.stop().ok();
    }
}

#[tokio::test]
async fn a_damaged_store_is_refused_and_left_as_it_is() {
    let used = Used::new().await;
    let good = fs::read(used.store()).unwrap();
    let damages: [(&str, Damage); 6] = [
        ("bits flipped everywhere", |bytes| bytes.iter_mut().step_by(509).for_each(|byte| *byte ^= 0x10)),
        ("its header overwritten", |bytes| bytes[..512].fill(0xff)),
        ("zeroes in the middle", |bytes| (4096..bytes.len()).for_each(|at| bytes[at] = 0)),
        ("half of it", |bytes| bytes.truncate(bytes.len() / 2)),
        ("the first page only", |bytes| bytes.truncate(4096)),
        ("nothing", Vec::clear),
    ];
    for (what, damage) in damages {
        let mut bytes = good.clone();
        damage(&mut bytes);
        fs::write(used.store(), &bytes).unwrap();
        let before = content(&used.path());
        let said = used.refused(used.launch());
        for part in [&format!("{} is damaged", used.store().display()), "nothing in it was changed", "move it away"] {
            assert!(said.contains(part), "{what}: {said}");
        }
        assert!(content(&used.path()) == before, "{what}: the folder is not as it was");
    }
    fs::write(used.store(), good).unwrap();
    used.is_whole().await;
}

#[tokio::test]
async fn a_port_in_use() {
    let used = Used::new().await;
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let said = used.refused(used.launch().arg("--listen").arg(&address));
    assert!(said.contains(&format!("another program listens on {address}: stop that one, or choose")), "{said}");
    used.is_whole().await;
}

#[tokio::test]
async fn a_data_directory_that_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    for path in [file.clone(), file.join("below")] {
        let said = sentence(&Launch::apiserver(BINARY).data_dir(&path).spawn_server().0.wait());
        assert!(said.contains(&format!("cannot use {} as the data directory", path.display())), "{said}");
        assert!(said.contains("choose another with --data-dir"), "{said}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[tokio::test]
async fn damaged_keys() {
    let used = Used::new().await;
    for name in ["ca.pem", "token"] {
        let path = used.path().join("pki").join(name);
        let good = fs::read(&path).unwrap();
        fs::write(&path, "nonsense").unwrap();
        let said = used.refused(used.launch());
        assert!(
            said.contains(&format!("{} is damaged", path.display())) && said.contains("restore the file"),
            "{said}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "nonsense");
        fs::write(&path, good).unwrap();
    }
    used.is_whole().await;
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_written() {
    let used = Used::new().await;
    let foreign = used.folder.path().join("foreign");
    let text = "clusters: [{name: production}]\nusers: []\ncontexts: []\n";
    fs::write(&foreign, text).unwrap();
    let missing = used.folder.path().join("no/such/folder/kubeconfig");
    let cases = [
        (foreign.as_path(), "exists and describes other clusters: name another path, nothing was changed"),
        (used.folder.path(), "is not a regular file: name another path"),
        (missing.as_path(), "see to its folder, or name another path"),
    ];
    for (path, what) in cases {
        let said = used.refused(used.launch().arg("--kubeconfig").arg(path));
        assert!(said.contains(&format!("kubeconfig {}", path.display())) && said.contains(what), "{said}");
    }
    assert_eq!(fs::read_to_string(&foreign).unwrap(), text);
    used.is_whole().await;
}

/// An address that nobody answers at and nobody else can get, as long as the socket is held: bound, and not listening.
fn taken_port() -> (std::os::fd::OwnedFd, String) {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
    let held = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&held, &std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = std::net::SocketAddr::try_from(getsockname(&held).unwrap()).unwrap();
    (held, format!("https://{address}"))
}

#[tokio::test]
async fn a_kubeconfig_that_leads_nowhere() {
    let (server, other) = (crate::server::embedded_apiserver(), crate::server::embedded_apiserver());
    let good = Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let foreign = Kubeconfig::read_from(other.kubeconfig()).unwrap();
    let authority =
        |it: &Kubeconfig| it.clusters[0].cluster.as_ref().unwrap().certificate_authority_data.clone().unwrap();
    let text = fs::read_to_string(server.kubeconfig()).unwrap();
    let token = fs::read_to_string(other.kubeconfig()).unwrap();
    let token = token.lines().find(|line| line.trim().starts_with("token:")).unwrap();
    let own = text.lines().find(|line| line.trim().starts_with("token:")).unwrap();
    let dead = taken_port();
    let cases = [
        (
            "foreign",
            text.replace(&authority(&good), &authority(&foreign)),
            "use the kubeconfig of the server that runs now",
        ),
        (
            "expired",
            text.replace(own, token),
            "(401): they are expired or made for another server; use the kubeconfig of",
        ),
        (
            "dead",
            text.replace(&server.ready().api, &dead.1),
            "Connection refused (os error 111)): start it, or give the kubeconfig of one that runs",
        ),
        ("broken", "clusters: [".to_owned(), "cannot be used; repair it, or name another with --kubeconfig"),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (name, text, what) in cases {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        for command in ["controllers", "status"] {
            let said = sentence(&Launch::command(BINARY, command).arg("--kubeconfig").arg(&path).run());
            assert!(said.contains(path.to_str().unwrap()) && said.contains(what), "{command} with {name}: {said}");
        }
    }
    let absent = folder.path().join("absent");
    let said = sentence(&Launch::command(BINARY, "controllers").arg("--kubeconfig").arg(&absent).run());
    assert!(said.contains(&format!("no kubeconfig at {}: start `underpass up`", absent.display())), "{said}");
}

#[tokio::test]
async fn a_read_only_data_directory() {
    let used = Used::new().await;
    let before = content(&used.path());
    let data = used.path();
    let script = format!(
        "mount --bind {0} {0} && mount -o remount,bind,ro {0} && exec {BINARY} apiserver --data-dir {0}",
        data.display()
    );
    let Some(process) = in_own_mounts(&script) else { return };
    let said = sentence(&process.wait());
    assert!(said.contains(&format!("cannot use {} as the data directory", data.display())), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
    assert!(content(&data) == before);
    used.is_whole().await;
}

#[tokio::test]
async fn a_disk_that_is_full_from_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().display();
    // The shell's own complaint about the full disk is not ours.
    let script = format!(
        "mount -t tmpfs -o size=1m tmpfs {disk} && {{ cat /dev/zero >{disk}/filler 2>/dev/null || true; }} \
         && exec {BINARY} apiserver --data-dir {disk}/data"
    );
    let Some(process) = in_own_mounts(&script) else { return };
    let said = sentence(&process.wait());
    assert!(said.contains(&format!("{disk}/data")) && said.contains("No space left on device"), "{said}");
}

/// The server ends, since it can promise nothing any more; with space again it has all that it had promised.
#[tokio::test]
async fn a_disk_that_fills_up() {
    let folder = tempfile::tempdir().unwrap();
    let (out, disk) = (folder.path().join("out"), folder.path().join("disk"));
    fs::create_dir(&out).unwrap();
    fs::create_dir(&disk).unwrap();
    let script = format!(
        "out={}; disk={}; mount -t tmpfs -o size=6m tmpfs $disk
         serve='{BINARY} apiserver --log-level warn --data-dir '$disk'/data --kubeconfig '$out/kubeconfig
         $serve >$out/first.stdout 2>$out/first.stderr & trap \"kill $!\" INT
         code=0; wait $! || code=$?
         mount -o remount,size=64m $disk; echo $code >$out/written; mv $out/written $out/code
         exec $serve >$out/second.stdout 2>$out/second.stderr",
        out.display(),
        disk.display()
    );
    let Some(process) = in_own_mounts(&script) else { return };
    let client = ready(&out, "first").await;
    let mut written = Vec::new();
    loop {
        let name = format!("map-{}", written.len());
        // The refusal itself may be lost with the server's end.
        if create(&client, &name, &format!("{name}{}", "x".repeat(100_000))).await.is_err() {
            break;
        }
        written.push(name);
    }
    let code = wait_until("the end of the first server", PATIENCE, || fs::read_to_string(out.join("code")).ok());
    let said = fs::read_to_string(out.join("first.stderr")).unwrap();
    let said = sentence(&Ended { line: script, code: code.trim().parse().ok(), stdout: String::new(), stderr: said });
    assert!(said.contains(&format!("{}/data/objects.redb", disk.display())), "{said}");
    assert!(said.contains("the disk is full") && said.contains("free some space"), "{said}");

    let client = ready(&out, "second").await;
    let maps = Api::<ConfigMap>::namespaced(client, "default").list(&ListParams::default()).await.unwrap();
    let found: BTreeMap<_, _> = maps.items.into_iter().map(|map| (map.metadata.name.unwrap(), map.data)).collect();
    assert!(!written.is_empty());
    for name in written {
        let data = found.get(&name).unwrap_or_else(|| panic!("{name} is lost")).as_ref().unwrap();
        assert!(data["text"].starts_with(&name) && data["text"].len() == name.len() + 100_000);
    }
    drop(process);
}

/// Runs a script that can mount what nobody else sees. Only root may.
fn in_own_mounts(script: &str) -> Option<Process> {
    if !rustix::process::geteuid().is_root() {
        skipped();
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", script]).env_remove("RUST_LOG").env_remove("KUBECONFIG");
    Some(Process::start(&mut command))
}

#[allow(clippy::print_stderr, reason = "a test that did not run must not look like one that did")]
fn skipped() {
    eprintln!("SKIPPED: mounting needs root; run the tests as root to try full and read-only disks");
}

/// The client of a server whose output goes to files.
async fn ready(out: &Path, name: &str) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    wait_until("the server to be ready", PATIENCE, || {
        let said = fs::read_to_string(out.join(format!("{name}.stdout"))).unwrap_or_default();
        said.contains("is ready").then_some(())
    });
    let kubeconfig = Kubeconfig::read_from(out.join("kubeconfig")).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

async fn create(client: &Client, name: &str, text: &str) -> kube::Result<ConfigMap> {
    let mut map = ConfigMap { data: Some([("text".to_owned(), text.to_owned())].into()), ..ConfigMap::default() };
    map.metadata.name = Some(name.to_owned());
    Api::namespaced(client.clone(), "default").create(&PostParams::default(), &map).await
}

/// The one sentence with which a command failed.
#[track_caller]
fn sentence(ended: &Ended) -> String {
    let one = ended.stderr.lines().count() == 1 && ended.stderr.starts_with("underpass: ");
    assert!(one && ended.code == Some(1) && ended.stdout.is_empty(), "not one sentence and a failure: {ended}");
    let said = ended.stderr.trim_end().trim_start_matches("underpass: ").to_owned();
    let (_, end) = said.split_at(said.len() / 2);
    assert!(!said.starts_with(end.trim_start_matches(": ")), "said twice: {said}");
    said
}

/// Every file below a folder. The lock is left out: it names the last process that asked for it.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(content(&path));
        } else if path.file_name() != Some("lock".as_ref()) {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}
