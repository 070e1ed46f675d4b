//! What the README, the Makefile and CI promise is one and the same, and true.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, kill_process_group};
use underpass_engines::labels::INSTANCE;
use underpass_engines::{ContainerEngine, EngineKind};
use underpass_testbed::{Kubectl, Launch, PATIENCE, Process, Signal, TestEngine, wait_until, write_program};

use crate::{BINARY, process_where, root};

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The `sh` blocks of a text, as lines.
fn shell_blocks(text: &str) -> Vec<Vec<&str>> {
    let blocks = text.split("```sh\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap_or_default().lines().collect()).collect()
}

#[test]
fn the_readmes_first_commands_are_the_two_that_do_everything() {
    let readme = read("README.md");
    let blocks = shell_blocks(&readme);
    assert_eq!(blocks[..2], [vec!["make demo"], vec!["make test"]]);
}

#[test]
fn ci_runs_what_the_readme_says() {
    let script = read(".ci/run");
    let commands: Vec<&str> = script.lines().filter(|line| line.contains("make")).collect();
    assert_eq!(commands, ["exec make test"]);
}

#[test]
fn make_lists_every_target_with_a_sentence() {
    let help = Process::start(Command::new("make").arg("--no-print-directory").current_dir(root())).wait().ok();
    let checks = ["demo", "test", "lint", "image", "conformance", "fuzz"];
    let lab = ["lab-up", "lab-down", "lab-load", "test-lab"];
    let benchmarks =
        ["bench-apiserver", "bench-operator", "bench-relay", "bench-fidelity", "bench-tunnel", "bench-xds"];
    for target in checks.iter().chain(&lab).chain(&benchmarks) {
        let line = help.lines().find(|line| line.trim_start().starts_with(&format!("make {target} ")));
        let line = line.unwrap_or_else(|| panic!("make {target} is missing in:\n{help}"));
        assert!(line.split_whitespace().count() > 4, "{line}");
    }
}

/// Runs `scripts/setup` on a machine that has nothing but what every Debian has, and the given programs.
fn setup_with(programs: &[(&str, &str)]) -> String {
    let tools = tempfile::tempdir().unwrap();
    for tool in ["bash", "cut", "dirname", "head", "mkdir", "sed", "sort"] {
        let found =
            ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(tool)).into_iter().find(|path| path.exists());
        std::os::unix::fs::symlink(found.unwrap(), tools.path().join(tool)).unwrap();
    }
    for (name, script) in programs {
        let path = tools.path().join(name);
        write_program(&path, &[format!("#!{}/bash\n{script}\n", tools.path().display()).as_bytes()]);
    }
    let mut setup = Command::new(tools.path().join("bash"));
    setup.arg(root().join("scripts/setup")).env("PATH", tools.path()).env("UNDERPASS_CACHE", tools.path());
    let ended = Process::start(&mut setup).wait();
    let said: Vec<&str> = ended.stderr.lines().filter(|line| !line.starts_with("installing ")).collect();
    assert_eq!((ended.code, said.len()), (Some(1), 1), "{ended}");
    said[0].to_owned()
}

#[test]
fn a_missing_tool_chain_is_one_sentence_that_says_how_to_get_it() {
    let whole = "echo cargo 1.99.0 \"(abc 2030-01-01)\"";
    let no_clippy = format!("[ $1 != clippy ] || exit 1; {whole}");
    for (programs, words) in [
        (vec![], "the Rust tool chain is missing: install it with rustup, version 1."),
        (vec![("cargo", "echo cargo 1.63.0")], "too old or not complete (cargo 1.63.0): run 'rustup default stable'"),
        (vec![("cargo", "echo no default >&2; exit 1")], "too old or not complete"),
        (vec![("cargo", no_clippy.as_str())], "cargo clippy is missing: run 'rustup component add rustfmt clippy'"),
        (vec![("cargo", whole)], "Python 3 is missing: install it with 'apt-get install python3 python3-venv'"),
    ] {
        let said = setup_with(&programs);
        assert!(said.contains(words), "{words:?} is not said in: {said}");
    }
}

#[test]
fn what_tests_need_is_installed_where_it_is_missing() {
    let said = setup_with(&[
        ("cargo", "echo cargo 1.99.0"),
        ("python3", "exit 0"),
        ("id", "echo 0"),
        ("env", "shift; \"$@\""),
        ("apt-get", "[ $1 = update ] || { echo \"$@\" >&2; exit 1; }"),
    ]);
    let packages = said.strip_prefix("install -y -qq --no-install-recommends ").unwrap_or_default();
    let packages: Vec<&str> = packages.split_whitespace().collect();
    for package in ["gcc", "libc6-dev", "curl", "openssl", "podman", "docker.io"] {
        assert!(packages.contains(&package), "{package} is not among {packages:?}");
    }
}

#[test]
fn a_cache_folder_that_cannot_be_made_is_one_sentence() {
    let mut setup = Command::new(root().join("scripts/setup"));
    setup.env("UNDERPASS_CACHE", "/dev/null/cache");
    let said = Process::start(&mut setup).wait().failed();
    assert_eq!(
        said,
        "underpass: cannot make the folder /dev/null/cache: set UNDERPASS_CACHE to one that you may write to\n"
    );
}

#[test]
fn the_demo_ends_well_and_says_so() {
    let mut demo = Command::new(root().join("scripts/demo"));
    let shown = Process::start(demo.env("UNDERPASS", BINARY)).wait().ok();
    assert!(shown.contains("should be less than or equal to 65535"), "{shown}");
    let lines: Vec<&str> = shown.lines().collect();
    let [.., used, proven] = lines[..] else { panic!("{shown}") };
    let (address, port, carried) = summary(used).unwrap_or_else(|| panic!("{used}"));
    assert!(!address.is_loopback() && port > 0 && carried > 0, "{used}");
    for line in [format!("host.internal is {address}"), "Hello from 127.0.0.1 of the host".to_owned()] {
        assert!(lines.contains(&line.as_str()), "{line:?} is not in {shown}");
    }
    assert!(
        lines.iter().any(|line| line.strip_prefix("16777216 bytes: ").is_some_and(|sum| sum.len() == 64)),
        "{shown}"
    );
    let took = proven.strip_prefix("from kubectl apply to a proven tunnel ").and_then(|rest| rest.split_once(" ms. "));
    let (took, rest) = took.unwrap_or_else(|| panic!("{proven}"));
    assert!(took.parse::<u64>().unwrap() > 0 && rest.ends_with("nothing is left behind."), "{proven}");
}

/// What stood before the server, where it listens, and in how many milliseconds its bytes came.
fn summary(line: &str) -> Option<(IpAddr, u16, u64)> {
    let (address, rest) = line.strip_prefix("It works. host.internal:8080 (")?.split_once(") led to 127.0.0.1:")?;
    let (port, rest) = rest.split_once(": 16 MiB, checksum right, ")?;
    let carried = rest.strip_suffix(" ms with the start of the container;")?;
    Some((address.parse().ok()?, port.parse().ok()?, carried.parse().ok()?))
}

/// Ctrl-C at one moment of the demo: the terminal tells its whole process group.
#[track_caller]
fn interrupt_the_demo_at(moment: &str) {
    let (engine, folder) = (TestEngine::shared(EngineKind::Podman), tempfile::tempdir().unwrap());
    let (variable, address) = engine.variable();
    // A shell cannot hear a signal that whoever started it ignores, as for what runs in the background.
    let mut demo = Command::new("env");
    demo.arg("--default-signal=INT").arg(root().join("scripts/demo"));
    demo.env("UNDERPASS", BINARY).env("TMPDIR", folder.path()).env(variable, address).process_group(0);
    let mut demo = Process::start(&mut demo);
    demo.wait_for_stdout(moment, |text| text.contains(moment).then_some(()));
    let (pid, instance) = (demo.pid(), instance_in(folder.path()));
    kill_process_group(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::INT).unwrap();
    let ended = demo.wait();
    assert_eq!(ended.code, Some(130), "{ended}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a folder is left: {ended}");
    wait_until("the end of all its processes", PATIENCE, || process_below(folder.path()).is_none().then_some(()));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let image = runtime.block_on(engine.engine.find_image(&format!("localhost/underpass-demo-{pid}"))).unwrap();
    assert_eq!(image, None, "{ended}");
    let containers = runtime.block_on(engine.engine.list_containers(&[])).unwrap();
    let names: Vec<&str> = containers.iter().map(|container| container.name.as_str()).collect();
    assert!(!names.contains(&format!("underpass-demo-{pid}").as_str()), "{names:?}");
    let Some(instance) = instance else { return };
    let ours = [(INSTANCE, instance.as_str())];
    assert_eq!(runtime.block_on(engine.engine.list_containers(&ours)).unwrap(), [], "{ended}");
    assert_eq!(runtime.block_on(engine.engine.list_networks(&ours)).unwrap(), [], "{ended}");
}

/// What the things of the server in the demo's folder are labelled with, once it serves.
fn instance_in(folder: &Path) -> Option<String> {
    let work = std::fs::read_dir(folder).ok()?.flatten().find(|entry| entry.path().join("kubeconfig").exists())?;
    let uid =
        Kubectl::new(&work.path().join("kubeconfig")).run("get namespace kube-system -o jsonpath={.metadata.uid}");
    (uid.code == Some(0)).then_some(uid.stdout)
}

/// A process that was given this folder for its temporary files.
fn process_below(folder: &Path) -> Option<i32> {
    let variable = format!("TMPDIR={}\0", folder.display());
    process_where(|file| file("environ").contains(&variable) && !file("status").contains("State:\tZ"))
}

#[test]
fn an_interrupted_demo_leaves_nothing_when_it_has_just_begun() {
    interrupt_the_demo_at("Start: API server and controllers in one process");
}

#[test]
fn an_interrupted_demo_leaves_nothing_while_the_tunnel_is_built() {
    interrupt_the_demo_at("containernetworktunnelproxy.underpass.dev/web-to-host created");
}

#[test]
fn an_interrupted_demo_leaves_nothing_while_the_container_runs() {
    interrupt_the_demo_at("A container on that network asks host.internal:8080");
}

/// Runs the section "Use it" as it stands, in a home of its own.
#[test]
fn the_readmes_commands_work() {
    let readme = read("README.md");
    let section = readme.split("## Use it").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let lines: Vec<&str> = shell_blocks(section).concat();
    let home = tempfile::tempdir().unwrap();
    let (up, rest): (Vec<&str>, Vec<&str>) = lines.into_iter().partition(|line| line.starts_with("underpass up"));
    let [up] = up[..] else { panic!("one command starts it: {up:?}") };
    let server = start(up, home.path());
    let kubeconfig = home.path().join(".local/state/underpass/kubeconfig");
    wait_until("the kubeconfig", PATIENCE, || kubeconfig.exists().then_some(()));
    let mut run = 0;
    for line in rest {
        if let Some(folder) = line.strip_prefix("export PATH=$PWD/target/") {
            assert_eq!(folder, "$(rustc --print host-tuple)/debug:$PATH", "where `cargo build` of `make demo` puts it");
            assert!(read("Makefile").contains("\t$(CARGO) build --locked\n\t./scripts/demo\n"));
        } else if let Some(path) = line.strip_prefix("export KUBECONFIG=~/") {
            assert_eq!(home.path().join(path), kubeconfig);
        } else if let Some(rest) = line.strip_prefix("docker run --rm --network \"$(kubectl ") {
            let (words, rest) = rest.split_once(")\" ").unwrap();
            assert_is_a_network(&Kubectl::new(&kubeconfig).ok(words));
            assert!(rest.ends_with(" http://host.internal:8080/"), "{rest}");
            run += 1;
        } else if let Some(words) = line.strip_prefix("kubectl ") {
            Kubectl::new(&kubeconfig).ok(&words.replace("examples/", &format!("{}/examples/", root().display())));
            run += 1;
        } else if line.ends_with(" --watch") {
            let mut process = start(line, home.path());
            process.wait_for_stdout("the table", |text| text.contains("ContainerNetwork").then_some(()));
            process.signal(Signal::INT);
            process.wait().ok();
            run += 1;
        } else {
            assert!(line.starts_with("underpass "), "what is this: {line}");
            start(line, home.path()).wait().ok();
            run += 1;
        }
    }
    assert!(run >= 12, "only {run} commands");
    assert_eq!(server.wait().code, Some(0), "the last command ends it");
}

/// The README's is run; the others say the same.
#[test]
fn the_way_onto_a_tunnels_network_is_said_wherever_one_is_declared() {
    for document in ["README.md", "docs/tunnels.md", "examples/tunnel.yaml"] {
        let text = read(document);
        assert!(text.contains("$(kubectl get ctrnet web -o jsonpath='{.status.networkName}')"), "{document}");
    }
    let text = read("docs/tunnels.md");
    let declared = text.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let plan = Launch::command(BINARY, "plan").arg("-f").arg("-").run_with(declared).ok();
    assert!(plan.contains("web"), "{plan}");
}

/// What `docker run --network` and `podman run --network` take.
#[track_caller]
fn assert_is_a_network(name: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let found = runtime.block_on(TestEngine::shared(EngineKind::Podman).engine.find_network(name)).unwrap();
    assert!(found.is_some(), "the engine knows no network {name:?}");
}

fn start(line: &str, home: &Path) -> Process {
    let mut command = Command::new(BINARY);
    command.args(line.split_whitespace().skip(1)).current_dir(root()).env("HOME", home);
    command.env_remove("XDG_STATE_HOME").env_remove("KUBECONFIG").env_remove("RUST_LOG");
    let engine = TestEngine::shared(EngineKind::Podman);
    let (variable, address) = engine.variable();
    command.env(variable, address);
    Process::start(&mut command)
}

#[test]
fn documents_name_only_files_that_exist() {
    let mut missing = BTreeSet::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in links(&text) {
            if !document.parent().unwrap().join(link).exists() {
                missing.insert(format!("{}: {link}", document.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// A defect of the predecessor that no test of ours shows is one that comes back.
#[test]
fn every_defect_in_the_table_of_tunnels_is_shown_by_tests_that_exist() {
    let document = read("docs/tunnels.md");
    let table = document.split("| shown by |").nth(1).unwrap();
    let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 16);
    let sources = files(&root().join("crates"), "rs");
    let sources: Vec<String> = sources.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    for row in rows {
        let shown_by: Vec<&str> = row.rsplit('|').nth(1).unwrap().split('`').skip(1).step_by(2).collect();
        assert!(!shown_by.is_empty(), "{row}");
        for name in shown_by {
            let plan = root().join("crates/underpass-plan/tests/plans").join(name);
            let is_test = sources.iter().any(|source| source.contains(&format!("fn {name}(")));
            assert!(is_test || plan.exists(), "there is no test {name}: {row}");
        }
    }
}

/// Those below a folder whose names end so.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let here = files.into_iter().filter(|path| path.extension().is_some_and(|found| found == extension));
    here.chain(folders.iter().flat_map(|folder| self::files(folder, extension))).collect()
}

/// The Markdown files at the top and below `docs/`.
fn documents() -> Vec<PathBuf> {
    let top = std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = top.filter(|path| path.extension().is_some_and(|found| found == "md")).collect();
    found.extend(files(&root().join("docs"), "md"));
    assert!(found.len() > 4, "{found:?}");
    found
}

/// The targets of Markdown links that are paths.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .map(|target| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains("://"))
}
