//! Certificate authorities made for one test, and what they sign; all as PEM.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let mut params = params(name, &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// For these names and addresses, to be shown by a server.
    pub fn server(&self, names: &[&str]) -> anyhow::Result<Pair> {
        self.sign(params("a server", names)?, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// The same for a client.
    pub fn client(&self, names: &[&str]) -> anyhow::Result<Pair> {
        self.sign(params("a client", names)?, ExtendedKeyUsagePurpose::ClientAuth)
    }

    pub fn sign(
        &self,
        mut params: CertificateParams,
        purpose: ExtendedKeyUsagePurpose,
    ) -> anyhow::Result<Pair> {
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate()?;
        Ok(Pair { certificate: params.signed_by(&key, &self.0)?.pem(), key: key.serialize_pem() })
    }
}

/// What a certificate of this name says, before it is signed.
pub fn params(name: &str, names: &[&str]) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}
