//! Where controllers do their work on this machine: a container engine, a private folder, and the name that their things carry.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use underpass_engines::labels::Maker;
use underpass_engines::{ContainerEngine, EngineKind, LocalEngine};
use underpass_operator::watchdog::WatchdogCommand;

#[derive(Debug, Clone)]
pub(crate) struct Workplace {
    pub(crate) folder: PathBuf,
    /// The label on everything that is made: the API server's own identity, because the owners are its objects.
    pub(crate) instance: String,
    /// The engine that was asked for, if one was.
    pub(crate) engine: Option<EngineKind>,
    /// Which API server to tell of an end by force; `None` where it ends with this process.
    pub(crate) kubeconfig: Option<PathBuf>,
}

impl Workplace {
    pub(crate) fn engine(&self) -> anyhow::Result<Arc<dyn ContainerEngine>> {
        let maker = Maker::this_process(&self.instance).context("cannot read from /proc when this process began")?;
        Ok(Arc::new(LocalEngine::from_environment(self.engine, maker)))
    }

    /// The same engine is found again by the same environment. Of the API server it is told where to read how to get there, and no more:
    /// everybody can see these words.
    pub(crate) fn watchdog(&self) -> WatchdogCommand {
        let folder = self.folder.display().to_string();
        let mut arguments = vec!["--instance".to_owned(), self.instance.clone(), "--folder".to_owned(), folder];
        if let Some(engine) = self.engine {
            arguments.extend(["--container-runtime".to_owned(), engine.to_string().to_lowercase()]);
        }
        if let Some(kubeconfig) = &self.kubeconfig {
            arguments.extend(["--kubeconfig".to_owned(), kubeconfig.display().to_string()]);
        }
        WatchdogCommand { arguments }
    }
}
