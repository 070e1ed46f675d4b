//! Numbered places that remember how often they were reused, so that an event for a connection that is gone is told from one for its
//! successor: the kernel may still hold events for a descriptor that was closed earlier in the same batch.

/// The number of a place, and which of its inhabitants is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) life: u32,
}

pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

struct Place<T> {
    life: u32,
    inhabitant: Option<T>,
}

/// Lives are carried in 29 bits of an epoll token.
const LIVES: u32 = 1 << 29;

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// The key that the next `insert` will give.
    pub(crate) fn next_key(&self) -> Key {
        match self.free.last() {
            Some(&index) => Key { index, life: self.places[index as usize].life },
            None => Key { index: index(self.places.len()), life: 0 },
        }
    }

    pub(crate) fn insert(&mut self, inhabitant: T) -> Key {
        let key = self.next_key();
        if self.free.pop().is_some() {
            self.places[key.index as usize].inhabitant = Some(inhabitant);
        } else {
            self.places.push(Place { life: 0, inhabitant: Some(inhabitant) });
        }
        key
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.life == key.life { place.inhabitant.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.life != key.life {
            return None;
        }
        let gone = place.inhabitant.take()?;
        place.life = (place.life + 1) % LIVES;
        self.free.push(key.index);
        Some(gone)
    }

    /// The key of whoever lives at a number now.
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        let place = self.places.get(index as usize)?;
        place.inhabitant.as_ref().map(|_| Key { index, life: place.life })
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        (0..index(self.places.len())).filter_map(|index| self.key_at(index)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

fn index(position: usize) -> u32 {
    u32::try_from(position).expect("descriptors are fewer than 2^32, and connections are fewer than descriptors")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;

    #[test]
    fn a_successor_has_another_key() {
        let mut slab = Slab::new();
        let first = slab.insert("a");
        assert_eq!(slab.remove(first), Some("a"));
        let second = slab.insert("b");
        assert_eq!(second.index, first.index);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut "b"));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn the_next_key_is_known_before() {
        let mut slab = Slab::new();
        for expected in 0..3 {
            let next = slab.next_key();
            assert_eq!(slab.insert(expected), next);
        }
        slab.remove(Key { index: 1, life: 0 }).unwrap();
        let next = slab.next_key();
        assert_eq!(slab.insert(9), next);
        assert_eq!(slab.keys().len(), 3);
    }
}
