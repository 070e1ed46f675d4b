//! Log lines on stderr. Nothing that is logged carries a secret: see the fields at each place, never whole objects or requests.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::args::{LogFormat, Logging};
use crate::output;

pub(crate) fn start(logging: &Logging) {
    let filter = EnvFilter::new(&logging.log_level);
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match logging.log_format {
        LogFormat::Json => lines.json().init(),
        LogFormat::Human => lines.with_ansi(output::colours(std::io::stderr().is_terminal())).with_target(false).init(),
    }
}
