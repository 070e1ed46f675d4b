//! What was last asked for of each tunnel, while orders for it are under way: one that has waited for a name must not undo a later one.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::messages::Prepare;

/// By the tunnel's number. What is not under way any more can be overtaken by nothing.
#[derive(Default)]
pub(super) struct Orders(Mutex<BTreeMap<u32, Wish>>);

#[derive(Default)]
struct Wish {
    /// `None` when the tunnel is to be gone.
    latest: Option<Prepare>,
    under_way: usize,
}

/// It is under way until it is dropped.
pub(super) struct Order<'a> {
    orders: &'a Orders,
    number: u32,
}

impl Orders {
    pub(super) fn prepare(&self, asked: &Prepare) -> Order<'_> {
        self.begin(asked.number, Some(asked.clone()))
    }

    pub(super) fn delete(&self, number: u32) -> Order<'_> {
        self.begin(number, None)
    }

    fn begin(&self, number: u32, asked: Option<Prepare>) -> Order<'_> {
        let mut wishes = self.0.lock();
        let wish = wishes.entry(number).or_default();
        wish.latest = asked;
        wish.under_way += 1;
        Order { orders: self, number }
    }
}

impl Order<'_> {
    /// Whether this is how the tunnel is wanted by now, whoever has asked for it.
    pub(super) fn is_latest(&self, asked: &Prepare) -> bool {
        self.orders.0.lock().get(&self.number).is_some_and(|wish| wish.latest.as_ref() == Some(asked))
    }

    /// What is said to who has asked for something else.
    pub(super) fn overtaken(&self) -> String {
        format!("tunnel {}: a later order took the place of this one", self.number)
    }
}

impl Drop for Order<'_> {
    fn drop(&mut self) {
        let mut wishes = self.orders.0.lock();
        let Some(wish) = wishes.get_mut(&self.number) else { return };
        wish.under_way -= 1;
        if wish.under_way == 0 {
            wishes.remove(&self.number);
        }
    }
}
