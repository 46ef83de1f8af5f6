//! Certificates made for one test: an authority, what it signed for a server and a client, and what a client must not trust.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use tempfile::TempDir;

/// Where the PEM files lie, as long as this value lives.
pub struct Certificates {
    _folder: TempDir,
    pub authority: PathBuf,
    pub server: Pair,
    pub client: Pair,
}

pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// What is right or wrong with the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerName {
    /// For 127.0.0.1 and localhost.
    Right,
    /// For 127.0.0.1 alone: no name.
    AddressOnly,
    /// For another host.
    Wrong,
    /// For 127.0.0.1, until the year 2001.
    Expired,
}

impl Certificates {
    /// A new authority, which nobody else trusts, and what it signed.
    pub fn of(name: ServerName) -> anyhow::Result<Arc<Self>> {
        let home = TempDir::new()?;
        let folder = home.path();
        let mut params = params("an authority of this test", &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let path = folder.join("authority.pem");
        fs::write(&path, authority.pem())?;

        let names: &[&str] = match name {
            ServerName::Right => &["localhost", "127.0.0.1"],
            ServerName::AddressOnly | ServerName::Expired => &["127.0.0.1"],
            ServerName::Wrong => &["another.example"],
        };
        let mut server = self::params("a server", names)?;
        if name == ServerName::Expired {
            (server.not_before, server.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
        }
        // Nodes of a cluster and a replica are clients of each other with the server's certificate.
        server.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let mut client = self::params("a client", &[])?;
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(Arc::new(Self {
            authority: path,
            server: sign(server, &authority, folder, "server")?,
            client: sign(client, &authority, folder, "client")?,
            _folder: home,
        }))
    }
}

fn params(name: &str, subject_alt_names: &[&str]) -> anyhow::Result<CertificateParams> {
    let mut params =
        CertificateParams::new(subject_alt_names.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

fn sign(
    params: CertificateParams,
    authority: &CertifiedIssuer<'_, KeyPair>,
    folder: &Path,
    name: &str,
) -> anyhow::Result<Pair> {
    let key = KeyPair::generate()?;
    let pair =
        Pair { certificate: folder.join(format!("{name}.pem")), key: folder.join(format!("{name}.key")) };
    fs::write(&pair.certificate, params.signed_by(&key, authority)?.pem())?;
    fs::write(&pair.key, key.serialize_pem())?;
    Ok(pair)
}
