//! `status --watch`: a terminal is redrawn, everything else gets a line (or a document) per change.

use std::collections::BTreeMap;

use futures::{Stream, StreamExt, stream};
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use underpass_operator::{is_not_served, kinds};
use underpass_resources::KINDS;

use super::controllers::Controllers;
use super::{row, table, typed};
use crate::args::StatusFormat;
use crate::exit::Ended;
use crate::output;
use crate::signals::Signals;

/// Position of the kind, namespace, name: the order of the table.
type Place = (usize, Option<String>, String);

pub(super) async fn run(client: &Client, format: StatusFormat) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen()?;
    let mut view =
        View { format, redraw: format == StatusFormat::Table && output::stdout_is_terminal(), ..View::default() };
    view.begin()?;
    let mut changes = std::pin::pin!(changes(client));
    loop {
        tokio::select! {
            () = signals.next() => return Ok(Ended::Well),
            Some((kind, event)) = changes.next() => {
                let event = event?;
                if is_unseen(&event) {
                    view.controllers = Controllers::look(client).await;
                }
                view.take(kind, event)?;
            }
        }
    }
}

/// The changes of all kinds. A kind that the server does not have is waited for silently.
fn changes(client: &Client) -> impl Stream<Item = (usize, watcher::Result<Event<DynamicObject>>)> {
    let streams = KINDS.iter().enumerate().map(|(position, kind)| {
        let watch = watcher(kinds::api(client, kind, None), underpass_operator::watch()).default_backoff();
        watch.map(move |event| (position, event)).boxed()
    });
    stream::select_all(streams).filter(|(_, event)| std::future::ready(!is_missing_kind(event)))
}

fn is_missing_kind(event: &watcher::Result<Event<DynamicObject>>) -> bool {
    matches!(event, Err(watcher::Error::InitialListFailed(error)) if is_not_served(error))
}

/// Whether it tells of an object that no controller has looked at.
fn is_unseen(event: &Event<DynamicObject>) -> bool {
    matches!(event, Event::Apply(object) | Event::InitApply(object) if row::ready(object).is_none())
}

struct View {
    format: StatusFormat,
    redraw: bool,
    objects: BTreeMap<Place, DynamicObject>,
    controllers: Controllers,
    /// Kinds whose first list has not come in full.
    starting: usize,
}

impl Default for View {
    fn default() -> Self {
        Self {
            format: StatusFormat::Table,
            redraw: false,
            objects: BTreeMap::new(),
            controllers: Controllers::Unknown,
            starting: KINDS.len(),
        }
    }
}

impl View {
    fn begin(&self) -> anyhow::Result<()> {
        if self.format == StatusFormat::Table && !self.redraw {
            output::print(&format!("{}\n", row::HEADINGS.join("\t")))?;
        }
        Ok(())
    }

    fn take(&mut self, kind: usize, event: Event<DynamicObject>) -> anyhow::Result<()> {
        match event {
            Event::Init => {}
            Event::InitDone => self.starting = self.starting.saturating_sub(1),
            Event::Apply(object) | Event::InitApply(object) => {
                let object = typed(&KINDS[kind], object);
                let news =
                    self.objects.get(&place(kind, &object)).map(row::fingerprint) != Some(row::fingerprint(&object));
                if news {
                    self.append(&object, false)?;
                }
                self.objects.insert(place(kind, &object), object);
            }
            Event::Delete(object) => {
                let object = typed(&KINDS[kind], object);
                self.append(&object, true)?;
                self.objects.remove(&place(kind, &object));
            }
        }
        self.draw()
    }

    fn append(&self, object: &DynamicObject, deleted: bool) -> anyhow::Result<()> {
        let text = match self.format {
            _ if self.redraw => return Ok(()),
            StatusFormat::Json => format!("{}\n", serde_json::to_string(object)?),
            StatusFormat::Yaml => format!("---\n{}", output::yaml(object)?),
            StatusFormat::Table => {
                let mut cells = row::cells(object, self.controllers, Timestamp::now());
                if deleted {
                    cells[row::REASON] = "Deleted".to_owned();
                }
                format!("{}\n", cells.join("\t"))
            }
        };
        output::print(&text)
    }

    /// Home, the table, and whatever stood below it gone: without the flicker of an empty screen.
    fn draw(&self) -> anyhow::Result<()> {
        if !self.redraw || self.starting > 0 {
            return Ok(());
        }
        let objects: Vec<_> = self.objects.values().cloned().collect();
        let lines: String =
            table::render(&objects, self.controllers).lines().map(|line| format!("{line}\x1b[K\n")).collect();
        output::print(&format!("\x1b[H{lines}\x1b[J"))
    }
}

fn place(kind: usize, object: &DynamicObject) -> Place {
    (kind, object.namespace(), object.name_any())
}
