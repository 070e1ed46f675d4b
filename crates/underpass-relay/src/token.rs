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
    /// The endpoint's side of a flow of datagrams.
    Flow(Key),
    /// Not a connection: the number is the worker's own.
    Fixed(u32),
}

impl Token {
    pub(crate) fn data(self) -> EventData {
        let (side, key) = match self {
            Self::Client(key) => (0, key),
            Self::Upstream(key) => (1, key),
            Self::Rival(key) => (2, key),
            Self::Flow(key) => (3, key),
            Self::Fixed(index) => (4, Key { index, life: 0 }),
        };
        EventData::new_u64(u64::from(key.life) << 35 | u64::from(key.index) << 3 | side)
    }

    pub(crate) fn from_data(data: EventData) -> Self {
        let bits = data.u64();
        // Both fit: index has 32 bits, life 29.
        let key = Key { index: (bits >> 3) as u32, life: (bits >> 35) as u32 };
        match bits & 7 {
            0 => Self::Client(key),
            1 => Self::Upstream(key),
            2 => Self::Rival(key),
            3 => Self::Flow(key),
            _ => Self::Fixed(key.index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        let key = Key { index: u32::MAX, life: (1 << 29) - 1 };
        for token in [
            Token::Client(key),
            Token::Upstream(key),
            Token::Rival(Key { index: 5, life: 7 }),
            Token::Flow(key),
            Token::Fixed(9),
        ] {
            assert_eq!(Token::from_data(token.data()), token);
        }
    }
}
