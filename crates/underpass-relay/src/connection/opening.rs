//! What does it want? From the first byte to a decision.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use underpass_tables::{Decision, Facts, Refusal};

use super::{Connection, Fate, Received, Stage};
use crate::connect::Tried;
use crate::context::Context;
use crate::inspect::{Finding, Found, MAX_OPENING, Start, UNRECOGNIZED_NAME, examine, examine_last, is_tls};
use crate::proxy_header;
use crate::record::{End, plain};
use crate::slab::Key;

impl Connection {
    pub(super) fn read_opening(&mut self, key: Key, ctx: &mut Context) -> Fate {
        while self.client.readable && matches!(self.stage, Stage::Opening(_)) {
            // Taken out so that what was read can be looked at while the context is used.
            let mut scratch = std::mem::take(&mut ctx.tools.scratch);
            let fate = match recv(&self.client.fd, &mut *scratch, RecvFlags::empty()) {
                Ok((0, _)) => self.ended_while_opening(key, ctx),
                Ok((read, _)) => {
                    self.client.readable = read == scratch.len() || self.client.may_have_more();
                    self.received(key, &scratch[..read], ctx)
                }
                Err(Errno::AGAIN) => {
                    self.client.readable = false;
                    Fate::Stay
                }
                Err(Errno::INTR) => Fate::Stay,
                Err(_) => Fate::Gone(End::ClientLeft),
            };
            ctx.tools.scratch = scratch;
            if fate != Fate::Stay {
                return fate;
            }
        }
        Fate::Stay
    }

    pub(super) fn received(&mut self, key: Key, bytes: &[u8], ctx: &mut Context) -> Fate {
        let Stage::Opening(held) = &mut self.stage else { return Fate::Stay };
        let Some(mut held) = held.take() else {
            let finding = self.examine(bytes, ctx);
            return self.found(key, finding, Cow::Borrowed(bytes), ctx);
        };
        held.bytes.extend_from_slice(bytes);
        if held.bytes.len() < held.need {
            self.stage = Stage::Opening(Some(held));
            return Fate::Stay;
        }
        let finding = self.examine(&held.bytes, ctx);
        self.found(key, finding, Cow::Owned(held.bytes), ctx)
    }

    pub(super) fn examine(&self, bytes: &[u8], ctx: &mut Context) -> Finding {
        let mut scratch = std::mem::take(&mut ctx.hello);
        let finding = match ctx.live.listener(self.record.listener()) {
            Some(listener) => examine(bytes, listener, &mut scratch),
            None => Finding::Refuse(End::Drained, &[]),
        };
        scratch.clear();
        ctx.hello = scratch;
        finding
    }

    pub(super) fn found(&mut self, key: Key, finding: Finding, bytes: Cow<'_, [u8]>, ctx: &mut Context) -> Fate {
        match finding {
            Finding::Found(found) => self.decide(key, &found, &bytes[found.skip..], ctx),
            Finding::Refuse(end, answer) => self.refuse(key, end, answer, ctx),
            Finding::Incomplete { .. } if bytes.len() >= MAX_OPENING => Fate::Gone(End::InvalidHello),
            Finding::Incomplete { need } => {
                self.stage = Stage::Opening(Some(Box::new(Received { bytes: bytes.into_owned(), need })));
                if self.watched {
                    self.set_opening_deadline(key, ctx);
                }
                Fate::Stay
            }
        }
    }

    /// The client said all that it will say, and that is not enough to be TLS.
    pub(super) fn ended_while_opening(&mut self, key: Key, ctx: &mut Context) -> Fate {
        self.client.readable = true;
        self.client.ending = true;
        match self.after_end(ctx) {
            Some(found) if !self.only_looks(&found) => self.carry_plain(key, &found, ctx),
            _ => Fate::Gone(End::ClientLeft),
        }
    }

    /// A load balancer that looks whether somebody is there: a header that tells of no client, and nothing behind it.
    fn only_looks(&self, found: &Found) -> bool {
        found.skip > 0 && found.source.is_none() && found.skip == self.held().len()
    }

    /// What it is if nothing follows.
    fn after_end(&self, ctx: &Context) -> Option<Found> {
        examine_last(self.held(), ctx.live.listener(self.record.listener())?)
    }

    /// The same, if nothing follows for a while: of what is TLS the rest is worth waiting for.
    pub(super) fn after_silence(&self, ctx: &Context) -> Option<Found> {
        self.after_end(ctx).filter(|found| !is_tls(&self.held()[found.skip..]))
    }

    /// What it has sent so far.
    fn held(&self) -> &[u8] {
        match &self.stage {
            Stage::Opening(Some(received)) => &received.bytes,
            _ => &[],
        }
    }

    /// It goes as it is, with what it has sent so far.
    pub(super) fn carry_plain(&mut self, key: Key, found: &Found, ctx: &mut Context) -> Fate {
        let Stage::Opening(held) = &mut self.stage else { return Fate::Stay };
        let bytes = held.take().map(|held| held.bytes).unwrap_or_default();
        self.decide(key, found, &bytes[found.skip..], ctx)
    }

    pub(super) fn decide(&mut self, key: Key, found: &Found, bytes: &[u8], ctx: &mut Context) -> Fate {
        if let Some(source) = found.source {
            self.record.source = plain(source);
        }
        if let Start::Tunnel(_) = found.start {
            self.record.begins(ctx.now_ms);
        }
        if ctx.log.is_some()
            && let Start::Named(name) = &found.start
        {
            self.record.server_name = Some((**name).into());
        }
        let facts = Facts { source: self.record.source.ip(), opening: found.start.opening() };
        let Some(listener) = ctx.live.listener(self.record.listener()) else { return Fate::Gone(End::Drained) };
        if listener.proxy_header && self.limited && !ctx.within_rate(facts.source) {
            return Fate::Gone(End::TooManyFromSource);
        }
        let (route, rule) = match ctx.live.table.decide(listener, &facts) {
            Decision::Connect { route, rule } => (ctx.live.routes[route.0].clone(), rule),
            // Whoever waits at the other half is told as when nobody listens.
            Decision::Refuse(Refusal::UnknownTunnel) => return self.unreachable(End::UnknownTunnel),
            Decision::Refuse(refusal) => return self.refuse(key, refusal.into(), answer(refusal), ctx),
        };
        if route.route.max_connections.is_some_and(|most| route.stats.active.load(Relaxed) >= most) {
            ctx.shared.refused(self.record.source.ip());
            return self.refuse(key, End::RouteFull, &[], ctx);
        }
        self.opened(ctx);
        self.record.decided(route, rule, ctx.now_ms);
        self.stage = Stage::Carrying;
        self.up.bytes = bytes.len() as u64;
        if let Some(tunnel) = self.record.chosen.as_ref().and_then(|chosen| chosen.route.route.stock) {
            return self.take_from_stock(key, tunnel, bytes, ctx);
        }
        match proxy_header::for_route(&self.record, found.destination, &self.client.fd) {
            Some(header) => self.connect(key, &[&*header, bytes].concat(), Tried::default(), ctx),
            None => self.connect(key, bytes, Tried::default(), ctx),
        }
    }
}

fn answer(refusal: Refusal) -> &'static [u8] {
    match refusal {
        Refusal::UnknownName | Refusal::NoName => &UNRECOGNIZED_NAME,
        Refusal::NotTls | Refusal::SourceNotAllowed | Refusal::UnknownTunnel => &[],
    }
}
