//! Our control plane as a process of its own: the translator and the server of `underpass-xds`, told of changes by lines.

use std::sync::Arc;

use anyhow::Context;
use tokio::sync::watch;
use underpass_xds::{Nodes, Reports, Server, Translator};

use crate::backends::{Change, Tables};

/// Serves so many backends until its input ends.
pub(crate) fn serve(backends: usize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (tables, mut translator) = (Tables::new(backends), Translator::default());
    let (newest, _) = watch::channel(Some(Arc::new(translator.snapshot(&tables.plain))));
    let listener = runtime.block_on(Server::bind(([127, 0, 0, 1], 0).into()))?;
    println!("{}", listener.local_addr()?);
    let server = Server::new(newest.subscribe(), Nodes::Any, Arc::new(Reports::default()));
    runtime.spawn(server.serve(listener));
    let mut is_changed = false;
    for line in std::io::stdin().lines() {
        let line = line?;
        let change = Change::ALL.into_iter().find(|change| change.word() == line);
        let change = change.with_context(|| format!("{line} is no change"))?;
        is_changed = !is_changed;
        let table = if is_changed { tables.after(change) } else { &tables.plain };
        newest.send_replace(Some(Arc::new(translator.snapshot(table))));
    }
    Ok(())
}
