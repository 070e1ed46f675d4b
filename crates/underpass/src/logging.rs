//! Log lines on stderr. Nothing that is logged carries a secret: see the fields at each place, never whole objects or requests.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};
use underpass_tables::LogLevel;

use crate::args::{LogFormat, Logging};
use crate::output;

/// Set when nobody has said on the command line how much to log.
static CHANGEABLE: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

pub(crate) fn start(logging: &Logging, usual: LogFormat) {
    let filter = logging.log_level.as_ref().map_or_else(|| usual_filter(LogLevel::default()), EnvFilter::new);
    let (filter, handle) = reload::Layer::new(filter);
    if logging.log_level.is_none() {
        // A second start does not happen: `init` below would panic.
        let _ = CHANGEABLE.set(handle);
    }
    // A log that cannot be written (the terminal is gone) would be told to the same place, and that must not end the work.
    let lines = fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    let lines = match logging.log_format.unwrap_or(usual) {
        LogFormat::Json => lines.json().boxed(),
        LogFormat::Human => {
            lines.with_ansi(output::colours(std::io::stderr().is_terminal())).with_target(false).boxed()
        }
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
}

/// Logs as much as a declared object wants, unless the command line says how much: whoever looks for something must be able to.
pub(crate) fn follow(level: LogLevel) {
    if let Some(filter) = CHANGEABLE.get() {
        // Fails only without a subscriber, and then nobody reads the log.
        let _ = filter.reload(usual_filter(level));
    }
}

/// kube's client logs every failure that it also returns: whoever asked tells it, once.
fn usual_filter(level: LogLevel) -> EnvFilter {
    EnvFilter::new(format!("{},kube_client=off", level.as_str()))
}
