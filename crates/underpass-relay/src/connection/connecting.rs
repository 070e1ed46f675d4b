//! To whom? From a decision to a connected socket: dialled, or taken from the stock.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use underpass_protocols::stream_header::StreamHeader;

use super::{Connection, Fate, Stage, Waiting, millis, note, reset};
use crate::connect::{Connecting, Dialled, Progress, Tried, dial};
use crate::context::Context;
use crate::copy::Side;
use crate::record::End;
use crate::slab::Key;
use crate::token::Token;

impl Connection {
    pub(super) fn connect(&mut self, key: Key, bytes: &[u8], mut tried: Tried, ctx: &mut Context) -> Fate {
        let Some(chosen) = &self.record.chosen else { return Fate::Gone(End::NoEndpoints) };
        let route = chosen.route.clone();
        match dial(&route, &mut tried, bytes, ctx.now_ms) {
            Dialled::Connected(fd, endpoint, sent) => {
                self.record.connected(endpoint, ctx.now_ms, ctx.now_ms);
                self.start_carrying(key, Side::new(fd), false, &bytes[sent..], ctx)
            }
            Dialled::Connecting(fd, endpoint) => {
                if ctx.watch_connecting(&fd, Token::Upstream(key)).is_err() {
                    return self.unreachable(End::OutOfResources);
                }
                let connecting = Connecting::new(route, fd, endpoint, tried, bytes.to_vec(), ctx.now_ms);
                self.stage = Stage::Connecting(Box::new(connecting));
                self.set_deadline(key, ctx);
                Fate::Stay
            }
            Dialled::Nobody(end) => {
                self.record.tried(tried.last());
                self.unreachable(end)
            }
        }
    }

    /// The other half of the tunnel learns from the first bytes whose stream this is.
    pub(super) fn take_from_stock(&mut self, key: Key, tunnel: u32, bytes: &[u8], ctx: &mut Context) -> Fate {
        let Some(stock) = ctx.shared.stock.clone() else { return self.unreachable(End::NoEndpoints) };
        let stream = ctx.shared.streams.fetch_add(1, Relaxed) + 1;
        let header = StreamHeader { tunnel, stream, source: self.record.source }.encode();
        let bytes = [&header[..], bytes].concat();
        match stock.take(ctx.waiting(key)) {
            Some(socket) => self.carry_over(key, socket, &bytes, ctx.now_ms, ctx),
            None => {
                let timeout =
                    self.record.chosen.as_ref().map_or(Duration::ZERO, |chosen| chosen.route.route.connect_timeout);
                let until_ms = ctx.now_ms + millis(timeout);
                self.stage = Stage::Waiting(Box::new(Waiting { bytes, since_ms: ctx.now_ms, until_ms }));
                self.set_deadline(key, ctx);
                Fate::Stay
            }
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_))
    }

    /// The stock has something for a connection that waits.
    pub(crate) fn supplied(&mut self, key: Key, socket: OwnedFd, ctx: &mut Context) -> Fate {
        let Stage::Waiting(waiting) = std::mem::replace(&mut self.stage, Stage::Carrying) else { return Fate::Stay };
        self.carry_over(key, socket, &waiting.bytes, waiting.since_ms, ctx)
    }

    pub(super) fn carry_over(
        &mut self,
        key: Key,
        socket: OwnedFd,
        bytes: &[u8],
        since_ms: u64,
        ctx: &mut Context,
    ) -> Fate {
        self.record.connected(0, since_ms, ctx.now_ms);
        self.start_carrying(key, Side::new(socket), false, bytes, ctx)
    }

    pub(super) fn attempt_ended(&mut self, key: Key, rival: bool, flags: EventFlags, ctx: &mut Context) -> Fate {
        let Stage::Connecting(connecting) = &mut self.stage else { return Fate::Stay };
        let Some((fd, endpoint)) = connecting.result(rival, flags, ctx.now_ms) else {
            return self.next_attempt(key, ctx);
        };
        let (bytes, since_ms) = (std::mem::take(&mut connecting.bytes), connecting.begun_ms);
        self.stage = Stage::Carrying;
        self.record.connected(endpoint, since_ms, ctx.now_ms);
        let mut side = Side::new(fd);
        side.room_announced = true;
        note(&mut side, flags);
        self.start_carrying(key, side, true, &bytes, ctx)
    }

    pub(super) fn connecting_deadline(&mut self, key: Key, ctx: &mut Context) -> Fate {
        let Stage::Connecting(connecting) = &mut self.stage else { return Fate::Stay };
        connecting.drop_late(ctx.now_ms);
        self.next_attempt(key, ctx)
    }

    /// Keeps an attempt under way as long as there is somebody left to try.
    pub(super) fn next_attempt(&mut self, key: Key, ctx: &mut Context) -> Fate {
        let Stage::Connecting(connecting) = &mut self.stage else { return Fate::Stay };
        match connecting.advance(key, ctx) {
            Progress::UnderWay => {
                self.set_deadline(key, ctx);
                Fate::Stay
            }
            Progress::Connected(fd, endpoint, sent) => {
                let (bytes, since_ms) = (std::mem::take(&mut connecting.bytes), connecting.begun_ms);
                self.stage = Stage::Carrying;
                self.record.connected(endpoint, since_ms, ctx.now_ms);
                self.start_carrying(key, Side::new(fd), false, &bytes[sent..], ctx)
            }
            Progress::Nobody(end) => {
                self.record.tried(connecting.tried.last());
                self.unreachable(end)
            }
        }
    }

    /// The client learns of it as it would without us: by a reset.
    pub(super) fn unreachable(&self, end: End) -> Fate {
        reset(&self.client.fd);
        Fate::Gone(end)
    }
}
