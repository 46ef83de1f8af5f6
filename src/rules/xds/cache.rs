//! The last good snapshot on disk, so that a restart while the control plane is away still limits.
//!
//! **Invariants:** the file is whole or it is not taken: it is written beside its place and moved there, and carries a
//! checksum; whatever is wrong with it is a warning.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use prost::Message as _;
use prost_types::Any;
use sha2::{Digest as _, Sha256};

use crate::pb::xds_cache::{File as Contents, Snapshot};

/// The file in the directory.
pub const FILE: &str = "tidegate-snapshot.pb";

const FORMAT: u32 = 1;

/// The largest file that is read or written, in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// Where a snapshot is kept, and whose it is.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    directory: PathBuf,
    node_id: String,
}

/// What was kept.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kept {
    pub version: String,
    pub resources: Vec<Any>,
}

/// What was found.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    pub kept: Kept,
    /// Since it was written, as far as the clocks tell.
    pub age: Duration,
}

impl Cache {
    pub fn new(directory: PathBuf, node_id: &str) -> Self {
        Self { directory, node_id: node_id.to_owned() }
    }

    pub fn file(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// What is there; `None` if nothing was ever kept.
    ///
    /// Errors: why it cannot be taken, in words.
    pub fn read(&self) -> Result<Option<Found>, String> {
        let file = match File::open(self.file()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        if !metadata.is_file() {
            return Err("is no file".to_owned());
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(format!("is larger than {} MiB", MAX_BYTES >> 20));
        }
        let snapshot = unpack(&bytes)?;
        if snapshot.node_id != self.node_id {
            return Err(format!("is of node '{}', and this is '{}'", snapshot.node_id, self.node_id));
        }
        let age = metadata.modified().ok().and_then(|moment| moment.elapsed().ok()).unwrap_or_default();
        let Snapshot { version, resources, .. } = snapshot;
        Ok(Some(Found { kept: Kept { version, resources }, age }))
    }

    /// Puts a snapshot in the place of the one before.
    ///
    /// Errors: the one before is still there.
    pub fn write(&self, kept: &Kept) -> io::Result<()> {
        let bytes = self.pack(kept);
        if bytes.len() as u64 > MAX_BYTES {
            return Err(io::Error::other(format!("it would be larger than {} MiB", MAX_BYTES >> 20)));
        }
        fs::create_dir_all(&self.directory)?;
        // Two processes that share the directory do not write the same file.
        let beside = self.directory.join(format!("{FILE}.{}.new", std::process::id()));
        let written = write_all(&beside, &bytes).and_then(|()| fs::rename(&beside, self.file()));
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written?;
        File::open(&self.directory)?.sync_all()
    }

    fn pack(&self, kept: &Kept) -> Vec<u8> {
        let Kept { version, resources } = kept.clone();
        let snapshot = Snapshot { node_id: self.node_id.clone(), version, resources }.encode_to_vec();
        let checksum = Sha256::digest(&snapshot).to_vec();
        Contents { format: FORMAT, checksum, snapshot }.encode_to_vec()
    }
}

fn unpack(bytes: &[u8]) -> Result<Snapshot, String> {
    let contents = Contents::decode(bytes).map_err(|_| "is damaged".to_owned())?;
    if contents.format != FORMAT {
        return Err(format!("has format {}, this version reads {FORMAT}", contents.format));
    }
    if contents.checksum != Sha256::digest(&contents.snapshot).as_slice() {
        return Err("is damaged: its checksum is wrong".to_owned());
    }
    Snapshot::decode(contents.snapshot.as_slice()).map_err(|_| "is damaged".to_owned())
}

fn write_all(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn kept(version: &str) -> Kept {
        let resource = Any { type_url: "type/of.It".to_owned(), value: b"\x0a\x01d".to_vec() };
        Kept { version: version.to_owned(), resources: vec![resource; 3] }
    }

    fn cache(temp: &TempDir) -> Cache {
        Cache::new(temp.path().join("made/when/needed"), "node")
    }

    #[test]
    fn what_was_kept_last_is_found() {
        let temp = TempDir::new().unwrap();
        let cache = cache(&temp);
        assert_eq!(cache.read(), Ok(None));
        for version in ["1", "2"] {
            cache.write(&kept(version)).unwrap();
            assert_eq!(cache.read().unwrap().unwrap().kept, kept(version));
        }
        let files: Vec<_> =
            fs::read_dir(&cache.directory).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(files, [cache.file()], "nothing is left beside it");
    }

    #[test]
    fn every_damage_is_noticed() {
        let temp = TempDir::new().unwrap();
        let cache = cache(&temp);
        cache.write(&kept("1")).unwrap();
        let good = fs::read(cache.file()).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x41;
            fs::write(cache.file(), &bad).unwrap();
            assert!(cache.read().is_err(), "byte {at}");
            fs::write(cache.file(), &good[..at]).unwrap();
            assert!(cache.read().is_err(), "cut at {at}");
        }
        fs::write(cache.file(), b"domain: d\n").unwrap();
        assert!(cache.read().is_err());
    }

    #[test]
    fn a_snapshot_of_another_node_or_format_is_not_taken() {
        let temp = TempDir::new().unwrap();
        let cache = cache(&temp);
        cache.write(&kept("1")).unwrap();
        let other = Cache { node_id: "other".to_owned(), ..cache.clone() };
        assert_eq!(other.read(), Err("is of node 'node', and this is 'other'".to_owned()));
        let newer = Contents { format: 2, ..Contents::decode(&*fs::read(cache.file()).unwrap()).unwrap() };
        fs::write(cache.file(), newer.encode_to_vec()).unwrap();
        assert_eq!(cache.read(), Err("has format 2, this version reads 1".to_owned()));
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_an_error_and_no_more() {
        let temp = TempDir::new().unwrap();
        fs::write(temp.path().join("file"), b"").unwrap();
        let cache = Cache::new(temp.path().join("file/below"), "node");
        assert!(cache.write(&kept("1")).is_err());
        assert!(cache.read().is_err());
    }
}
