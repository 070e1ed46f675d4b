//! `underpass explain route`: which rule decides about a connection, by the very function that the proxy asks.

use underpass_plan::proxy_server::{Answer, Explanation, Question, Way, explain};
use underpass_tables::Opening;

use crate::args::{ExplainRoute, PlanFormat, ServerName};
use crate::exit::Ended;
use crate::output;
use crate::proxy::Source;

pub(crate) fn run(args: &ExplainRoute) -> anyhow::Result<Ended> {
    let (_, table) = Source::open(&args.file)?;
    let opening = match &args.sni {
        _ if args.udp => Opening::Datagram,
        _ if args.plain => Opening::Plain,
        Some(ServerName::Host(name)) => Opening::Named(name),
        // Clients that dial an address send no name, and one that sends an address as its name means none.
        Some(ServerName::Address) | None => Opening::Unnamed,
    };
    let explanation = explain(&table, &Question { port: args.port, source: args.source, opening });
    let answer = match args.output {
        PlanFormat::Json => output::json(&explanation)?,
        PlanFormat::Yaml => output::yaml(&explanation)?,
        PlanFormat::Text => text(args.port, &explanation),
    };
    output::print(&answer)?;
    for reject in &table.rejects {
        output::tell(&format!("refused: {reject}"));
    }
    Ok(Ended::Well)
}

fn text(port: u16, explanation: &Explanation) -> String {
    if explanation.listeners.is_empty() {
        return format!("nothing listens on port {port}\n");
    }
    explanation.listeners.iter().map(answer_text).collect()
}

fn answer_text(answer: &Answer) -> String {
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
