//! The wall clock of a server under test, turned by hand. It moves what `TIME` says and what has expired.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use tempfile::TempDir;

/// A clock that stands still until it is set. One can be given to several servers.
pub struct ServerClock {
    folder: TempDir,
    file: File,
}

impl ServerClock {
    /// A clock that stands at `micros` since 1970. Takes the C compiler that also links our own programs.
    pub fn at(micros: u64) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/redis/clock.c");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.path().join("clock.so")).arg(source);
        ensure!(compile.status().context("cannot run cc")?.success(), "cc refused clock.c");
        let clock = Self { file: File::create(folder.path().join("clock"))?, folder };
        clock.set(micros)?;
        Ok(clock)
    }

    /// At once, for every command from now on.
    pub fn set(&self, micros: u64) -> anyhow::Result<()> {
        Ok(self.file.write_all_at(&micros.to_ne_bytes(), 0)?)
    }

    /// What the environment of a server must say so that it goes by this clock.
    pub fn environment(&self) -> [String; 2] {
        let folder = self.folder.path().display();
        [format!("LD_PRELOAD={folder}/clock.so"), format!("TEST_CLOCK={folder}/clock")]
    }
}
