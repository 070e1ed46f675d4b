//! `underpass explain route`: which rule decides about a connection, by the very function that the proxy asks.

use anyhow::bail;
use underpass_plan::proxy_server::{Answer, Question, Way, explain};
use underpass_protocols::NormalName;
use underpass_tables::{Opening, RelayTable};

use crate::args::{ExplainRoute, PlanFormat};
use crate::exit::Ended;
use crate::output;
use crate::proxy::Source;

pub(crate) fn run(args: &ExplainRoute) -> anyhow::Result<Ended> {
    let Some(table) = Source::new(&args.file)?.load()? else { bail!("{} is empty", args.file.display()) };
    let name = args.sni.as_deref().map(normal).transpose()?;
    let opening = match &name {
        _ if args.udp => Opening::Datagram,
        _ if args.plain => Opening::Plain,
        Some(Some(name)) => Opening::Named(name),
        // Clients that dial an address send no name, and one that sends an address as its name means none.
        Some(None) | None => Opening::Unnamed,
    };
    let explanation = explain(&table, &Question { port: args.port, source: args.source, opening });
    if explanation.listeners.is_empty() {
        bail!("nothing listens on port {}{}", args.port, rejects(&table));
    }
    let text = match args.output {
        PlanFormat::Json => output::json(&explanation)?,
        PlanFormat::Yaml => output::yaml(&explanation)?,
        PlanFormat::Text => explanation.listeners.iter().map(text).collect(),
    };
    output::print(&text)?;
    for reject in &table.rejects {
        output::tell(&format!("refused: {}: {}", reject.entry, reject.reason));
    }
    Ok(Ended::Well)
}

/// In the form in which names are compared; None for an address, which is no name.
fn normal(sni: &str) -> anyhow::Result<Option<NormalName>> {
    if sni.parse::<std::net::IpAddr>().is_ok() {
        return Ok(None);
    }
    match NormalName::new(sni) {
        Some(name) => Ok(Some(name)),
        None => bail!("{sni} is not a host name: a client that sends it is refused for an invalid hello"),
    }
}

fn text(answer: &Answer) -> String {
    let mut text = format!("{} ({})\n", answer.listener, answer.address);
    for step in &answer.steps {
        text.push_str(&format!("  rule       {}: {}\n", step.rule, step.finding));
    }
    match &answer.way {
        Way::Connect { because, route, target, endpoints, trouble, .. } => {
            text.push_str(&format!("  decides    {because}\n  backend    {route}\n  service    {target}\n"));
            text.extend(endpoints.iter().map(|endpoint| format!("  endpoint   {endpoint}\n")));
            if let Some(trouble) = trouble {
                text.push_str(&format!("  trouble    {trouble}; connections are refused until there is an endpoint\n"));
            }
        }
        Way::Refuse { refusal, because } => text.push_str(&format!("  refused    {refusal}: {because}\n")),
    }
    text
}

fn rejects(table: &RelayTable) -> String {
    table.rejects.iter().map(|reject| format!("\n  refused: {}: {}", reject.entry, reject.reason)).collect()
}
