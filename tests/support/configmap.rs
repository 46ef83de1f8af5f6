//! A ConfigMap as the kubelet mounts it: the files are links into `..data`, a link itself, and a change is one swap of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

pub struct ConfigMap {
    folder: PathBuf,
    n_versions: u32,
}

impl ConfigMap {
    /// Mounts these files, names and texts, at a folder.
    pub fn mount<N: AsRef<str>, T: AsRef<str>>(folder: &Path, files: &[(N, T)]) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut mounted = Self { folder: folder.to_owned(), n_versions: 0 };
        mounted.swap(files)?;
        for (name, _) in files {
            symlink(format!("..data/{}", name.as_ref()), folder.join(name.as_ref()))?;
        }
        Ok(mounted)
    }

    /// What happens after `kubectl apply`: the new files are written beside the old, the link is replaced, the old ones go.
    /// Names stay what they were.
    pub fn swap<N: AsRef<str>, T: AsRef<str>>(&mut self, files: &[(N, T)]) -> anyhow::Result<()> {
        let version = |n: u32| format!("..2026_01_02_03_04_05.{n}");
        self.n_versions += 1;
        let new = version(self.n_versions);
        fs::create_dir(self.folder.join(&new))?;
        for (name, text) in files {
            fs::write(self.folder.join(&new).join(name.as_ref()), text.as_ref())?;
        }
        let fresh = self.folder.join("..data_tmp");
        symlink(&new, &fresh)?;
        fs::rename(fresh, self.folder.join("..data"))?;
        if self.n_versions > 1 {
            fs::remove_dir_all(self.folder.join(version(self.n_versions - 1)))?;
        }
        Ok(())
    }
}
