//! Somebody who has the document at hand, works in its namespace, and types what it says.

use serde_json::Value;
use underpass_testbed::{Ended, Lab, LabNamespace, PATIENCE, Shell, wait_until};

use super::super::{IMAGE, ROLLOUT};
use super::PROXY_SERVER;

/// What the document calls the image of the manager.
const THEIR_IMAGE: &str = "quay.io/cldmnky/oooi:latest";
/// Does to the file that it is given what the patch beside it says.
const EDITOR: &str = "#!/bin/sh
set -e
kubectl patch --local --type=json --patch-file patch.json -f \"$1\" -o yaml >edited.yaml
cat edited.yaml >\"$1\"
";

pub(super) struct Reader<'a> {
    pub(super) lab: &'a Lab,
    namespace: LabNamespace,
    shell: Shell,
}

impl<'a> Reader<'a> {
    /// In an empty namespace, on a cluster that has the images that the document names.
    pub(super) fn new(lab: &'a Lab) -> Self {
        lab.envoy_image();
        for node in lab.kubectl().ok("get nodes -o jsonpath={.items[*].metadata.name}").split(' ') {
            lab.on(node, &format!("ctr -n k8s.io images tag --force {IMAGE} {THEIR_IMAGE}")).ok();
        }
        let namespace = lab.namespace_called("hosted-clusters");
        let kubeconfig = namespace.kubeconfig().display().to_string();
        let shell = Shell::new(&[("KUBECONFIG", kubeconfig.as_str()), ("KUBE_EDITOR", "editor")]);
        shell.provide("editor", EDITOR);
        let reader = Self { lab, namespace, shell };
        reader.keeps("hostedcluster_v1alpha1_proxyserver.yaml", PROXY_SERVER);
        reader
    }

    /// Puts a file where the document's samples are.
    pub(super) fn keeps(&self, name: &str, text: &str) {
        let folder = self.shell.folder().join("config/samples");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name), text).unwrap();
    }

    /// What it prints.
    #[track_caller]
    pub(super) fn types(&self, command: &str) -> String {
        self.tries(command).ok()
    }

    #[track_caller]
    pub(super) fn tries(&self, command: &str) -> Ended {
        self.tries_with(command, "")
    }

    /// The same where more is typed into what the command starts.
    #[track_caller]
    pub(super) fn tries_with(&self, command: &str, input: &str) -> Ended {
        let command = match command.contains("<proxy-pod-name>") {
            true => command.replace("<proxy-pod-name>", &self.pod()),
            false => command.to_owned(),
        };
        self.shell.run_with(&command, input)
    }

    /// Types it until all of this is printed, which comes by and by.
    #[track_caller]
    pub(super) fn looks_for(&self, command: &str, parts: &[&str]) -> String {
        wait_until(&format!("{parts:?} from {command}"), PATIENCE, || {
            let text = self.types(command);
            parts.iter().all(|part| text.contains(part)).then_some(text)
        })
    }

    /// Types a command that opens an editor, and does there what the patch says.
    #[track_caller]
    pub(super) fn edits(&self, command: &str, patch: &Value) {
        std::fs::write(self.shell.folder().join("patch.json"), patch.to_string()).unwrap();
        let ended = self.tries(command);
        assert!(ended.code == Some(0) && ended.stdout.contains(" edited"), "{ended}");
    }

    /// What these commands print while port 9901 is forwarded. On a node, whose ports nobody else on this machine can have.
    #[track_caller]
    pub(super) fn forwarding(&self, commands: &[&str]) -> Vec<String> {
        let mut script = format!(
            "{}kubectl port-forward -n hosted-clusters deployment/proxy-server-mycluster-proxy 9901:9901 >forwarding 2>&1 &\n\
             forwarder=$!\n\
             trap 'kill $forwarder' EXIT\n\
             until curl -fs http://localhost:9901/ready >/dev/null; do kill -0 $forwarder; sleep 0.1; done\n",
            self.shell.preamble()
        );
        for (number, command) in commands.iter().enumerate() {
            script.push_str(&format!("{command} >shown.{number}\n"));
        }
        self.lab.on("node-0", &script).ok();
        let shown = |number| std::fs::read_to_string(self.shell.folder().join(format!("shown.{number}"))).unwrap();
        (0..commands.len()).map(shown).collect()
    }

    /// Its only pod that does not end.
    pub(super) fn pod(&self) -> String {
        let pods = self.json("get pods -l app=proxy-server");
        let staying = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
        let names: Vec<&str> = pods["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(staying)
            .filter_map(|pod| pod["metadata"]["name"].as_str())
            .collect();
        assert_eq!(names.len(), 1, "{names:?}");
        names[0].to_owned()
    }

    pub(super) fn json(&self, line: &str) -> Value {
        self.namespace.kubectl.json(line)
    }

    pub(super) fn deployment(&self) -> Value {
        self.json("get deployment proxy-server-mycluster-proxy")
    }

    /// Waits until that many pods of the newest template are ready, and no others are there.
    #[track_caller]
    pub(super) fn sees_pods(&self, count: u32) {
        wait_until(&format!("{count} pods of the newest template"), ROLLOUT, || {
            let deployment = self.deployment();
            let status = &deployment["status"];
            let newest = status["observedGeneration"] == deployment["metadata"]["generation"];
            let all = ["replicas", "updatedReplicas", "readyReplicas"].iter().all(|field| status[*field] == count);
            (newest && all).then_some(())
        });
        let pods = || self.json("get pods -l app=proxy-server")["items"].as_array().unwrap().len();
        wait_until("the others are gone", ROLLOUT, || (pods() == count as usize).then_some(()));
    }
}
