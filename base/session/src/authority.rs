//! The cluster's authority. It signs a certificate for each key, which states the key's principal.
//!
//! Only the dispatcher has the authority's own key, so no other process can make keys or tokens.
//! The authority's certificate is in every access file, so every process can verify them.

use std::io;

use eyas_types::access::Principal;
use eyas_wire::trust::SHARED_BYTES;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A certificate and its private key, both PEM.
#[derive(Clone, Serialize, Deserialize)]
pub struct KeyAndCertificate {
    /// States the key's principal.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// Why the authority cannot make a key.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// The authority's own key is not a key.
    #[error("the authority's key: {0}")]
    Unreadable(#[source] rcgen::Error),
    /// The new key cannot be signed.
    #[error("cannot sign a key: {0}")]
    CannotSign(#[source] rcgen::Error),
}

/// The authority of a cluster, which makes keys.
#[derive(Clone, Serialize, Deserialize)]
pub struct Authority(KeyAndCertificate);

impl Authority {
    /// A new authority.
    pub fn create() -> Self {
        let key = new_key();
        let certificate = params(&[]).self_signed(&key).expect("the parameters are ours");
        Authority(KeyAndCertificate { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// The authority's certificate, PEM, for access files.
    pub fn certificate(&self) -> &str {
        &self.0.certificate
    }

    /// Makes a new key for a principal.
    ///
    /// # Errors
    /// If the authority's own key cannot be read, or cannot sign.
    pub fn issue(&self, principal: Principal) -> Result<KeyAndCertificate, AuthorityError> {
        self.issue_to(&[principal])
    }

    pub(crate) fn issue_to(
        &self,
        principals: &[Principal],
    ) -> Result<KeyAndCertificate, AuthorityError> {
        let own = KeyPair::from_pem(&self.0.key).map_err(AuthorityError::Unreadable)?;
        let key = new_key();
        let issuer = Issuer::new(params(&[]), own);
        let certificate =
            params(principals).signed_by(&key, &issuer).map_err(AuthorityError::CannotSign)?;
        Ok(KeyAndCertificate { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// A new secret for processes that share one.
///
/// # Errors
/// If the system has no randomness.
pub fn new_secret() -> io::Result<[u8; SHARED_BYTES]> {
    let mut secret = [0; SHARED_BYTES];
    let mut filled = 0;
    while filled < secret.len() {
        filled +=
            rustix::rand::getrandom(&mut secret[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(secret)
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("the system has randomness")
}

/// Parameters of the principals' certificate; without principals, of the authority's own.
fn params(principals: &[Principal]) -> CertificateParams {
    let names: Vec<_> = principals.iter().map(|principal| principal.host_name()).collect();
    let mut params =
        CertificateParams::new(names).expect("names of principals are valid host names");
    params.distinguished_name = DistinguishedName::new();
    let subject =
        principals.first().map_or("authority.eyas".to_owned(), |principal| principal.host_name());
    params.distinguished_name.push(DnType::CommonName, subject);
    params.is_ca = match principals {
        [] => IsCa::Ca(BasicConstraints::Constrained(0)),
        _ => IsCa::ExplicitNoCa,
    };
    params
}
