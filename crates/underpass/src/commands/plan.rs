//! `underpass plan`: what the controllers would do for objects in files, and why. No server is asked, nothing is touched.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::Value;
use underpass_plan::{Plan, preview};

use crate::args::PlanFormat;
use crate::check::{Checker, Verdict};
use crate::exit::Ended;
use crate::manifests;
use crate::output;

pub(crate) fn run(files: &[PathBuf], format: PlanFormat) -> anyhow::Result<Ended> {
    let mut documents = manifests::read_all(files)?;
    manifests::order(&mut documents);
    let checker = Checker::new()?;
    let (mut objects, mut wrong, mut more) = (Vec::new(), Vec::new(), false);
    for document in &documents {
        match checker.check(document) {
            Verdict::Foreign => {
                output::tell(&format!(
                    "{document}: not a kind of underpass; it is not checked here, and nothing is planned for it"
                ));
            }
            Verdict::Bad { errors, rules_skipped } => {
                wrong.extend(errors);
                more |= rules_skipped;
            }
            Verdict::Good(object) => objects.push(object),
        }
    }
    if !wrong.is_empty() {
        complain(&wrong, more);
        return Ok(Ended::Badly);
    }
    let plan = |object: &Value| preview(object, &objects).with_context(|| name_of(object));
    let plans: Vec<Plan> = objects.iter().map(plan).collect::<Result<_, _>>()?;
    output::print(&render(&plans, documents.len(), format)?)?;
    Ok(Ended::Well)
}

fn name_of(object: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", word(&object["kind"]), word(&object["metadata"]["name"]))
}

fn complain(errors: &[String], more: bool) {
    errors.iter().for_each(|error| output::tell(error));
    let more = if more { "; rules between fields are checked after that" } else { "" };
    output::tell(&format!("{} found, nothing was planned{more}", count(errors.len(), "error")));
}

fn render(plans: &[Plan], documents: usize, format: PlanFormat) -> anyhow::Result<String> {
    match format {
        PlanFormat::Json => output::json(&plans),
        PlanFormat::Yaml => output::yaml(&plans),
        PlanFormat::Text if plans.is_empty() => Ok("Nothing to plan: there is no object of underpass\n".to_owned()),
        PlanFormat::Text => {
            let all = count(documents, "object");
            let objects = if plans.len() == documents { all } else { format!("{} of {all}", plans.len()) };
            let mut text = format!(
                "Plan for {objects}, on a container engine that runs and has nothing of them yet; each as if those before it were done:\n"
            );
            text.extend(plans.iter().map(|plan| format!("\n{plan}")));
            Ok(text)
        }
    }
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
