//! On throwaway certificates and real directories.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tempfile::TempDir;

use super::{server::Serving, *};
use crate::{
    clock::UnixMicros,
    follow::{Followed as _, Pace},
};

const DAY: u64 = 86_400;

/// 2030-01-01, in seconds.
const NEW_YEAR: u64 = 1_893_456_000;

/// A certificate that signed itself, valid from 2020 to the first of January of a year, and its key. PEM.
fn pair(until: i32) -> (String, String) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(until, 1, 1));
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn write(dir: &Path, (certificate, key): &(String, String)) {
    fs::write(dir.join("tls.crt"), certificate).unwrap();
    fs::write(dir.join("tls.key"), key).unwrap();
}

fn files(dir: &Path) -> Files {
    Files { certificate: dir.join("tls.crt"), key: dir.join("tls.key"), clients: None }
}

fn build(files: &Files) -> Result<Serving, String> {
    files.read().and_then(|contents| files.build(&contents)).map_err(|error| error.to_string())
}

#[test]
fn a_certificate_says_when_it_is_valid() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), &pair(2030));
    let validity = build(&files(dir.path())).unwrap().validity.unwrap();
    assert_eq!(validity.not_before.secs(), 1_577_836_800);
    assert_eq!(validity.not_after.secs(), NEW_YEAR);
}

#[test]
fn what_cannot_be_used_is_named_with_its_setting_and_file() {
    let dir = TempDir::new().unwrap();
    let (good, other) = (pair(2030), pair(2030));
    let (certificate, key, ca) =
        (dir.path().join("tls.crt"), dir.path().join("tls.key"), dir.path().join("ca.crt"));
    let says = |files: &Files, setting: &str, path: &Path, why: &str| {
        let error = build(files).unwrap_err();
        assert_eq!(error, format!("{setting}={}: {why}", path.display()));
    };
    let files = files(dir.path());
    says(&files, "GRPC_SERVER_TLS_CERT", &certificate, "does not exist");
    fs::write(&certificate, "nothing").unwrap();
    says(&files, "GRPC_SERVER_TLS_KEY", &key, "does not exist");
    fs::write(&key, &good.0).unwrap();
    says(&files, "GRPC_SERVER_TLS_CERT", &certificate, "no certificate in PEM form is in it");
    fs::write(&certificate, &good.0).unwrap();
    let why = "no private key in PEM form is in it, at least none without a password";
    says(&files, "GRPC_SERVER_TLS_KEY", &key, why);
    fs::write(&key, &other.1).unwrap();
    let why = format!("it does not belong to the key in {}", key.display());
    says(&files, "GRPC_SERVER_TLS_CERT", &certificate, &why);
    fs::write(&key, &good.1).unwrap();
    let files = Files { clients: Some(Clients { authorities: ca.clone(), name: None }), ..files };
    says(&files, "GRPC_CLIENT_TLS_CACERT", &ca, "does not exist");
    fs::write(&ca, "").unwrap();
    says(&files, "GRPC_CLIENT_TLS_CACERT", &ca, "no certificate in PEM form is in it");
    fs::write(&ca, vec![b' '; (1 << 20) + 1]).unwrap();
    says(&files, "GRPC_CLIENT_TLS_CACERT", &ca, "is larger than 1 MiB, the most that it may have");
    fs::write(&ca, &other.0).unwrap();
    build(&files).unwrap();
}

#[test]
fn the_end_is_near_a_week_before_it_or_a_fifth_of_a_short_life() {
    let validity = |days| Validity {
        not_before: UnixMicros::from_secs(NEW_YEAR),
        not_after: UnixMicros::from_secs(NEW_YEAR + days * DAY),
    };
    let standing = |days, secs| validity(days).standing(UnixMicros::from_secs(NEW_YEAR + secs));
    assert_eq!(validity(1).standing(UnixMicros::from_secs(NEW_YEAR - 1)), Standing::NotYet);
    assert_eq!(standing(365, 358 * DAY), Standing::Fine);
    assert_eq!(standing(365, 358 * DAY + 1), Standing::Near);
    assert_eq!(standing(1, DAY * 4 / 5), Standing::Fine);
    assert_eq!(standing(1, DAY * 4 / 5 + 1), Standing::Near);
    assert_eq!(standing(1, DAY), Standing::Near);
    assert_eq!(standing(1, DAY + 1), Standing::Expired);
}

#[test]
fn the_end_is_spoken_of_once_a_day_and_when_something_changes() {
    let at = |secs| UnixMicros::from_secs(NEW_YEAR + secs);
    let validity = Validity { not_before: at(0), not_after: at(100 * DAY) };
    let mut reminder = Reminder::default();
    for (secs, said) in [
        (0, None),
        (94 * DAY, Some(Standing::Near)),
        (94 * DAY + 60, None),
        (95 * DAY, Some(Standing::Near)),
        (100 * DAY + 1, Some(Standing::Expired)),
        (100 * DAY + 60, None),
    ] {
        assert_eq!(reminder.look(&validity, at(secs)), said, "{secs}");
    }
    let renewed = Validity { not_after: at(200 * DAY), ..validity };
    assert_eq!(reminder.look(&renewed, at(101 * DAY)), None);
    assert_eq!(reminder.look(&validity, at(101 * DAY)), Some(Standing::Expired), "a new one is news again");
}

#[test]
fn a_key_is_not_shown() {
    let dir = TempDir::new().unwrap();
    let pair = pair(2030);
    write(dir.path(), &pair);
    let tls = Reloader::load(files(dir.path())).unwrap().tls();
    let secret = pair.1.lines().nth(1).unwrap();
    assert!(!format!("{tls:?}").contains(secret));
    fs::write(dir.path().join("tls.crt"), &pair.1).unwrap();
    assert!(!build(&files(dir.path())).unwrap_err().contains(secret));
}

/// Quick, and without the poll, so that what is seen was heard of.
const PACE: Pace = Pace {
    quiet: Duration::from_millis(30),
    longest_wait: Duration::from_secs(1),
    poll: Duration::from_secs(3600),
    poll_unwatched: Duration::from_secs(3600),
};

/// Files as the kubelet mounts a Secret: links through `..data`, which is swapped.
struct Secret(PathBuf);

impl Secret {
    fn put(&self, version: &str, pair: &(String, String)) {
        fs::create_dir(self.0.join(version)).unwrap();
        write(&self.0.join(version), pair);
        symlink(version, self.0.join("..data_tmp")).unwrap();
        fs::rename(self.0.join("..data_tmp"), self.0.join("..data")).unwrap();
    }
}

/// Waits until so many loads were taken and refused.
async fn loads(tls: &Tls, taken: u64, refused: u64) {
    let seen = async {
        while tls.reloads() != (taken, refused) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen).await.expect("a change that is seen");
}

#[tokio::test]
async fn certificates_follow_their_files_and_broken_ones_change_nothing() {
    let dir = TempDir::new().unwrap();
    let secret = Secret(dir.path().to_owned());
    secret.put("..1", &pair(2030));
    for name in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(name), dir.path().join(name)).unwrap();
    }
    let reloader = Reloader::load(files(dir.path())).unwrap().with_pace(PACE);
    let tls = reloader.tls();
    let handle = reloader.start().unwrap();
    let until = || tls.validity().unwrap().not_after.secs();
    assert_eq!(until(), NEW_YEAR);

    secret.put("..2", &pair(2031));
    loads(&tls, 1, 0).await;
    assert_eq!((until(), tls.is_stale()), (NEW_YEAR + 365 * DAY, false));

    secret.put("..3", &(pair(2032).0, pair(2032).1));
    loads(&tls, 1, 1).await;
    assert_eq!((until(), tls.is_stale()), (NEW_YEAR + 365 * DAY, true), "they do not belong together");

    secret.put("..4", &pair(2034));
    loads(&tls, 2, 1).await;
    assert_eq!((until(), tls.is_stale()), (NEW_YEAR + (4 * 365 + 1) * DAY, false));

    handle.reload_now();
    loads(&tls, 3, 1).await;
}

#[test]
fn what_has_not_changed_is_not_loaded_again() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), &pair(2030));
    let mut state = Reloader::load(files(dir.path())).unwrap().state;
    assert!(state.load_if_changed().is_none());
    fs::remove_file(dir.path().join("tls.key")).unwrap();
    assert!(state.load_if_changed().unwrap().is_err());
    assert!(state.load_if_changed().is_none(), "what is wrong is told once");
}
