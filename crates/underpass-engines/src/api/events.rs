//! What changes in the engine.
//!
//! A subscription is asked for the events since a moment before the last look, so that nothing falls between the two. Podman tells of
//! containers, but (before version 5) never of networks: their list is compared instead.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime};

use bollard::errors::Error;
use bollard::models::{EventMessage, EventMessageTypeEnum as Type};
use bollard::query_parameters::EventsOptions;
use futures::StreamExt;
use tokio::sync::mpsc::Sender;
use tokio::time::{MissedTickBehavior, interval};

use super::Connection;
use crate::engine::{Change, EngineError, EngineKind};

/// How often Podman's networks are compared, and how often a silent engine is asked whether it lives.
const NETWORKS: Duration = Duration::from_secs(2);
const ALIVE: Duration = Duration::from_secs(15);

type Networks = BTreeSet<(String, String)>;

impl Connection {
    /// Tells everything that changes until the subscription breaks (the reason is returned) or nobody listens any more.
    pub(crate) async fn follow(&self, changes: &Sender<Change>) -> Result<(), EngineError> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut networks = self.networks_unless_told().await?;
        if changes.send(Change::Everything).await.is_err() {
            return Ok(());
        }
        let kinds = ["container", "network"].map(str::to_owned).to_vec();
        let filters = HashMap::from([("type".to_owned(), kinds)]);
        let options =
            EventsOptions { since: Some(since.to_string()), filters: Some(filters), ..EventsOptions::default() };
        let mut events = std::pin::pin!(self.docker.events(Some(options)));
        let mut look = interval(if networks.is_some() { NETWORKS } else { ALIVE });
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let news = tokio::select! {
                () = changes.closed() => return Ok(()),
                event = events.next() => self.read(event)?,
                _ = look.tick() => self.look(&mut networks).await?,
            };
            for change in news {
                if changes.send(change).await.is_err() {
                    return Ok(());
                }
            }
        }
    }

    fn read(&self, event: Option<Result<EventMessage, Error>>) -> Result<Vec<Change>, EngineError> {
        match event {
            Some(Ok(event)) => Ok(read_event(event)),
            // An event of a sort that nobody knew when this was written.
            Some(Err(Error::JsonDataError { .. } | Error::JsonSerdeError { .. })) => Ok(Vec::new()),
            Some(Err(error)) => Err(super::translate(&self.description, &error)),
            None => Err(EngineError::Unavailable(format!("{} ended the subscription to its events", self.description))),
        }
    }

    /// A look at what no event tells; for a silent engine it is the proof that it is there.
    async fn look(&self, known: &mut Option<Networks>) -> Result<Vec<Change>, EngineError> {
        let Some(known) = known else { return self.health().await.map(|()| Vec::new()) };
        let now: Networks = self.network_names().await?.into_iter().collect();
        let changed = known.symmetric_difference(&now).cloned();
        let changes = changed.map(|(id, name)| Change::Network { id, name }).collect();
        *known = now;
        Ok(changes)
    }

    async fn networks_unless_told(&self) -> Result<Option<Networks>, EngineError> {
        match self.description.kind {
            EngineKind::Docker => Ok(None),
            EngineKind::Podman => Ok(Some(self.network_names().await?.into_iter().collect())),
        }
    }
}

fn read_event(event: EventMessage) -> Vec<Change> {
    let member = member(&event);
    change(event).into_iter().chain(member).collect()
}

/// The container that Docker says has joined or left a network; Podman's word for it is about the container alone.
fn member(event: &EventMessage) -> Option<Change> {
    let id = event.actor.as_ref()?.attributes.as_ref()?.get("container")?;
    joins_or_leaves(event.action.as_deref()).then(|| Change::Container { id: id.clone() })
}

fn change(event: EventMessage) -> Option<Change> {
    let actor = event.actor.unwrap_or_default();
    let id = actor.id.filter(|id| !id.is_empty());
    let mut attributes = actor.attributes.unwrap_or_default();
    match event.typ? {
        Type::CONTAINER => Some(Change::Container { id: id? }),
        // Podman's word for a container that joins or leaves a network has the container's id and name, not the network's.
        Type::NETWORK if joins_or_leaves(event.action.as_deref()) && !attributes.contains_key("container") => {
            Some(Change::Container { id: id? })
        }
        Type::NETWORK => {
            let name = attributes.remove("name").unwrap_or_default();
            Some(Change::Network { id: id.unwrap_or_default(), name })
        }
        _ => None,
    }
}

fn joins_or_leaves(action: Option<&str>) -> bool {
    matches!(action, Some("connect" | "disconnect"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(event: &str) -> Vec<Change> {
        read_event(serde_json::from_str(event).unwrap())
    }

    #[test]
    fn both_engines_events_say_where_to_look() {
        let podman = r#"{"status":"died","id":"c1","Type":"container","Action":"died","Actor":{"ID":"c1","Attributes":{"containerExitCode":"3","name":"x"}},"scope":"local","time":1,"timeNano":1}"#;
        assert_eq!(read(podman), [Change::Container { id: "c1".into() }]);
        let docker = r#"{"Type":"network","Action":"destroy","Actor":{"ID":"n1","Attributes":{"name":"dev","type":"bridge"}},"scope":"local","time":1}"#;
        assert_eq!(read(docker), [Change::Network { id: "n1".into(), name: "dev".into() }]);
        let left = r#"{"status":"disconnect","id":"c1","Type":"network","Action":"disconnect","Actor":{"ID":"c1","Attributes":{"name":"x","podId":""}},"scope":"local","time":1}"#;
        assert_eq!(read(left), [Change::Container { id: "c1".into() }]);
        let left = r#"{"Type":"network","Action":"disconnect","Actor":{"ID":"n1","Attributes":{"container":"c1","name":"dev","type":"bridge"}},"scope":"local","time":1}"#;
        let both = [Change::Network { id: "n1".into(), name: "dev".into() }, Change::Container { id: "c1".into() }];
        assert_eq!(read(left), both, "whoever cares for either");
        assert_eq!(read(r#"{"Type":"image","Action":"tag","Actor":{"ID":"i"}}"#), []);
        assert_eq!(read(r#"{"Type":"container","Action":"create","Actor":{"ID":""}}"#), []);
    }
}
