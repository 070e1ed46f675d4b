//! Where a proxy learns what to do, again and again.

use anyhow::Context;
use std::path::Path;
use tracing::warn;
use underpass_tables::RelayTable;

use super::source::Source;
use super::watch::Watch;

/// What a feed says.
pub(crate) enum News {
    /// This is wanted from now on.
    Table(RelayTable),
    /// What was said last is wanted again.
    Same,
    /// Something that cannot be, and why. What was said before holds.
    Refused(String),
}

/// A file, watched.
pub(crate) struct Feed {
    source: Source,
    watch: Option<Watch>,
}

impl Feed {
    pub(crate) fn open(path: &Path) -> anyhow::Result<(Self, RelayTable)> {
        let watch = Watch::new(path).with_context(|| format!("cannot watch {}", path.display()))?;
        let (source, table) = Source::open(path)?;
        Ok((Self { source, watch: Some(watch) }, table))
    }

    /// For messages.
    pub(crate) fn name(&self) -> String {
        self.source.name()
    }

    /// Waits until there is something to say. Nothing is lost when this is dropped before.
    pub(crate) async fn next(&mut self) -> News {
        if let Some(watch) = &mut self.watch {
            match watch.changed().await {
                Ok(()) => return self.read(),
                // Connections are worth more than changes.
                Err(error) => {
                    self.watch = None;
                    let name = self.name();
                    warn!(%error, "{name} cannot be watched any more: changes take effect with a restart");
                }
            }
        }
        std::future::pending().await
    }

    fn read(&mut self) -> News {
        match self.source.reload() {
            Ok(None) => News::Same,
            Ok(Some(table)) => News::Table(table),
            Err(error) => News::Refused(format!("{:#}", anyhow::Error::new(error))),
        }
    }
}
