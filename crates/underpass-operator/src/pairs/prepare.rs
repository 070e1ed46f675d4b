//! Orders to prepare a tunnel. A server's name can take seconds to be resolved, or to be not: nobody waits so long for one tunnel, so the
//! order goes on by itself and wakes the object when it is answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use underpass_plan::{ClientPort, TunnelRequest};
use underpass_resources::tunnel_proxy::TunnelProtocol;
use underpass_tunnel::{CallerError, Prepare, Protocol};

use super::Pairs;
use crate::act::Outcome;

/// A pass waits so long for an answer: most come in milliseconds, and then their tunnels are seen by the next pass.
const PATIENCE: Duration = Duration::from_millis(500);
/// A server proxy takes 64 requests at a time, among them those by which it shows that it lives.
const AT_A_TIME: usize = 32;

/// The orders that a pair has not answered.
pub(super) struct Orders {
    requests: BTreeMap<u32, TunnelRequest>,
    places: Arc<Semaphore>,
}

impl Pairs {
    pub fn preparing(&self, uid: &str) -> Vec<TunnelRequest> {
        let memories = self.memories.lock();
        let requests = memories.get(uid).map(|memory| &memory.orders.requests);
        requests.into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// What the pair refuses is remembered and told by the next observation: one tunnel must not hold up the others.
    pub async fn prepare(self: &Arc<Self>, uid: &str, request: &TunnelRequest) -> Outcome {
        let Some(control_port) = self.control_port(uid) else { return Outcome::no_pair() };
        let places = {
            let mut memories = self.memories.lock();
            let orders = &mut memories.entry(uid.to_owned()).or_default().orders;
            orders.requests.insert(request.number, request.clone());
            Arc::clone(&orders.places)
        };
        let (answer, mut answered) = oneshot::channel();
        let (pairs, uid, request) = (Arc::clone(self), uid.to_owned(), request.clone());
        tokio::spawn(async move {
            // It is never closed.
            let _place = places.acquire().await;
            let prepared = pairs.try_prepare(&uid, control_port, &request).await;
            let outcome = pairs.note_prepared(&uid, &request, prepared);
            if answer.send(outcome).is_err() {
                pairs.wake(&uid);
            }
        });
        if let Ok(Ok(outcome)) = timeout(PATIENCE, &mut answered).await {
            return outcome;
        }
        answered.close();
        answered
            .try_recv()
            .unwrap_or_else(|_| Outcome::Refused("it takes its time: the object is woken by its answer".to_owned()))
    }

    async fn try_prepare(&self, uid: &str, control_port: u16, request: &TunnelRequest) -> Result<(), CallerError> {
        let caller = self.caller(uid, control_port).map_err(CallerError::Refused)?;
        caller.prepare(order(request)).await.map(drop)
    }

    fn note_prepared(&self, uid: &str, request: &TunnelRequest, prepared: Result<(), CallerError>) -> Outcome {
        // The pair may be gone meanwhile, and everything that was known of it.
        if let Some(memory) = self.memories.lock().get_mut(uid) {
            // What came of one that another has overtaken says nothing about that other.
            let latest = memory.orders.requests.get(&request.number) == Some(request);
            if latest {
                memory.orders.requests.remove(&request.number);
            }
            let refused = match &prepared {
                Ok(()) => Some(None),
                Err(CallerError::Refused(message)) => Some(Some(message.clone())),
                // A pair that is silent is seen to be so by the next observation.
                Err(_) => None,
            };
            if let Some(refused) = refused.filter(|_| latest) {
                memory.refusals.note(request.number, request, refused, self.backoff);
            }
        }
        prepared.map_or_else(|error| Outcome::Refused(error.to_string()), |()| Outcome::Done)
    }

    fn wake(&self, uid: &str) {
        if let Some(key) = self.memories.lock().get(uid).and_then(|memory| memory.key.clone()) {
            // Nobody listens at the end of the process.
            let _ = self.wake.unbounded_send(key);
        }
    }
}

impl Orders {
    pub(super) fn forget(&mut self, number: u32) {
        self.requests.remove(&number);
    }
}

impl Default for Orders {
    fn default() -> Self {
        Self { requests: BTreeMap::new(), places: Arc::new(Semaphore::new(AT_A_TIME)) }
    }
}

fn order(request: &TunnelRequest) -> Prepare {
    let (client_port, or_any) = match request.client_port {
        ClientPort::Fixed(port) => (Some(port), false),
        ClientPort::Preferred(port) => (Some(port), true),
        ClientPort::Any => (None, true),
    };
    Prepare {
        number: request.number,
        protocol: match request.protocol {
            TunnelProtocol::Tcp => Protocol::Tcp,
            TunnelProtocol::Udp => Protocol::Udp,
        },
        server_address: request.server_host.clone(),
        server_port: request.server_port,
        client_port,
        or_any,
        max_streams: request.max_connections,
    }
}
