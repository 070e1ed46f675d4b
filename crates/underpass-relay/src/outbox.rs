//! Small messages of one round of events, sent together.
//!
//! Every send wakes whoever waits for the message, and the kernel likes to let the woken one run at once: with many connections that exchange
//! small messages, a relay that sends one by one is put aside after each of them. So the messages that a round of events brought are
//! read one after the other, and go out in one system call (io_uring) before the next round is waited for. That also saves the calls.
//!
//! Where io_uring is not allowed (many container engines forbid it) there is no outbox, and messages are sent one by one.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::copy::SCRATCH_BYTES;
use crate::slab::Key;

/// Messages in one call. The first one waits until the last one was read, so there are not many.
const LETTERS: usize = 32;
/// Room for the last message to be read in full, however large the others were.
const BYTES: usize = LETTERS * LARGEST + SCRATCH_BYTES;
/// What is larger goes out at once: the time to wake somebody is small beside its own.
pub(crate) const LARGEST: usize = 2 * 1024;

pub(crate) struct Outbox {
    ring: IoUring,
    letters: Vec<Letter>,
    /// How many bytes of each letter went out.
    sent: Vec<Result<usize, Errno>>,
    bytes: Box<[u8]>,
    used: usize,
    /// Whether more than one message may be expected before the next wait.
    pub(crate) open: bool,
}

/// A message that was read and is to be sent.
struct Letter {
    sender: Sender,
    to: RawFd,
    start: usize,
    end: usize,
}

/// Whose message it is: a connection, and which of its two sides sent it.
#[derive(Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) key: Key,
    pub(crate) side: Which,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Client,
    Upstream,
}

impl Outbox {
    /// None where the kernel has no io_uring or does not allow it.
    pub(crate) fn new() -> Option<Self> {
        let ring = IoUring::new(LETTERS as u32)
            .inspect_err(|error| tracing::debug!(%error, "no io_uring: small messages are sent one by one"))
            .ok()?;
        Some(Self { ring, letters: Vec::new(), sent: Vec::new(), bytes: vec![0; BYTES].into(), used: 0, open: false })
    }

    /// Where the next message is to be read.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.used..self.used + SCRATCH_BYTES]
    }

    /// Takes the message that was just read into `room`. Until it was sent, its receiver must not be closed.
    pub(crate) fn post(&mut self, sender: Sender, to: &OwnedFd, length: usize) {
        let start = self.used;
        self.used += length;
        self.letters.push(Letter { sender, to: to.as_raw_fd(), start, end: self.used });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.letters.len() == LETTERS
    }

    /// Sends everything, and tells for every letter how much of it went out, and the rest. False: what the kernel did not take counts as
    /// not sent, and the outbox must not be used again.
    pub(crate) fn send_all(&mut self, mut told: impl FnMut(Sender, Result<usize, Errno>, &[u8])) -> bool {
        let submitted = self.submit();
        self.sent.clear();
        self.sent.resize(self.letters.len(), Ok(0));
        for completion in self.ring.completion() {
            // Below nothing is an error number, negated.
            let result = usize::try_from(completion.result())
                .map_err(|_| Errno::from_raw_os_error(completion.result().wrapping_neg()));
            if let Some(sent) = self.sent.get_mut(completion.user_data() as usize) {
                *sent = result;
            }
        }
        for (letter, sent) in self.letters.drain(..).zip(&self.sent) {
            told(letter.sender, *sent, &self.bytes[letter.start + sent.unwrap_or(0)..letter.end]);
        }
        self.used = 0;
        submitted.inspect_err(|error| tracing::warn!(%error, "small messages cannot be sent together")).is_ok()
    }

    #[expect(unsafe_code, reason = "the kernel is given the addresses of bytes")]
    fn submit(&mut self) -> std::io::Result<()> {
        let mut queue = self.ring.submission();
        for (number, letter) in (0..).zip(&self.letters) {
            let entry = entry(number, letter, &self.bytes);
            // SAFETY: the bytes are ours, on the heap, and stay as they are until all entries that the kernel has taken are complete: it
            // does not wait to send any of them (DONTWAIT), and we wait below until it has told of each.
            unsafe { queue.push(&entry) }.map_err(std::io::Error::other)?;
        }
        drop(queue);
        let mut left = self.letters.len();
        while left > 0 {
            match self.ring.submit_and_wait(self.letters.len()) {
                Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Ok(taken) => left = left.saturating_sub(taken),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn entry(number: u64, letter: &Letter, bytes: &[u8]) -> squeue::Entry {
    let message = &bytes[letter.start..letter.end];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    opcode::Send::new(types::Fd(letter.to), message.as_ptr(), message.len() as u32)
        .flags(flags.bits().cast_signed())
        .build()
        .user_data(number)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::net::{RecvFlags, recv, send};

    use super::*;

    fn sender(index: u32) -> Sender {
        Sender { key: Key { index, life: 0 }, side: Which::Client }
    }

    fn post(outbox: &mut Outbox, number: u32, to: &OwnedFd, message: &[u8]) {
        outbox.room()[..message.len()].copy_from_slice(message);
        outbox.post(sender(number), to, message.len());
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        let (one, other) = UnixStream::pair().unwrap();
        (one.into(), other.into())
    }

    #[test]
    fn each_letter_has_its_own_fate() {
        let Some(mut outbox) = Outbox::new() else { return eprintln!("no io_uring here") };
        let (works, reader) = pair();
        let (gone, _) = pair();
        let (full, _never_reads) = pair();
        while send(&full, &[0; 4096], SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok() {}
        for _ in 0..2 {
            post(&mut outbox, 0, &works, b"hello");
            post(&mut outbox, 1, &gone, b"lost");
            post(&mut outbox, 2, &full, b"waits");
            let mut told = Vec::new();
            let usable = outbox
                .send_all(|sender, sent, rest| told.push((sender.key.index, sent.ok(), sent.err(), rest.to_vec())));
            assert!(usable && outbox.is_empty());
            assert_eq!(
                told,
                [
                    (0, Some(5), None, vec![]),
                    (1, None, Some(Errno::PIPE), b"lost".to_vec()),
                    (2, None, Some(Errno::AGAIN), b"waits".to_vec()),
                ]
            );
            let mut read = [0; 16];
            let (count, _) = recv(&reader, &mut read[..], RecvFlags::empty()).unwrap();
            assert_eq!(&read[..count], b"hello");
        }
    }

    #[test]
    fn there_is_always_room_to_read_in_full() {
        let Some(mut outbox) = Outbox::new() else { return eprintln!("no io_uring here") };
        let (to, _reader) = pair();
        while !outbox.is_full() {
            post(&mut outbox, 0, &to, &[0; LARGEST]);
            assert_eq!(outbox.room().len(), SCRATCH_BYTES);
        }
    }
}
