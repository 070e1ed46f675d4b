//! `underpass plan`: what the controllers would do for objects in files, and why. No server is asked, nothing is touched.

use std::path::PathBuf;

use anyhow::Context;
use k8s_openapi::jiff::Timestamp;
use underpass_plan::{Plan, preview};

use crate::args::PlanFormat;
use crate::check::Checker;
use crate::exit::Ended;
use crate::manifests::{self, Document};
use crate::output;

pub(crate) fn run(files: &[PathBuf], format: PlanFormat) -> anyhow::Result<Ended> {
    let mut documents = manifests::read_all(files)?;
    manifests::order(&mut documents);
    let checker = Checker::new()?;
    let (mut plans, mut errors) = (Vec::new(), Vec::new());
    for document in &documents {
        match checker.check(&document.object) {
            None => {
                output::tell(&format!("{document}: not a kind of ours; it would be applied as it is, unchecked here"));
            }
            Some(Err(wrong)) => errors.extend(wrong.into_iter().map(|error| format!("{document}: {error}"))),
            Some(Ok(object)) => {
                plans.push(preview(&object, Timestamp::now()).with_context(|| document.to_string())?);
            }
        }
    }
    if !errors.is_empty() {
        errors.iter().for_each(|error| output::tell(error));
        output::tell(&format!("{} found; nothing was planned", count(errors.len(), "error")));
        return Ok(Ended::Badly);
    }
    output::print(&render(&plans, &documents, format)?)?;
    Ok(Ended::Well)
}

fn render(plans: &[Plan], documents: &[Document], format: PlanFormat) -> anyhow::Result<String> {
    match format {
        PlanFormat::Json => output::json(&plans),
        PlanFormat::Yaml => output::yaml(&plans),
        PlanFormat::Text => {
            let mut text = format!(
                "Plan for {} in {}, as if a container engine were running and nothing existed yet:\n",
                count(plans.len(), "object"),
                count(documents.len(), "document")
            );
            text.extend(plans.iter().map(|plan| format!("\n{plan}")));
            Ok(text)
        }
    }
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
