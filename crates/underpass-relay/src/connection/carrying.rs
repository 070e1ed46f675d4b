//! Bytes in both directions, until both have ended.

use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;

use super::{Connection, Fate, NEVER, millis, reset};
use crate::context::Context;
use crate::copy::{Broken, Pumped, Side, write};
use crate::outbox::{Sender, Which};
use crate::record::End;
use crate::slab::Key;
use crate::token::Token;

/// Dead peers are looked for only in connections that have lived so long: most never need it.
const KEEPALIVE_FROM_MS: u64 = 15_000;
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

impl Connection {
    pub(super) fn start_carrying(
        &mut self,
        key: Key,
        mut upstream: Side,
        watched: bool,
        bytes: &[u8],
        ctx: &mut Context,
    ) -> Fate {
        let sent = match if bytes.is_empty() { Ok(0) } else { write(&mut upstream, bytes) } {
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => return self.unreachable(End::UpstreamReset),
        };
        if sent < bytes.len() {
            self.up.hold(&bytes[sent..]);
        }
        let upstream = self.upstream.insert(upstream);
        let known = watched || ctx.watch(&upstream.fd, Token::Upstream(key)).is_ok();
        if !known || self.watch_client(key, ctx).is_err() {
            return self.unreachable(End::ConnectFailed);
        }
        self.moved_ms = ctx.now_ms;
        self.set_carrying_deadline(key, ctx);
        // Not at once: whoever called may still hold the worker's buffer, with the bytes that were just sent.
        self.take_another_turn(key, ctx);
        Fate::Stay
    }

    pub(super) fn carry_after(&mut self, key: Key, which: Which, ctx: &mut Context) -> Fate {
        let fate = self.carry(key, ctx);
        let failed = match which {
            Which::Client => self.client.failed,
            Which::Upstream => self.upstream.as_ref().is_some_and(|upstream| upstream.failed),
        };
        if fate == Fate::Stay && failed { self.broken(which, ctx) } else { fate }
    }

    /// Whether the worker's outbox has something of this connection.
    pub(crate) fn is_posted(&self) -> bool {
        self.up.is_posted() || self.down.is_posted()
    }

    /// What one side had sent was passed on, but for the rest.
    pub(crate) fn sent(&mut self, sender: Sender, sent: Result<usize, Errno>, rest: &[u8], ctx: &mut Context) -> Fate {
        let Some(upstream) = &mut self.upstream else { return Fate::Stay };
        let (direction, from, to, receiver) = match sender.side {
            Which::Client => (&mut self.up, &self.client, upstream, Which::Upstream),
            Which::Upstream => (&mut self.down, &*upstream, &mut self.client, Which::Client),
        };
        match direction.sent(to, sent, rest) {
            Err(_) => self.broken(receiver, ctx),
            Ok(()) if direction.is_at_rest(from) => Fate::Stay,
            Ok(()) => self.carry(sender.key, ctx),
        }
    }

    /// Moves what can be moved, in both directions.
    pub(super) fn carry(&mut self, key: Key, ctx: &mut Context) -> Fate {
        let Some(upstream) = &mut self.upstream else { return Fate::Stay };
        let before = (self.up.bytes, self.down.bytes);
        let piped = self.up.has_pipe() || self.down.has_pipe();
        let from = |side| Sender { key, side };
        let up =
            match self.up.pump(&mut self.client, upstream, self.down.finished(), from(Which::Client), &mut ctx.tools) {
                Ok(pumped) => pumped,
                Err(Broken::Sender(_)) => return self.broken(Which::Client, ctx),
                Err(Broken::Receiver(_)) => return self.broken(Which::Upstream, ctx),
            };
        let down = match self.down.pump(
            upstream,
            &mut self.client,
            up == Pumped::Finished,
            from(Which::Upstream),
            &mut ctx.tools,
        ) {
            Ok(pumped) => pumped,
            Err(Broken::Sender(_)) => return self.broken(Which::Upstream, ctx),
            Err(Broken::Receiver(_)) => return self.broken(Which::Client, ctx),
        };
        if before != (self.up.bytes, self.down.bytes) {
            self.moved_ms = ctx.now_ms;
        }
        if !piped && (self.up.has_pipe() || self.down.has_pipe()) {
            ctx.piped.push(key);
        }
        match (up, down) {
            (Pumped::Finished, Pumped::Finished) => return Fate::Gone(End::Closed),
            (Pumped::Again, _) | (_, Pumped::Again) => self.take_another_turn(key, ctx),
            _ => {}
        }
        self.watch_full(key, ctx)
    }

    pub(super) fn watch_full(&mut self, key: Key, ctx: &mut Context) -> Fate {
        let Some(upstream) = &mut self.upstream else { return Fate::Stay };
        let asked = ctx
            .watch_full(upstream, Token::Upstream(key))
            .and_then(|()| ctx.watch_full(&mut self.client, Token::Client(key)));
        if asked.is_ok() { Fate::Stay } else { Fate::Gone(End::ConnectFailed) }
    }

    /// One side failed. What it had sent before still counts; then the other side is failed too.
    pub(super) fn broken(&mut self, which: Which, ctx: &mut Context) -> Fate {
        let Some(upstream) = &mut self.upstream else { return Fate::Gone(End::ClientLeft) };
        match which {
            Which::Client => {
                self.up.salvage(&mut self.client, upstream, &mut ctx.tools);
                reset(&upstream.fd);
                Fate::Gone(End::ClientReset)
            }
            Which::Upstream => {
                self.down.salvage(upstream, &mut self.client, &mut ctx.tools);
                reset(&self.client.fd);
                Fate::Gone(End::UpstreamReset)
            }
        }
    }

    pub(super) fn carrying_deadline(&mut self, key: Key, ctx: &mut Context) -> Fate {
        if ctx.now_ms >= self.drain_ms {
            return Fate::Gone(End::Drained);
        }
        if self.idle_ms().is_some_and(|idle| ctx.now_ms - self.moved_ms >= idle) {
            return Fate::Gone(End::IdleTimeout);
        }
        if !self.kept_alive {
            self.kept_alive = true;
            for side in [Some(&self.client), self.upstream.as_ref()].into_iter().flatten() {
                keep_alive(side);
            }
        }
        self.set_carrying_deadline(key, ctx);
        Fate::Stay
    }

    pub(super) fn set_carrying_deadline(&self, key: Key, ctx: &mut Context) {
        let keepalive = if self.kept_alive { NEVER } else { ctx.now_ms + KEEPALIVE_FROM_MS };
        let idle = self.idle_ms().map_or(NEVER, |idle| self.moved_ms + idle);
        self.wake_by(key, keepalive.min(idle), ctx);
    }

    pub(super) fn idle_ms(&self) -> Option<u64> {
        self.record.chosen.as_ref().and_then(|chosen| chosen.route.route.idle_timeout).map(millis)
    }
}

fn keep_alive(side: &Side) {
    // Without it a dead peer is found later, or by the idle time-out: no reason to end a connection that works.
    let _ = sockopt::set_tcp_keepidle(&side.fd, KEEPALIVE_IDLE)
        .and_then(|()| sockopt::set_tcp_keepintvl(&side.fd, KEEPALIVE_INTERVAL))
        .and_then(|()| sockopt::set_tcp_keepcnt(&side.fd, KEEPALIVE_PROBES))
        .and_then(|()| sockopt::set_socket_keepalive(&side.fd, true));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::sync::Arc;

    use rustix::event::{Timespec, epoll};
    use rustix::net::{SendFlags, send};

    use super::*;
    use crate::connection::Stage;
    use crate::connection::tests::{live, pair};
    use crate::context::Shared;
    use crate::copy::SCRATCH_BYTES;
    use crate::record::Record;

    #[test]
    fn dead_peers_are_looked_for_on_both_sides_of_a_connection_that_lives_long() {
        let ((client, _client), (upstream, _upstream)) = (pair(), pair());
        let (live, key) = (live(), Key { index: 0, life: 0 });
        let mut ctx = Context::new(0, Arc::new(Shared::new(None)), live.clone(), None, None).unwrap();
        ctx.now_ms = 0;
        let record = Record::begin(&live.listeners[0], "127.0.0.1:2".parse().unwrap(), 0);
        let mut connection = Connection::new(client, record, true, 0);
        connection.stage = Stage::Carrying;
        assert_eq!(connection.start_carrying(key, Side::new(upstream), false, &[], &mut ctx), Fate::Stay);
        let looked_for = |connection: &Connection| {
            let sides = [&connection.client.fd, &connection.upstream.as_ref().unwrap().fd];
            sides.map(|fd| sockopt::socket_keepalive(fd).unwrap())
        };
        assert_eq!(looked_for(&connection), [false, false], "most live too short for it");

        let mut expired: Vec<u32> = Vec::new();
        ctx.now_ms = KEEPALIVE_FROM_MS - 1;
        ctx.wheel.expire(ctx.now_ms, &mut expired);
        assert!(expired.is_empty());
        ctx.now_ms = KEEPALIVE_FROM_MS + 100;
        ctx.wheel.expire(ctx.now_ms, &mut expired);
        assert_eq!(expired, [key.index]);
        assert_eq!(connection.on_deadline(key, &mut ctx), Fate::Stay);
        assert_eq!(looked_for(&connection), [true, true]);
        for fd in [&connection.client.fd, &connection.upstream.as_ref().unwrap().fd] {
            assert_eq!(sockopt::tcp_keepidle(fd), Ok(KEEPALIVE_IDLE));
            assert_eq!(sockopt::tcp_keepintvl(fd), Ok(KEEPALIVE_INTERVAL));
            assert_eq!(sockopt::tcp_keepcnt(fd), Ok(KEEPALIVE_PROBES));
        }
        assert_eq!(ctx.wheel.wait_ms(ctx.now_ms), None, "once is enough");
    }

    /// Of urgent data a read stops short, though there is more to read: nobody announces it again.
    #[test]
    fn what_is_urgent_goes_on_at_its_place_and_so_does_what_follows_it() {
        for (before, ends) in [(1, false), (1, true), (3 * SCRATCH_BYTES, false)] {
            let ((client, mut sender), (upstream, mut receiver)) = (pair(), pair());
            let (live, key) = (live(), Key { index: 0, life: 0 });
            let mut ctx = Context::new(0, Arc::new(Shared::new(None)), live.clone(), None, None).unwrap();
            let record = Record::begin(&live.listeners[0], sender.local_addr().unwrap(), 0);
            let mut connection = Connection::new(client, record, true, 0);
            connection.client.readable = false;
            connection.stage = Stage::Carrying;
            assert_eq!(connection.start_carrying(key, Side::new(upstream), false, &[], &mut ctx), Fate::Stay);

            let before = vec![b'a'; before];
            sender.write_all(&before).unwrap();
            send(&sender, b"U", SendFlags::OOB).unwrap();
            sender.write_all(b"b").unwrap();
            if ends {
                sender.shutdown(Shutdown::Write).unwrap();
            }
            let expected = [&before[..], b"Ub"].concat();
            let mut events = Vec::with_capacity(1);
            while connection.up.bytes < expected.len() as u64 {
                for key in std::mem::take(&mut ctx.again) {
                    assert_eq!(connection.again(key, &mut ctx), Fate::Stay);
                }
                let patience = Timespec { tv_sec: if ctx.again.is_empty() { 20 } else { 0 }, tv_nsec: 0 };
                epoll::wait(&ctx.epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience)).unwrap();
                assert!(
                    !events.is_empty() || !ctx.again.is_empty(),
                    "{} of {} bytes, and nothing happens",
                    connection.up.bytes,
                    expected.len()
                );
                for event in events.drain(..).filter(|event| Token::from_data(event.data) == Token::Client(key)) {
                    assert_eq!(connection.on_client(key, event.flags, &mut ctx), Fate::Stay);
                }
            }
            let mut arrived = vec![0; expected.len()];
            receiver.read_exact(&mut arrived).unwrap();
            assert!(arrived == expected, "each byte at its place");
        }
    }
}
