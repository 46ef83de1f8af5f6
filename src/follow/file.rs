//! Reads a file as a server may: never more than a bound, never waiting for a pipe, with errors that an operator understands.

use std::{fs, io, io::Read as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use rustix::fs::OFlags;

/// The bytes of a file; `None` if there are more than `bound`.
///
/// Errors: what is wrong, to stand after the file's name.
pub(crate) fn read(path: &Path, bound: u64) -> Result<Option<Vec<u8>>, String> {
    let mut file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(|error| error_text(&error))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err("is no file".to_owned());
    }
    let mut bytes = Vec::new();
    let n = file.by_ref().take(bound + 1).read_to_end(&mut bytes).map_err(|error| error_text(&error))?;
    Ok(u64::try_from(n).is_ok_and(|n| n <= bound).then_some(bytes))
}

/// What the operating system said, in words, without its number.
pub(crate) fn error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "may not be read by this user".to_owned(),
        _ => error.to_string(),
    }
}
