//! TLS 1.3 with one certificate for the whole cluster, which both ends have and both ends demand.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
};

use crate::access::Access;

/// The name in the certificate. Nobody is looked up by it: the certificate itself is what is compared.
pub(crate) const SERVER_NAME: &str = "dispatcher.eyas";

/// The cluster's certificate and key, parsed.
pub(crate) struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    pub fn of(access: &Access) -> Result<Self, String> {
        let certificate = CertificateDer::from_pem_slice(access.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(access.key.as_bytes());
        Ok(Identity {
            certificate: certificate.map_err(|e| format!("its certificate: {e}"))?,
            key: key.map_err(|e| format!("its key: {e}"))?,
        })
    }

    pub fn server(self) -> Result<ServerConfig, Error> {
        let pinned = Pinned::new(&self.certificate);
        let builder = ServerConfig::builder_with_provider(pinned.provider.clone());
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
        builder.with_client_cert_verifier(pinned).with_single_cert(vec![self.certificate], self.key)
    }

    pub fn client(self) -> Result<ClientConfig, Error> {
        let pinned = Pinned::new(&self.certificate);
        let builder = ClientConfig::builder_with_provider(pinned.provider.clone());
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
        let builder = builder.dangerous().with_custom_certificate_verifier(pinned);
        builder.with_client_auth_cert(vec![self.certificate], self.key)
    }
}

/// Accepts exactly one certificate, from whoever proves to have its key.
#[derive(Debug)]
struct Pinned {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn new(certificate: &CertificateDer<'static>) -> Arc<Self> {
        Arc::new(Pinned { certificate: certificate.clone(), provider: Arc::new(ring::default_provider()) })
    }

    fn is_ours(&self, other: &CertificateDer<'_>) -> Result<(), Error> {
        if *other == self.certificate {
            return Ok(());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn has_key(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.is_ours(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.has_key(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.is_ours(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.has_key(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
