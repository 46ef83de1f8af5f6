//! What a test has logged.

use std::sync::Arc;

use parking_lot::Mutex;

/// Log lines of this thread.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub(crate) fn watch(self) -> tracing::subscriber::DefaultGuard {
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || self.clone()).with_ansi(false).finish();
        tracing::subscriber::set_default(subscriber)
    }

    pub(crate) fn get(&self) -> Vec<String> {
        String::from_utf8(self.0.lock().clone()).unwrap().lines().map(str::to_owned).collect()
    }
}

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
