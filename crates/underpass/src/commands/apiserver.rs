//! `underpass apiserver`: the API server alone. Its objects stay: without controllers nobody could take away what stands behind them.

use crate::embedded::Embedded;
use crate::exit::Ended;
use crate::output;
use crate::settings::ServerSettings;
use crate::signals::Signals;

pub(crate) async fn run(settings: ServerSettings) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen()?;
    let mut server = Embedded::start(&settings).await?;
    output::print(&server.announcement(settings.output))?;
    tokio::select! {
        () = signals.next() => {}
        error = server.failed() => return Err(error),
    }
    tokio::select! {
        stopped = server.stop() => stopped.map(|()| Ended::Well),
        () = signals.next() => Ok(Ended::Forced),
    }
}
