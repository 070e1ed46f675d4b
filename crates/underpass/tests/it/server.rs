//! The API server that a test about Kubernetes' API gets: the embedded one or, when `UNDERPASS_TEST_SERVER` is `kube-apiserver`, a real one.
//!
//! One test, two servers: that is how we know that the embedded one answers as Kubernetes does. An expectation that holds for the embedded
//! one only is named in `Own`, with the reason.

use std::path::{Path, PathBuf};

use kube::Client;
use tempfile::TempDir;
use underpass_testbed::{ControlPlane, Kubectl, Launch, Process, Underpass};

use crate::{BINARY, root};

pub(crate) enum Server {
    Embedded(Underpass),
    Kubernetes {
        /// First, so that they end before their server; the folder is theirs.
        _controllers: Option<(Process, TempDir)>,
        plane: ControlPlane,
    },
}

/// What is expected of the embedded server only.
pub(crate) enum Own {
    /// kube-apiserver answers at `/apis` and `/apis/GROUP` whatever the method is: its aggregator serves these paths.
    MethodsAtApis,
    /// Of a patch that cannot be applied kube-apiserver does not say which operation failed, or which field is at fault.
    WhyAPatchFailed,
    /// No address is given to a Service here: nothing would answer there.
    NoServiceAddress,
    /// kube-apiserver serves more groups than we have a use for, and has another version.
    GroupsAndVersion,
    /// kube-apiserver writes its metrics in the older text format.
    OpenMetrics,
    /// An Event that is written through the other one of its two groups loses all owners of its fields in Kubernetes.
    EventsKeepOwners,
    /// An object that owns itself waits for itself in Kubernetes, for ever.
    SelfOwnersEnd,
    /// kube-apiserver takes DeleteOptions that it cannot read for a mistake of its own: 500.
    UnreadableDeleteOptions,
}

impl Own {
    /// Whether the server at hand is to be held to it.
    pub(crate) fn holds(self) -> bool {
        is_embedded()
    }
}

impl Server {
    /// `underpass up`, or `underpass controllers` beside a kube-apiserver.
    pub(crate) fn with_controllers() -> Self {
        if is_embedded() {
            return Self::Embedded(embedded_up());
        }
        let plane = kubernetes();
        let controllers = Launch::command(BINARY, "controllers").arg("--kubeconfig").arg(plane.kubeconfig()).spawn();
        Self::Kubernetes { _controllers: Some(controllers), plane }
    }

    /// `underpass apiserver`, or a kube-apiserver.
    pub(crate) fn alone() -> Self {
        if is_embedded() {
            return Self::Embedded(embedded_apiserver());
        }
        Self::Kubernetes { _controllers: None, plane: kubernetes() }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        match self {
            Self::Embedded(server) => server.kubeconfig().to_owned(),
            Self::Kubernetes { plane, .. } => plane.kubeconfig(),
        }
    }

    /// Its address, as in its kubeconfig.
    pub(crate) fn api(&self) -> &str {
        match self {
            Self::Embedded(server) => &server.ready().api,
            Self::Kubernetes { plane, .. } => plane.api(),
        }
    }

    pub(crate) fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.kubeconfig())
    }

    /// A client with all rights.
    pub(crate) async fn client(&self) -> Client {
        match self {
            Self::Embedded(server) => server.client().await,
            Self::Kubernetes { plane, .. } => plane.client().await,
        }
    }
}

/// `underpass up` that keeps nothing.
pub(crate) fn embedded_up() -> Underpass {
    Underpass::start(BINARY)
}

/// `underpass apiserver` that keeps nothing.
pub(crate) fn embedded_apiserver() -> Underpass {
    Launch::apiserver(BINARY).start()
}

/// Whether tests get the embedded server.
fn is_embedded() -> bool {
    match std::env::var("UNDERPASS_TEST_SERVER").as_deref() {
        Err(_) | Ok("embedded") => true,
        Ok("kube-apiserver") => false,
        Ok(other) => panic!("UNDERPASS_TEST_SERVER is 'embedded' or 'kube-apiserver', not '{other}'"),
    }
}

/// A kube-apiserver that serves our kinds.
pub(crate) fn kubernetes() -> ControlPlane {
    ControlPlane::start(&root().join("deploy/crds"), Path::new(env!("CARGO_TARGET_TMPDIR")))
}
