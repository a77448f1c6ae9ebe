//! The cluster's authority: it signs a certificate for each key, which says whose the key is.
//!
//! Only the dispatcher has the authority's own key, so that nobody else can make keys or tokens; its certificate is in
//! every access file, so that everybody can check them.

use std::io;

use eyas_types::access::Principal;
use eyas_wire::trust::SHARED_BYTES;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use serde::{Deserialize, Serialize};

/// A certificate, and the key that belongs to it, both PEM.
#[derive(Clone, Serialize, Deserialize)]
pub struct Certified {
    /// Says whose the key is.
    pub certificate: String,
    /// The secret.
    pub key: String,
}

/// What makes keys.
#[derive(Clone, Serialize, Deserialize)]
pub struct Authority(Certified);

impl Authority {
    /// A new authority, which nothing trusts yet.
    pub fn create() -> Self {
        let key = new_key();
        let certificate = params(&[]).self_signed(&key).expect("the parameters are ours");
        Authority(Certified { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Its certificate, PEM: for access files.
    pub fn certificate(&self) -> &str {
        &self.0.certificate
    }

    /// A new key of this holder.
    ///
    /// # Errors
    /// If the authority's own key cannot be read: for a person.
    pub fn issue(&self, holder: Principal) -> Result<Certified, String> {
        self.issue_to(&[holder])
    }

    pub(crate) fn issue_to(&self, holders: &[Principal]) -> Result<Certified, String> {
        let own = KeyPair::from_pem(&self.0.key).map_err(|e| format!("the authority's key: {e}"))?;
        let key = new_key();
        let issuer = Issuer::new(params(&[]), own);
        let certificate = params(holders).signed_by(&key, &issuer).map_err(|e| format!("cannot sign a key: {e}"))?;
        Ok(Certified { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// A new secret for those who share one.
///
/// # Errors
/// If the system has no randomness.
pub fn new_secret() -> io::Result<[u8; SHARED_BYTES]> {
    let mut secret = [0; SHARED_BYTES];
    let mut filled = 0;
    while filled < secret.len() {
        filled += rustix::rand::getrandom(&mut secret[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(secret)
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("the system has randomness")
}

/// Of the holders' certificate; of the authority's own, if there are none.
fn params(holders: &[Principal]) -> CertificateParams {
    let names: Vec<_> = holders.iter().map(|holder| holder.host_name()).collect();
    let mut params = CertificateParams::new(names).expect("holders' names are valid host names");
    params.distinguished_name = DistinguishedName::new();
    let subject = holders.first().map_or("authority.eyas".to_owned(), |holder| holder.host_name());
    params.distinguished_name.push(DnType::CommonName, subject);
    params.is_ca = match holders {
        [] => IsCa::Ca(BasicConstraints::Constrained(0)),
        _ => IsCa::ExplicitNoCa,
    };
    params
}
