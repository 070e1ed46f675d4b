//! Where controllers do their work on this machine: a container engine, a private folder, and the name that their things carry.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use underpass_engines::labels::Maker;
use underpass_engines::{ContainerEngine, EngineKind, Home, LocalEngine};
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
        Ok(Arc::new(self.local_engine()?))
    }

    /// What was made in one engine cannot be found in another: who would use another changes nothing.
    pub(crate) async fn refuse_another_engine(&self) -> anyhow::Result<()> {
        Ok(self.local_engine()?.check_home().await?)
    }

    pub(crate) fn home(&self) -> Home {
        Home::in_folder(&self.folder)
    }

    /// Nothing stands anywhere any more.
    pub(crate) fn clear(&self) -> anyhow::Result<()> {
        self.home().forget().context("cannot forget the container engine that was used")?;
        // One that is not empty tells of something.
        let _ = std::fs::remove_dir(self.tunnels());
        Ok(())
    }

    pub(crate) fn tunnels(&self) -> PathBuf {
        self.folder.join("tunnels")
    }

    fn local_engine(&self) -> anyhow::Result<LocalEngine> {
        let maker = Maker::this_process(&self.instance).context("cannot read from /proc when this process began")?;
        Ok(LocalEngine::from_environment(self.engine, maker, self.home()))
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
