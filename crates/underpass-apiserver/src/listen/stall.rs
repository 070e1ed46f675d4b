//! Peers that do not read.
//!
//! Two things can stand still. The socket: the peer's kernel takes no more bytes, so nothing can be saved and the connection ends
//! ([`StallingStream`]). Or one HTTP/2 stream: the peer reads the connection but grants this stream no window; then only that stream
//! is reset and its neighbours go on. hyper has no timer for the latter, but it hands each stream to an executor as a future, and
//! dropping that future resets the stream ([`StreamExecutor`]). The body says how it goes through [`Progress`].

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::connection::Link;

tokio::task_local! {
    static PROGRESS: Progress;
}

/// How the body of one HTTP/2 response goes: a frame that was taken, with no other asked for since, waits for the peer's window.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(Arc<Mutex<State>>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Flowing,
    Waiting(Instant),
    Stalled,
}

impl Progress {
    /// Of the stream whose task calls; `None` on HTTP/1.1, where the socket tells.
    pub(super) fn of_this_stream() -> Option<Self> {
        PROGRESS.try_with(Self::clone).ok()
    }

    pub(super) fn frame_wanted(&self) {
        *self.0.lock() = State::Flowing;
    }

    pub(super) fn frame_taken(&self) {
        *self.0.lock() = State::Waiting(Instant::now());
    }

    pub(super) fn is_stalled(&self) -> bool {
        *self.0.lock() == State::Stalled
    }

    fn poll_stalled(&self, limit: Duration, mut timer: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<()> {
        let State::Waiting(since) = *self.0.lock() else { return Poll::Pending };
        timer.as_mut().reset(since + limit);
        ready!(timer.poll(cx));
        *self.0.lock() = State::Stalled;
        Poll::Ready(())
    }
}

/// Runs the streams of an HTTP/2 connection and drops those that stall.
#[derive(Clone)]
pub(super) struct StreamExecutor {
    pub(super) limit: Duration,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(run_until_stalled(stream, self.limit));
    }
}

/// The body is polled inside the stream, so its progress can only have changed when the stream was polled.
async fn run_until_stalled(stream: impl Future<Output = ()>, limit: Duration) {
    let progress = Progress::default();
    let mut stream = pin!(PROGRESS.scope(progress.clone(), stream));
    let mut timer = pin!(sleep(limit));
    std::future::poll_fn(|cx| match stream.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => progress.poll_stalled(limit, timer.as_mut(), cx),
    })
    .await;
}

/// A socket whose writes fail when the peer takes nothing for too long; every byte it takes starts the time anew.
pub(super) struct StallingStream<S> {
    stream: S,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    waiting: bool,
    link: Arc<Link>,
}

impl<S> StallingStream<S> {
    pub(super) fn new(stream: S, limit: Duration, link: Arc<Link>) -> Self {
        Self { stream, limit, timer: Box::pin(sleep(limit)), waiting: false, link }
    }

    fn watch(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        if !self.waiting {
            self.waiting = true;
            self.timer.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(self.timer.as_mut().poll(cx));
        self.link.set_stalled();
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallingStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallingStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up_and_one_that_is_slow_is_not() {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let link = Arc::new(Link::new());
        let mut stream = StallingStream::new(ours, LIMIT, link.clone());
        let slow_reader = async {
            for _ in 0..64 {
                sleep(LIMIT * 9 / 10).await;
                theirs.read_exact(&mut [0; 1]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(&[0; 64]), slow_reader);
        written.unwrap();
        assert!(!link.is_stalled());
        let start = Instant::now();
        let error = stream.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(link.is_stalled());
        assert_eq!(start.elapsed().as_secs(), LIMIT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_dropped_when_its_frame_is_not_followed_by_another() {
        let start = Instant::now();
        run_until_stalled(
            async {
                let progress = Progress::of_this_stream().unwrap();
                for _ in 0..10 {
                    progress.frame_taken();
                    sleep(LIMIT * 9 / 10).await;
                    progress.frame_wanted();
                    sleep(LIMIT * 10).await;
                }
                progress.frame_taken();
                std::future::pending::<()>().await;
            },
            LIMIT,
        )
        .await;
        assert_eq!(start.elapsed().as_secs(), (LIMIT * 109 + LIMIT).as_secs());
    }
}
