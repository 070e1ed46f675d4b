//! Whether anybody works on the objects: their Ready conditions are as old as the last controllers.

use std::path::Path;

use kube::Client;
use underpass_deploy::OPERATOR;
use underpass_operator::leadership;

use crate::commands::controllers::{LEASE, LEASE_NAMESPACE};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Controllers {
    Run,
    Missing,
    /// The lease may not be read, or is not to be had.
    Unknown,
}

impl Controllers {
    pub(super) async fn look(client: &Client) -> Self {
        let here = leadership::holder(client, LEASE_NAMESPACE, LEASE).await;
        if matches!(here, Ok(Some(_))) {
            return Self::Run;
        }
        // An operator may be installed in any namespace.
        match (here, leadership::holder_anywhere(client, OPERATOR).await) {
            (_, Ok(Some(_))) => Self::Run,
            (Ok(_), Ok(None)) => Self::Missing,
            _ => Self::Unknown,
        }
    }

    /// Reason and message for an object that has no condition.
    pub(super) fn say_of_unseen(self) -> (&'static str, &'static str) {
        match self {
            Self::Missing => {
                ("NoControllers", "no controllers run on this API server; `underpass controllers` starts them")
            }
            Self::Run => ("NotLookedAtYet", "the controllers have not looked at it yet"),
            Self::Unknown => {
                ("NotLookedAtYet", "no controllers have looked at it yet; `underpass controllers` starts them")
            }
        }
    }

    /// What to tell beside a table whose conditions nobody keeps true.
    pub(super) fn warning(self, kubeconfig: &Path) -> Option<String> {
        let command = format!("underpass controllers --kubeconfig {}", kubeconfig.display());
        (self == Self::Missing).then(|| {
            format!(
                "no controllers run on this API server: what is shown is as old as the last ones; `{command}` starts them, and on a cluster \
                 `underpass install` does, or whoever scales the operator's Deployment up again"
            )
        })
    }
}
