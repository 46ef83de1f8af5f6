//! A value for each worker thread, so that two cores do not fight over a cache line on every call; summed when read.

use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

use crossbeam_utils::CachePadded;

/// How many copies there are. More threads than this share copies: correct, only slower.
const COPIES: usize = 4;

/// Copies of `T`, one for each of the first threads that asks. `T` brings its own atomics.
#[derive(Debug, Default)]
pub struct PerWorker<T>([CachePadded<T>; COPIES]);

impl<T> PerWorker<T> {
    /// The copy of this thread.
    pub fn mine(&self) -> &T {
        let [first, ..] = &self.0;
        self.0.get(this_thread() % COPIES).unwrap_or(first)
    }

    /// All copies, to be summed.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|copy| &**copy)
    }
}

/// A small number of this thread's own, given out in order of first use.
fn this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<Option<usize>> = const { Cell::new(None) };
    }
    MINE.with(|mine| {
        mine.get().unwrap_or_else(|| {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            mine.set(Some(n));
            n
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn nothing_is_lost_between_threads() {
        let counter = PerWorker::<AtomicU64>::default();
        std::thread::scope(|scope| {
            for _ in 0..9 {
                scope.spawn(|| (0..1000).for_each(|_| _ = counter.mine().fetch_add(1, Ordering::Relaxed)));
            }
        });
        assert_eq!(counter.all().map(|copy| copy.load(Ordering::Relaxed)).sum::<u64>(), 9000);
    }
}
