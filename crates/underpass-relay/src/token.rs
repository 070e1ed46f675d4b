//! What epoll gives back: which connection, which of its sockets, and which life of its place.

use rustix::event::epoll::EventData;

use crate::slab::Key;

/// Which descriptor an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Client(Key),
    Upstream(Key),
    /// A second attempt to connect, beside the first.
    Rival(Key),
    /// Not a connection: the number is the worker's own.
    Fixed(u32),
}

impl Token {
    pub(crate) fn data(self) -> EventData {
        let (side, key) = match self {
            Self::Client(key) => (0, key),
            Self::Upstream(key) => (1, key),
            Self::Rival(key) => (2, key),
            Self::Fixed(index) => (3, Key { index, life: 0 }),
        };
        EventData::new_u64(u64::from(key.life) << 34 | u64::from(key.index) << 2 | side)
    }

    pub(crate) fn from_data(data: EventData) -> Self {
        let bits = data.u64();
        // Both fit: index has 32 bits, life 30.
        let key = Key { index: (bits >> 2) as u32, life: (bits >> 34) as u32 };
        match bits & 3 {
            0 => Self::Client(key),
            1 => Self::Upstream(key),
            2 => Self::Rival(key),
            _ => Self::Fixed(key.index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        let key = Key { index: u32::MAX, life: (1 << 30) - 1 };
        for token in [Token::Client(key), Token::Upstream(key), Token::Rival(Key { index: 5, life: 7 }), Token::Fixed(9)] {
            assert_eq!(Token::from_data(token.data()), token);
        }
    }
}
