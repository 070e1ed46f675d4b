//! From a route to a connected socket: endpoint after endpoint, the next one beside the last when that takes long (happy eyeballs), as
//! long as nothing was sent to any.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::event::epoll::EventFlags;
use rustix::io::{self, Errno};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, connect, getpeername, ipproto, send, socket_with, sockopt,
};

use crate::context::Context;
use crate::live::{Endpoint, LiveRoute};
use crate::record::End;
use crate::slab::Key;
use crate::token::Token;

/// How long the first endpoint has the field for itself (RFC 8305 recommends 250 ms).
const RIVAL_AFTER_MS: u64 = 250;
/// What `connectAttempts` may be at most.
const MOST_ATTEMPTS: usize = 10;

/// Endpoints that were tried.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tried {
    endpoints: [u16; MOST_ATTEMPTS],
    count: usize,
}

impl Tried {
    fn push(&mut self, endpoint: u16) {
        self.endpoints[self.count] = endpoint;
        self.count += 1;
    }

    pub(crate) fn last(&self) -> Option<u16> {
        self.as_slice().last().copied()
    }

    fn as_slice(&self) -> &[u16] {
        &self.endpoints[..self.count]
    }

    fn used_up(&self, route: &LiveRoute) -> bool {
        self.count >= MOST_ATTEMPTS.min(route.route.connect_attempts as usize)
    }
}

/// What came of dialling.
pub(crate) enum Dialled {
    /// Connected, and so many bytes are sent already.
    Connected(OwnedFd, u16, usize),
    Connecting(OwnedFd, u16),
    /// Nobody is left to try.
    Nobody(End),
}

/// Dials endpoints until one answers, or at least does not refuse at once. `bytes` are what the winner is sent first.
pub(crate) fn dial(route: &LiveRoute, tried: &mut Tried, bytes: &[u8], now_ms: u64) -> Dialled {
    let mut failure = End::ConnectFailed;
    loop {
        if tried.used_up(route) {
            return Dialled::Nobody(failure);
        }
        let Some(endpoint) = route.pick(now_ms, tried.as_slice()) else {
            return Dialled::Nobody(if tried.count == 0 { End::NoEndpoints } else { failure });
        };
        tried.push(endpoint);
        match start(&route.endpoints[usize::from(endpoint)], bytes) {
            Ok((fd, Some(sent))) => return Dialled::Connected(fd, endpoint, sent),
            Ok((fd, None)) => return Dialled::Connecting(fd, endpoint),
            Err(errno) if is_ours(errno) => failure = End::OutOfResources,
            Err(errno) => failed(route, endpoint, errno, now_ms),
        }
    }
}

/// Whether it failed before anybody was asked: it says nothing about the endpoint. Another one may still be reached, since ports are
/// counted by destination.
pub(crate) fn is_ours(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL)
}

/// The socket and, when it is connected already, how much of `bytes` is sent.
///
/// An endpoint on the same machine has answered by the time `connect` returns, but that call says "in progress" all the same. Sending
/// tells: it either works, and saves an event and two questions to the socket, or it says "try again", and then this endpoint is not
/// asked like that for a while.
fn start(endpoint: &Endpoint, bytes: &[u8]) -> io::Result<(OwnedFd, Option<usize>)> {
    let address = endpoint.address;
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    match connect(&fd, &address) {
        Ok(()) => return Ok((fd, Some(0))),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(errno) => return Err(errno),
    }
    if bytes.is_empty() || !endpoint.seems_near() {
        return Ok((fd, None));
    }
    match send(&fd, bytes, SendFlags::NOSIGNAL) {
        Ok(sent) => Ok((fd, Some(sent))),
        Err(Errno::AGAIN | Errno::INTR) => {
            endpoint.is_not_near();
            Ok((fd, None))
        }
        Err(errno) => Err(errno),
    }
}

fn failed(route: &LiveRoute, endpoint: u16, errno: Errno, now_ms: u64) {
    route.stats.connect_failures.fetch_add(1, Relaxed);
    route.endpoint_failed(endpoint, errno, now_ms);
}

/// Attempts under way for one connection: at most two beside each other.
pub(crate) struct Connecting {
    route: Arc<LiveRoute>,
    /// The first is known to epoll as `Upstream`, the second as `Rival`.
    attempts: [Option<Attempt>; 2],
    pub(crate) tried: Tried,
    /// What the winner is sent first.
    pub(crate) bytes: Vec<u8>,
    pub(crate) begun_ms: u64,
    timed_out: bool,
}

struct Attempt {
    fd: OwnedFd,
    endpoint: u16,
    begun_ms: u64,
}

/// How things stand after an attempt began or ended.
pub(crate) enum Progress {
    UnderWay,
    Connected(OwnedFd, u16, usize),
    Nobody(End),
}

impl Connecting {
    pub(crate) fn new(
        route: Arc<LiveRoute>,
        fd: OwnedFd,
        endpoint: u16,
        tried: Tried,
        bytes: Vec<u8>,
        now_ms: u64,
    ) -> Self {
        let first = Some(Attempt { fd, endpoint, begun_ms: now_ms });
        Self { route, attempts: [first, None], tried, bytes, begun_ms: now_ms, timed_out: false }
    }

    /// When something has to happen without an event: a rival starts, or an attempt has taken too long.
    pub(crate) fn next_deadline_ms(&self) -> u64 {
        let late = self.under_way().map(|attempt| attempt.begun_ms + self.timeout_ms());
        late.chain(self.rival_due_ms()).min().unwrap_or(self.begun_ms)
    }

    /// What an event says about an attempt: the winner, or nothing, when it lost or was meant for an earlier attempt in its place.
    pub(crate) fn result(&mut self, rival: bool, flags: EventFlags, now_ms: u64) -> Option<(OwnedFd, u16)> {
        let place = &mut self.attempts[usize::from(rival)];
        let fd = &place.as_ref()?.fd;
        let (Ok(Err(errno)) | Err(errno)) = sockopt::socket_error(fd) else {
            let connected = flags.contains(EventFlags::OUT) && getpeername(fd).is_ok();
            return place.take_if(|_| connected).map(|attempt| (attempt.fd, attempt.endpoint));
        };
        let lost = place.take()?;
        failed(&self.route, lost.endpoint, errno, now_ms);
        None
    }

    pub(crate) fn drop_late(&mut self, now_ms: u64) {
        let timeout = self.timeout_ms();
        for place in &mut self.attempts {
            if let Some(late) = place.take_if(|attempt| now_ms >= attempt.begun_ms + timeout) {
                self.timed_out = true;
                self.route.stats.connect_timeouts.fetch_add(1, Relaxed);
                failed(&self.route, late.endpoint, Errno::TIMEDOUT, now_ms);
            }
        }
    }

    /// Starts what is due: a rival, or a successor of attempts that are all lost.
    pub(crate) fn advance(&mut self, key: Key, ctx: &Context) -> Progress {
        let alone = self.under_way().next().is_none();
        if !alone && self.rival_due_ms().is_none_or(|due| due > ctx.now_ms) {
            return Progress::UnderWay;
        }
        match dial(&self.route, &mut self.tried, &self.bytes, ctx.now_ms) {
            Dialled::Connected(fd, endpoint, sent) => Progress::Connected(fd, endpoint, sent),
            Dialled::Connecting(fd, endpoint) => self.began(key, fd, endpoint, ctx),
            Dialled::Nobody(_) if !alone => Progress::UnderWay,
            Dialled::Nobody(_) if self.timed_out => Progress::Nobody(End::ConnectTimeout),
            Dialled::Nobody(end) => Progress::Nobody(end),
        }
    }

    fn began(&mut self, key: Key, fd: OwnedFd, endpoint: u16, ctx: &Context) -> Progress {
        let (place, token) = match &mut self.attempts {
            [first @ None, _] => (first, Token::Upstream(key)),
            [_, rival] => (rival, Token::Rival(key)),
        };
        if ctx.watch_connecting(&fd, token).is_err() {
            return Progress::Nobody(End::OutOfResources);
        }
        *place = Some(Attempt { fd, endpoint, begun_ms: ctx.now_ms });
        Progress::UnderWay
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = &OwnedFd> {
        self.under_way().map(|attempt| &attempt.fd)
    }

    fn under_way(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().flatten()
    }

    /// When the only attempt gets company; None when it has some, or nobody is left.
    fn rival_due_ms(&self) -> Option<u64> {
        let more = !self.tried.used_up(&self.route) && self.tried.count < self.route.open.len();
        match &self.attempts {
            [Some(only), None] | [None, Some(only)] if more => Some(only.begun_ms + RIVAL_AFTER_MS),
            _ => None,
        }
    }

    fn timeout_ms(&self) -> u64 {
        u64::try_from(self.route.route.connect_timeout.as_millis()).unwrap_or(u64::MAX / 2)
    }
}
