//! An answer on its way: the handler's body, and all that is held until its last byte has left.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::connection::{Link, OpenRequest};
use super::stall::Progress;
use crate::body::Body;
use crate::metrics::{Counted, Metrics, Refused};

/// A place among the requests that the server works on at once.
pub(super) struct Admission {
    pub(super) watch: bool,
    pub(super) _permit: OwnedSemaphorePermit,
    pub(super) _counted: Counted,
}

pub(super) struct Outgoing {
    body: Body,
    /// A stream has no end of its own: it ends with the server.
    stop: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    progress: Option<Progress>,
    link: Arc<Link>,
    metrics: Arc<Metrics>,
    admission: Option<Admission>,
    _open: OpenRequest,
}

impl Outgoing {
    /// Must be made by the task that will send it: it belongs to that task's stream.
    pub(super) fn new(
        body: Body,
        admission: Option<Admission>,
        (link, open): (Arc<Link>, OpenRequest),
        metrics: Arc<Metrics>,
        stop: &CancellationToken,
    ) -> Self {
        let stop = matches!(body, Body::Stream(_)).then(|| Box::pin(stop.clone().cancelled_owned()));
        Self { body, stop, progress: Progress::of_this_stream(), link, metrics, admission, _open: open }
    }

    fn is_stopped(&mut self, cx: &mut Context<'_>) -> bool {
        self.stop.as_mut().is_some_and(|stop| stop.as_mut().poll(cx).is_ready())
    }

    fn is_stalled(&self) -> bool {
        self.link.is_stalled() || self.progress.as_ref().is_some_and(Progress::is_stalled)
    }
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let outgoing = self.get_mut();
        if outgoing.is_stopped(cx) {
            outgoing.stop = None;
            outgoing.body = Body::Empty;
        }
        if let Some(progress) = &outgoing.progress {
            progress.frame_wanted();
        }
        let frame = Pin::new(&mut outgoing.body).poll_frame(cx);
        if let (Some(progress), Poll::Ready(Some(_))) = (&outgoing.progress, &frame) {
            progress.frame_taken();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if !self.is_stalled() {
            return;
        }
        match &self.admission {
            Some(Admission { watch: true, .. }) => self.metrics.watcher_dropped("stalled"),
            _ => self.metrics.refused(Refused::Stalled),
        }
    }
}
