use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use underpass_testbed::{Ended, Process};

/// A lab that starts beside everything else that runs on this machine, twice.
const A_START_AND_AN_END: Duration = Duration::from_secs(240);

/// Everything that a lab makes outside of its own namespaces, and what kubelet would change for the whole machine. `/run` is covered
/// because other tests' engines keep their namespaces there. A look that cannot look ends the test. What is missing counts as what is new
/// does, but of mounts: those of other tests were copied into this machine, and go when those tests end.
const SURROUNDINGS: &str = r#"
set -o pipefail
shopt -s inherit_errexit
mount -t tmpfs run /run
ip link set lo up
LAB=$UNDERPASS_LAB; . lab/layout
look() {
  ip -o link; ip -4 route show table all; nft list ruleset; ip netns
  ps -e -o comm= | sed -E '/^(ps|sed|sort|bash)$/d'
  pgrep -fa '^bash [^ ]*lab/' || [ $? = 1 ]
  sysctl -e vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys net.ipv4.ip_forward net.bridge
  find /sys/fs/cgroup -maxdepth 2 -name "$CGROUP"
  find "$UNDERPASS_LAB" -not -path '*/logs*' -not -path "$UNDERPASS_LAB"
  ls -A "$TMPDIR"
}
mounts() { cut -d' ' -f3- /proc/self/mountinfo; }
before=$(look | sort)
mounts_before=$(mounts | sort)
compare() {
  local after mounts_after
  after=$(look | sort)
  mounts_after=$(mounts | sort)
  echo left:
  comm -13 <(echo "$mounts_before") <(echo "$mounts_after")
  diff <(echo "$before") <(echo "$after") || [ $? = 1 ]
}
"#;

/// One at a time: a user has 128 inotify instances on most machines, and a node takes twenty.
static ONE_LAB: Mutex<()> = Mutex::new(());

/// Runs `script` where it is alone with its links, mounts and processes, as on a machine of its own.
fn alone(script: &str) -> Ended {
    let _turn = ONE_LAB.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let (lab, scratch) = (folder.path().join("lab"), folder.path().join("tmp"));
    std::fs::create_dir_all(&lab).unwrap();
    std::fs::create_dir_all(&scratch).unwrap();
    let mut command = if rustix::process::geteuid().is_root() { Command::new("env") } else { Command::new("sudo") };
    command.arg(format!("UNDERPASS_LAB={}", lab.display())).arg(format!("TMPDIR={}", scratch.display()));
    command.args("unshare --net --mount --pid --fork --mount-proc --kill-child --propagation private".split(' '));
    command.args(["bash", "-euc", &format!("{SURROUNDINGS}\n{script}")]);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    Process::start(&mut command).wait_within(A_START_AND_AN_END)
}

/// What `script` does, between two looks of which the second sees what the first has seen.
#[track_caller]
fn leaves_nothing(script: &str) -> String {
    let said = alone(&format!("{script}\ncompare")).ok();
    let (said, left) = said.rsplit_once("left:\n").unwrap();
    assert_eq!(left, "", "{said}");
    said.to_owned()
}

#[test]
fn a_lab_that_was_used_leaves_nothing() {
    let said = leaves_nothing(
        r#"
        scripts/lab up --nodes 2
        export KUBECONFIG=$UNDERPASS_LAB/kubeconfig
        kubectl=$(scripts/kubectl)
        until "$kubectl" get serviceaccount default >/dev/null 2>&1; do sleep 0.1; done
        "$kubectl" create deployment used --image "$BUSYBOX" --replicas 3
        "$kubectl" rollout status deployment/used --timeout 60s
        scripts/lab vm add guest 192.168.100.50/24
        scripts/lab vm add guest 192.168.100.51/24 2>&1 && exit 1
        scripts/lab vm run guest ip -o address show eth0
        scripts/lab up
        scripts/lab up --nodes 1 && exit 1
        scripts/lab down
        scripts/lab down
        "#,
    );
    assert!(said.contains("runs already") && said.contains("192.168.100.50/24"), "{said}");
    assert!(said.contains("there is a VM 'guest' already"), "{said}");
}

/// Where another lab has the first range of addresses.
#[test]
fn a_node_that_was_killed_leaves_nothing() {
    leaves_nothing(
        r#"
        ip route add blackhole "$(pods 0)"
        scripts/lab up
        ip -4 -o address show | grep -F 172.30.97.1/24
        ip route delete blackhole "$(pods 0)"
        kill -KILL "$(pgrep -P "$(cat "$UNDERPASS_LAB/node-0.pid")")"
        scripts/lab down
        "#,
    );
}

/// It has written how many nodes there are to be, and made none.
#[test]
fn a_start_that_was_killed_is_begun_anew() {
    let said = leaves_nothing(
        r#"
        echo 2 >"$UNDERPASS_LAB/nodes"
        scripts/lab on node-0 true 2>&1 && exit 1
        folder=$(basename "$UNDERPASS_LAB")
        (cd "$UNDERPASS_LAB/.."; UNDERPASS_LAB=$folder "$OLDPWD/scripts/lab" up --nodes 1)
        scripts/lab down
        "#,
    );
    assert!(said.contains("'make lab-up' first") && said.contains("up after"), "{said}");
}

#[test]
fn a_start_that_is_interrupted_leaves_nothing() {
    leaves_nothing(
        r#"
        set -m
        scripts/lab up &
        until pgrep -x kube-apiserver >/dev/null; do kill -0 $!; sleep 0.05; done
        kill -INT -- -$!
        code=0; wait $! || code=$?
        set +m
        [ "$code" = 130 ]
        "#,
    );
}

#[test]
fn a_component_that_ends_is_shown_and_nothing_is_left() {
    let said = leaves_nothing(
        r#"
        scripts/lab up 2>&1 &
        until pgrep -x kube-apiserver >/dev/null; do kill -0 $!; sleep 0.05; done
        kill -KILL "$(pgrep -x etcd)"
        wait $! && exit 1
        "#,
    );
    assert!(said.contains("etcd ended by itself"), "{said}");
    assert!(said.contains("node-0-etcd.log"), "{said}");
}

/// Of what is seen here every part is missed when it cannot be seen, and when it is gone.
#[test]
fn a_look_is_never_blind() {
    for part in ["ip", "nft", "ps", "pgrep", "sysctl", "find"] {
        let failed = alone(&format!("{part}() {{ echo {part} is broken >&2; return 2; }}\ncompare")).failed();
        assert!(failed.contains(&format!("{part} is broken")), "{failed}");
    }
    let said = alone("ip link set lo down\ncompare").ok();
    assert!(said.contains("< 1: lo: ") && said.contains("> 1: lo: "), "{said}");
}

#[test]
fn a_machine_that_is_too_small_is_told_before_anything_starts() {
    let with = |file: &str, text: &str, nodes: u32| {
        let script = format!(
            "{text} >$TMPDIR/fake; mount --bind $TMPDIR/fake {file}; scripts/lab up --nodes {nodes} 2>&1 && exit 1; pgrep -x etcd && exit 1; true"
        );
        alone(&script).ok()
    };
    let said = with("/proc/meminfo", "sed 's/^MemAvailable:.*/MemAvailable: 500000 kB/' /proc/meminfo", 2);
    assert!(said.contains("2 node(s) need ") && said.contains(" MB of memory, and 488 MB are free"), "{said}");
    let said = with("/proc/sys/fs/inotify/max_user_instances", "echo 30", 8);
    assert!(said.contains("8 node(s) need ") && said.contains("sysctl -w fs.inotify.max_user_instances="), "{said}");
}

#[test]
fn a_machine_with_too_many_labs_is_told_and_no_lab_loses_its_addresses() {
    let said = leaves_nothing(
        r#"
        for ((slot = 0; slot < SLOTS; slot++)); do ip route add blackhole "$(links "$slot")"; done
        scripts/lab up 2>&1 && exit 1
        for ((slot = 0; slot < SLOTS; slot++)); do ip route delete blackhole "$(links "$slot")"; done
        "#,
    );
    assert!(said.contains("all 10 address ranges of labs are in use on this machine"), "{said}");
    assert!(!said.contains("has namespaces"), "a node was made: {said}");
}

#[test]
fn without_a_lab_the_answer_is_what_to_do() {
    let said = alone("scripts/lab on node-0 true").failed();
    assert_eq!(said, "underpass: the lab does not run: 'make lab-up' first\n");
    let said = alone("scripts/lab up --nodes many").failed();
    assert_eq!(said, "underpass: --nodes is a number from 1 to 8, not 'many'\n");
}
