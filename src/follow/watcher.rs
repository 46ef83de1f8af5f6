//! Hears of changes at some points of the file system, as far as it tells. Wakes; does not know what a change means.

use std::sync::mpsc::SyncSender;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use super::points::Points;

pub(super) struct Watcher {
    /// What is followed, in a word.
    what: &'static str,
    outbox: SyncSender<()>,
    /// `None` where the file system cannot be watched.
    current: Option<RecommendedWatcher>,
    /// What was last said about what cannot be watched: the same is not said again.
    complaint: Option<String>,
}

impl Watcher {
    pub fn new(what: &'static str, outbox: SyncSender<()>) -> Self {
        Self { what, outbox, current: None, complaint: None }
    }

    /// Whether all that should be watched is.
    pub fn is_whole(&self) -> bool {
        self.complaint.is_none()
    }

    /// Watches these points, and no others any more.
    ///
    /// Starts anew each time: a directory that was replaced is another one under the same name, and a watch on the old one
    /// would never wake again.
    pub fn watch(&mut self, points: &Points) {
        let complaint = match self.start(points) {
            Ok((watcher, complaint)) => {
                self.current = Some(watcher);
                complaint
            }
            Err(error) => {
                self.current = None;
                Some(error.to_string())
            }
        };
        if let Some(complaint) = &complaint
            && self.complaint.as_ref() != Some(complaint)
        {
            tracing::warn!(
                error = %complaint,
                "changes of the {} are seen late: their directories cannot be watched",
                self.what
            );
        }
        self.complaint = complaint;
    }

    /// A new watcher, and what it cannot watch, if anything.
    fn start(&self, points: &Points) -> notify::Result<(RecommendedWatcher, Option<String>)> {
        let (outbox, concern) = (self.outbox.clone(), points.clone());
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| matters(&event, &concern)) {
                // A full inbox wakes the thread as well as one more message would.
                let _ = outbox.try_send(());
            }
        })?;
        let mut complaint = None;
        for directory in points.directories() {
            if let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive)
                && !matches!(error.kind, notify::ErrorKind::PathNotFound)
            {
                complaint = Some(error.to_string());
            }
        }
        Ok((watcher, complaint))
    }
}

/// Reading is no change, least of all our own.
fn matters(event: &Event, points: &Points) -> bool {
    let heard_all = !event.need_rescan() && !event.paths.is_empty();
    !matches!(event.kind, EventKind::Access(_))
        && (!heard_all || event.paths.iter().any(|path| points.concern(path)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use notify::event::{AccessKind, AccessMode, Flag, ModifyKind};
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn reading_is_no_change_and_a_lost_event_may_be_one() {
        let temp = TempDir::new().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        fs::create_dir(dir.join("rules")).unwrap();
        let mut points = Points::default();
        points.add_entry(&dir.join("rules"));
        points.add_directory(&dir.join("rules"));
        let event = |kind, path: &str| Event::new(kind).add_path(dir.join(path));
        let changed = EventKind::Modify(ModifyKind::Any);
        let read = EventKind::Access(AccessKind::Open(AccessMode::Read));

        assert!(matters(&event(changed, "rules/a.yaml"), &points));
        assert!(matters(&event(changed, "rules"), &points));
        assert!(!matters(&event(read, "rules/a.yaml"), &points));
        assert!(!matters(&event(changed, "beside"), &points));
        assert!(!matters(&event(changed, "rules/deep/a.yaml"), &points));
        assert!(matters(&Event::new(EventKind::Other).set_flag(Flag::Rescan), &points));
        assert!(matters(&Event::new(changed), &points));
    }
}
