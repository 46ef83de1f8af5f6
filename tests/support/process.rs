//! A child process with its output in a file; it ends, at the latest, when its [`Process`] is dropped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

/// How often a condition outside of this process is looked at: far below what a test waits for, far above what a look costs.
pub const LOOK_EVERY: Duration = Duration::from_millis(10);

pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, its standard output and error appended to `log`.
    pub fn spawn(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child, log: log.to_owned() })
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// False when the process is gone already.
    pub fn signal(&mut self, signal: Signal) -> anyhow::Result<bool> {
        if !self.is_running() {
            return Ok(false);
        }
        kill_process(Pid::from_child(&self.child), signal)?;
        Ok(true)
    }

    /// Waits for the end of the process; none when it still runs after `within`.
    pub async fn exit(&mut self, within: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + within;
        loop {
            let status = self.child.try_wait()?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// What it has printed so far.
    pub fn output(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
