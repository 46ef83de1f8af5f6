//! Runs the streams of one connection inside the connection's own task: no task, no queue and no wake-up per call.
//!
//! **Invariant:** when [`Streams`] is dropped, so is every stream: a [`Spawner`], which each stream keeps, does not own them.

use std::{
    cell::RefCell,
    pin::Pin,
    rc::{Rc, Weak},
    task::{Context, Poll},
};

use futures_util::{StreamExt, stream::FuturesUnordered};

type Stream = Pin<Box<dyn Future<Output = ()>>>;

/// The open streams of a connection. Bound: the connection's `max_concurrent_streams`.
#[derive(Default)]
pub(super) struct Streams {
    /// Opened since the last poll.
    opened: Rc<RefCell<Vec<Stream>>>,
    running: FuturesUnordered<Stream>,
}

impl Streams {
    pub(super) fn spawner(&self) -> Spawner {
        Spawner(Rc::downgrade(&self.opened))
    }

    /// Whether no stream is open.
    pub(super) fn are_none(&self) -> bool {
        self.running.is_empty() && self.opened.borrow().is_empty()
    }

    /// Polls what was opened or woken; whether a stream came to its end, and so left something to be written.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        self.running.extend(self.opened.borrow_mut().drain(..));
        let mut ended = false;
        while let Poll::Ready(Some(())) = self.running.poll_next_unpin(cx) {
            ended = true;
        }
        ended
    }
}

/// hyper's way to open a stream.
#[derive(Clone)]
pub(super) struct Spawner(Weak<RefCell<Vec<Stream>>>);

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for Spawner {
    fn execute(&self, stream: F) {
        if let Some(opened) = self.0.upgrade() {
            opened.borrow_mut().push(Box::pin(stream));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::poll_fn, task::Waker};

    use hyper::rt::Executor;

    use super::*;

    #[test]
    fn a_stream_runs_when_polled_and_may_open_another() {
        let mut streams = Streams::default();
        let (spawner, n_ended) = (streams.spawner(), Rc::new(Cell::new(0)));
        let inner = Rc::clone(&n_ended);
        let outer = Rc::clone(&n_ended);
        let nested = spawner.clone();
        spawner.execute(async move {
            nested.execute(async move { inner.set(inner.get() + 1) });
            outer.set(outer.get() + 1);
        });
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(n_ended.get(), 0);
        assert!(streams.poll(&mut cx));
        assert!(streams.poll(&mut cx));
        assert_eq!(n_ended.get(), 2);
        assert!(!streams.poll(&mut cx));
        assert!(streams.are_none());
    }

    #[test]
    fn streams_end_with_their_connection() {
        let mut streams = Streams::default();
        let alive = Rc::new(());
        for polled in [true, false] {
            let (held, spawner) = (Rc::clone(&alive), streams.spawner());
            streams.spawner().execute(async move {
                let _held = (held, spawner);
                poll_fn(|_| Poll::<()>::Pending).await;
            });
            if polled {
                streams.poll(&mut Context::from_waker(Waker::noop()));
            }
        }
        assert_eq!(Rc::strong_count(&alive), 3);
        drop(streams);
        assert_eq!(Rc::strong_count(&alive), 1);
    }
}
