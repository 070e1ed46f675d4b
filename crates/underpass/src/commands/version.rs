//! `underpass version`.

use serde_json::json;

use crate::args::TextOrJson;
use crate::exit::Ended;
use crate::output;

pub(crate) fn run(format: TextOrJson) -> anyhow::Result<Ended> {
    let version = env!("CARGO_PKG_VERSION");
    let text = match format {
        TextOrJson::Text => format!("underpass {version}\n"),
        TextOrJson::Json => output::json(&json!({
            "version": version,
            "os": std::env::consts::OS,
            "architecture": std::env::consts::ARCH,
        }))?,
    };
    output::print(&text)?;
    Ok(Ended::Well)
}
