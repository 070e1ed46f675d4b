//! So many at a time, and no stranger can keep others out: when it is full, the oldest of the source that has the most has to go. Who
//! opens thousands of connections and says nothing gets in its own way only.
//!
//! Refusing the newest was rejected: whoever comes first and stays would lock everybody else out.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

pub(crate) struct Crowd {
    most: usize,
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    next: u64,
    count: usize,
    by_source: HashMap<IpAddr, VecDeque<(u64, AbortHandle)>>,
}

/// Leaves the crowd when the work is over, however it ended.
struct Membership {
    crowd: Arc<Crowd>,
    source: IpAddr,
    number: u64,
}

impl Crowd {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, members: Mutex::default() })
    }

    /// Does the work in a task of its own. True when somebody had to go for it.
    pub(crate) fn admit(self: &Arc<Self>, source: IpAddr, work: impl Future<Output = ()> + Send + 'static) -> bool {
        let mut members = self.members.lock();
        let gone = if members.count >= self.most { members.remove_oldest_of_most() } else { None };
        members.next += 1;
        let number = members.next;
        let membership = Membership { crowd: self.clone(), source, number };
        let task = tokio::spawn(async move {
            let _membership = membership;
            work.await;
        });
        members.count += 1;
        members.by_source.entry(source).or_default().push_back((number, task.abort_handle()));
        drop(members);
        gone.inspect(AbortHandle::abort).is_some()
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.members.lock().count
    }
}

impl Members {
    fn remove_oldest_of_most(&mut self) -> Option<AbortHandle> {
        let (source, _) = self.by_source.iter().max_by_key(|(_, members)| members.len())?;
        let (number, handle) = self.by_source.get(source)?.front()?.clone();
        self.remove(*source, number);
        Some(handle)
    }

    fn remove(&mut self, source: IpAddr, number: u64) {
        let Some(members) = self.by_source.get_mut(&source) else { return };
        let Some(place) = members.iter().position(|(other, _)| *other == number) else { return };
        members.remove(place);
        self.count -= 1;
        if members.is_empty() {
            self.by_source.remove(&source);
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.crowd.members.lock().remove(self.source, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn who_comes_with_many_gives_way_to_who_comes_alone() {
        let crowd = Crowd::new(8);
        let (many, alone) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let (stays_tx, stays_rx) = oneshot::channel::<()>();
        assert!(!crowd.admit(alone, async {
            let _stays = stays_tx;
            pending::<()>().await;
        }));
        let mut first = None;
        for number in 0..1000 {
            let (ends_tx, ends_rx) = oneshot::channel::<()>();
            let evicted = crowd.admit(many, async {
                let _ends = ends_tx;
                pending::<()>().await;
            });
            assert_eq!(evicted, number >= 7);
            first.get_or_insert(ends_rx);
        }
        assert!(first.unwrap().await.is_err(), "the oldest was ended");
        assert_eq!(crowd.count(), 8);
        let (done_tx, done_rx) = oneshot::channel();
        assert!(crowd.admit(alone, async { done_tx.send(()).unwrap() }));
        done_rx.await.unwrap();
        let mut stays_rx = stays_rx;
        assert!(stays_rx.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty));
    }

    #[tokio::test]
    async fn who_is_done_makes_room() {
        let crowd = Crowd::new(1);
        for _ in 0..10 {
            let (done_tx, done_rx) = oneshot::channel::<()>();
            crowd.admit(IpAddr::from([10, 0, 0, 1]), async { drop(done_tx) });
            assert!(done_rx.await.is_err());
            while crowd.count() > 0 {
                tokio::task::yield_now().await;
            }
        }
    }
}
