//! How a data connection is proven, once, at its start; afterwards it carries nothing but a stream, and can be spliced.
//!
//! ```text
//! server half -> client half   kind (1)   nonce S (16)
//! client half -> server half   nonce C (16)   HMAC(key, "client" kind S C) (32)
//! server half -> client half   HMAC(key, "server" kind C S) (32)
//! ```
//!
//! Both nonces are new every time, so nothing that was recorded can be said again. TLS was rejected here: what it would hide goes over a
//! bridge on one machine, unprotected on both sides of it, and its records cannot be spliced.

use std::io;
use std::time::Duration;

use ring::hmac;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::secrets::DataKey;

/// For the whole of it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);

const NONCE: usize = 16;
const PROOF: usize = 32;

type Nonce = [u8; NONCE];

/// What a data connection will carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    /// A header, and then the bytes of a stream.
    Streams = 1,
    /// A header, and then datagrams, each with its length.
    Datagrams = 2,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("the other end left in the middle of the handshake")]
    Left(#[source] io::Error),
    #[error("the other end took longer than {} s for the handshake", DEADLINE.as_secs())]
    Late,
    #[error("the other end speaks something else")]
    Foreign,
    #[error("the other end does not know the key of this pair")]
    WrongKey,
}

/// The key, ready for use.
#[derive(Clone)]
pub(crate) struct Prover(hmac::Key);

impl Prover {
    pub(crate) fn new(key: &DataKey) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &key.0))
    }

    /// The server half's side.
    pub(crate) async fn dialled(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        kind: Kind,
    ) -> Result<(), HandshakeError> {
        within(self.dial(stream, kind)).await
    }

    /// The client half's side: what was proven to be there to carry.
    pub(crate) async fn accepted(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<Kind, HandshakeError> {
        within(self.accept(stream)).await
    }

    async fn dial(&self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin), kind: Kind) -> Result<(), HandshakeError> {
        let own: Nonce = rand::random();
        let mut opening = [kind as u8; 1 + NONCE];
        opening[1..].copy_from_slice(&own);
        stream.write_all(&opening).await.map_err(HandshakeError::Left)?;
        let (other, proof) = split(read::<{ NONCE + PROOF }>(stream).await?);
        self.check("client", kind, &own, &other, &proof)?;
        let proof = self.prove("server", kind, &other, &own);
        stream.write_all(&proof).await.map_err(HandshakeError::Left)
    }

    async fn accept(&self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<Kind, HandshakeError> {
        let mut opening = [0; 1 + NONCE];
        let read_at_once = stream.read(&mut opening).await.map_err(HandshakeError::Left)?;
        if read_at_once == 0 {
            return Err(HandshakeError::Left(io::ErrorKind::UnexpectedEof.into()));
        }
        // Whoever speaks something else need not say enough of it.
        let [kind, ..] = opening;
        let kind = Kind::from_byte(kind).ok_or(HandshakeError::Foreign)?;
        stream.read_exact(&mut opening[read_at_once..]).await.map_err(HandshakeError::Left)?;
        let [_, other @ ..] = opening;
        let own: Nonce = rand::random();
        let mut answer = [0; NONCE + PROOF];
        answer[..NONCE].copy_from_slice(&own);
        answer[NONCE..].copy_from_slice(&self.prove("client", kind, &other, &own));
        stream.write_all(&answer).await.map_err(HandshakeError::Left)?;
        let proof: [u8; PROOF] = read(stream).await?;
        self.check("server", kind, &own, &other, &proof)?;
        Ok(kind)
    }

    fn prove(&self, role: &str, kind: Kind, first: &Nonce, second: &Nonce) -> [u8; PROOF] {
        let mut proof = [0; PROOF];
        proof.copy_from_slice(hmac::sign(&self.0, &said(role, kind, first, second)).as_ref());
        proof
    }

    /// In constant time: how much of a guess was right is not to be learned.
    fn check(
        &self,
        role: &str,
        kind: Kind,
        first: &Nonce,
        second: &Nonce,
        proof: &[u8; PROOF],
    ) -> Result<(), HandshakeError> {
        let checked = hmac::verify(&self.0, &said(role, kind, first, second), proof);
        checked.map_err(|_| HandshakeError::WrongKey)
    }
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Streams, Self::Datagrams].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// All parts but the role have a fixed length, and the roles are equally long: no two different handshakes say the same.
fn said(role: &str, kind: Kind, first: &Nonce, second: &Nonce) -> Vec<u8> {
    [role.as_bytes(), &[kind as u8], first, second].concat()
}

fn split(answer: [u8; NONCE + PROOF]) -> (Nonce, [u8; PROOF]) {
    let (mut nonce, mut proof) = ([0; NONCE], [0; PROOF]);
    nonce.copy_from_slice(&answer[..NONCE]);
    proof.copy_from_slice(&answer[NONCE..]);
    (nonce, proof)
}

async fn within<T>(handshake: impl Future<Output = Result<T, HandshakeError>>) -> Result<T, HandshakeError> {
    timeout(DEADLINE, handshake).await.unwrap_or(Err(HandshakeError::Late))
}

async fn read<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> Result<[u8; N], HandshakeError> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await.map_err(HandshakeError::Left)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::duplex;

    use super::*;

    fn prover(byte: u8) -> Prover {
        Prover::new(&DataKey([byte; 32]))
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap().block_on(future)
    }

    #[test]
    fn both_ends_agree_about_the_kind_and_nothing_is_left_over() {
        block_on(async {
            for kind in [Kind::Streams, Kind::Datagrams] {
                let (mut here, mut there) = duplex(1024);
                let prover = prover(1);
                let (dialled, accepted) = tokio::join!(prover.dialled(&mut here, kind), prover.accepted(&mut there));
                dialled.unwrap();
                assert_eq!(accepted.unwrap(), kind);
                drop(here);
                assert_eq!(there.read(&mut [0; 1]).await.unwrap(), 0);
            }
        });
    }

    #[test]
    fn another_key_is_refused_by_either_end() {
        block_on(async {
            let (mut here, mut there) = duplex(1024);
            let accepting = tokio::spawn(async move { prover(2).accepted(&mut there).await });
            assert!(matches!(prover(1).dialled(&mut here, Kind::Streams).await, Err(HandshakeError::WrongKey)));
            drop(here);
            assert!(matches!(accepting.await.unwrap(), Err(HandshakeError::Left(_))));
        });
    }

    #[test]
    fn silence_ends_at_the_deadline() {
        block_on(async {
            let (mut here, _there) = duplex(1024);
            assert!(matches!(prover(1).accepted(&mut here).await, Err(HandshakeError::Late)));
            assert!(matches!(prover(1).dialled(&mut here, Kind::Streams).await, Err(HandshakeError::Late)));
        });
    }

    /// What was recorded of one handshake does not open another.
    #[test]
    fn a_replay_is_refused() {
        block_on(async {
            let (mut here, mut there) = duplex(1024);
            let accepting = tokio::spawn(async move { prover(1).accepted(&mut there).await });
            let mut recorded = vec![1; 1 + NONCE];
            here.write_all(&recorded).await.unwrap();
            let answer: [u8; NONCE + PROOF] = read(&mut here).await.unwrap();
            let nonce = answer[..NONCE].try_into().unwrap();
            let proof = prover(1).prove("server", Kind::Streams, &nonce, &[1; NONCE]);
            here.write_all(&proof).await.unwrap();
            assert_eq!(accepting.await.unwrap().unwrap(), Kind::Streams);
            recorded.extend(proof);

            let (mut here, mut there) = duplex(1024);
            here.write_all(&recorded).await.unwrap();
            assert!(matches!(prover(1).accepted(&mut there).await, Err(HandshakeError::WrongKey)));
        });
    }

    /// The client half's own proof, sent back to it, is not taken for the server half's.
    #[test]
    fn a_reflection_is_refused() {
        block_on(async {
            let (mut here, mut there) = duplex(1024);
            let accepting = tokio::spawn(async move { prover(1).accepted(&mut there).await });
            here.write_all(&[1; 1 + NONCE]).await.unwrap();
            let answer: [u8; NONCE + PROOF] = read(&mut here).await.unwrap();
            here.write_all(&answer[NONCE..]).await.unwrap();
            assert!(matches!(accepting.await.unwrap(), Err(HandshakeError::WrongKey)));
        });
    }

    proptest! {
        #[test]
        fn whatever_a_stranger_says_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u8..4) {
            let accepted = block_on(async {
                let (mut here, mut there) = duplex(1024);
                let accepting = tokio::spawn(async move { prover(1).accepted(&mut there).await });
                let _ = here.write_all(&[kind]).await;
                let _ = here.write_all(&bytes).await;
                drop(here);
                accepting.await.unwrap()
            });
            prop_assert!(accepted.is_err());
        }
    }
}
