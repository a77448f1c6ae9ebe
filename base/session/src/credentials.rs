//! A process's key, the peers that it accepts, and the TLS settings that follow from both.
//!
//! TLS 1.3, with certificates on both sides. A certificate is accepted if the cluster's authority
//! has signed it and its principal is trusted *now*: keys are replaced while a cluster runs, so
//! each handshake checks again. For the same reason TLS sessions are never resumed: a resumed
//! session would skip the check.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use eyas_types::access::Principal;
use eyas_wire::trust::{SHARED_BYTES, Trust, TrustRefusal};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use tokio::sync::watch;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::authority::KeyAndCertificate;
use crate::suites;

/// The server name in TLS handshakes. It is the same for all servers; certificates decide which
/// servers are accepted.
pub const SERVER_NAME: &str = "eyas";

/// A process's key and trust. Clones share them, also when keys are replaced.
#[derive(Clone)]
pub struct Credentials {
    state: Arc<State>,
    to_dispatcher: Arc<ClientConfig>,
    to_node: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The authority's certificate cannot be read.
    #[error("the certificate of its authority cannot be read")]
    Authority(#[source] pem::Error),
    /// The key's certificate cannot be read.
    #[error("its certificate cannot be read")]
    Certificate(#[source] pem::Error),
    /// The private key cannot be read.
    #[error("its key cannot be read")]
    Key(#[source] pem::Error),
    /// The private key does not belong to the certificate.
    #[error("its key is damaged, or belongs to another certificate")]
    OtherKey(#[source] rustls::Error),
    /// The authority has not signed the certificate.
    #[error("its authority has not signed its certificate")]
    NotSigned(#[source] rustls::Error),
    /// TLS does not accept the settings.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

impl CredentialsError {
    /// The key of the access file with the damage.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            CredentialsError::Authority(_) => "authority",
            CredentialsError::Certificate(_) | CredentialsError::NotSigned(_) => "certificate",
            CredentialsError::Key(_) | CredentialsError::OtherKey(_) => "key",
            CredentialsError::Tls(_) => "cluster",
        }
    }
}

/// The part of the credentials that changes while the process runs.
struct State {
    authority: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
    own: RwLock<Arc<CertifiedKey>>,
    trust: watch::Sender<Arc<Trust>>,
}

impl Credentials {
    /// Credentials with the key `own`, which accept certificates that `authority` (PEM) has signed.
    pub(crate) fn new(
        authority: &str,
        own: &KeyAndCertificate,
        trust: Trust,
    ) -> Result<Self, CredentialsError> {
        let provider = Arc::new(suites::provider());
        let authority = CertificateDer::from_pem_slice(authority.as_bytes())
            .map_err(CredentialsError::Authority)?;
        let own = certified_key(own, &provider)?;
        let trust = watch::Sender::new(Arc::new(trust));
        let state = Arc::new(State { authority, provider, own: RwLock::new(Arc::new(own)), trust });
        state
            .signed(&state.own().cert[0], KeyUsage::client_auth())
            .map_err(CredentialsError::NotSigned)?;
        Ok(Credentials {
            to_dispatcher: state.client(ExpectedServer::Dispatcher)?,
            to_node: state.client(ExpectedServer::Node)?,
            server: state.server()?,
            state,
        })
    }

    /// TLS settings for connections to the dispatcher; other peers are not accepted.
    pub fn to_dispatcher(&self) -> &Arc<ClientConfig> {
        &self.to_dispatcher
    }

    /// TLS settings for connections to executors and nodes of the file system.
    pub fn to_node(&self) -> &Arc<ClientConfig> {
        &self.to_node
    }

    /// TLS settings for servers. Clients without a certificate are refused.
    pub fn server(&self) -> &Arc<ServerConfig> {
        &self.server
    }

    /// The principal of this process.
    pub fn holder(&self) -> Principal {
        let own = self.state.own();
        holders(&own.cert[0])
            .ok()
            .and_then(|holders| one_of(&holders))
            .expect("checked when it was taken over")
    }

    /// The principal of these certificates, which were verified in a handshake.
    ///
    /// # Errors
    /// If there is no certificate, or none with the name of a principal.
    pub fn peer(certificates: Option<&[CertificateDer<'_>]>) -> Result<Principal, Error> {
        let certificate =
            certificates.and_then(|shown| shown.first()).ok_or(Error::NoCertificatesPresented)?;
        one_of(&holders(certificate)?).ok_or(not_ours())
    }

    /// The cluster's trust, as this process was last told.
    pub fn trust(&self) -> Arc<Trust> {
        self.state.trust.borrow().clone()
    }

    /// Replaces the trust.
    pub fn learn(&self, trust: Trust) {
        self.state.trust.send_if_modified(|known| {
            let is_new = **known != trust;
            if is_new {
                *known = Arc::new(trust);
            }
            is_new
        });
    }

    /// Replaces the key of this process.
    ///
    /// # Errors
    /// If the cluster's authority has not signed the new key.
    pub fn adopt(&self, own: &KeyAndCertificate) -> Result<(), CredentialsError> {
        let own = certified_key(own, &self.state.provider)?;
        self.state
            .signed(&own.cert[0], KeyUsage::client_auth())
            .map_err(CredentialsError::NotSigned)?;
        *self.state.own.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(own);
        Ok(())
    }

    /// Watches whether a principal is still trusted.
    pub fn watch_trust(&self, holder: Principal) -> TrustWatch {
        TrustWatch { holder, trust: self.state.trust.subscribe() }
    }

    /// Secrets for bulk data. The first is used, all are accepted.
    pub fn data_secrets(&self) -> Vec<[u8; SHARED_BYTES]> {
        self.trust().data.clone()
    }

    /// Secrets that only nodes have. The first is used, all are accepted.
    pub fn node_secrets(&self) -> Vec<[u8; SHARED_BYTES]> {
        self.trust().nodes.clone()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("holder", &self.holder()).finish_non_exhaustive()
    }
}

/// Tells whether the peer of an open session is still trusted.
pub struct TrustWatch {
    holder: Principal,
    trust: watch::Receiver<Arc<Trust>>,
}

impl TrustWatch {
    /// The peer.
    pub fn holder(&self) -> Principal {
        self.holder
    }

    /// The peer has another key now.
    pub fn becomes(&mut self, holder: Principal) {
        self.holder = holder;
    }

    /// Waits until the peer is no longer trusted, and returns the reason. Cancel safe.
    pub async fn ends(&mut self) -> TrustRefusal {
        let holder = self.holder;
        loop {
            if let Err(refusal) = self.trust.borrow_and_update().admits(holder) {
                return refusal;
            }
            if self.trust.changed().await.is_err() {
                // The credentials are gone, so the trust cannot change.
                return std::future::pending().await;
            }
        }
    }
}

/// The servers that a client accepts.
#[derive(Clone, Copy, Debug)]
enum ExpectedServer {
    Dispatcher,
    Node,
}

impl ExpectedServer {
    fn is(self, holder: Principal) -> bool {
        match (self, holder) {
            (ExpectedServer::Dispatcher, Principal::Dispatcher) => true,
            (ExpectedServer::Node, Principal::Key(_, role)) => role.is_of_nodes(),
            _ => false,
        }
    }
}

impl State {
    fn own(&self) -> Arc<CertifiedKey> {
        self.own.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn client(self: &Arc<Self>, expected: ExpectedServer) -> Result<Arc<ClientConfig>, Error> {
        let builder = ClientConfig::builder_with_provider(self.provider.clone());
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?.dangerous();
        let verifier = Verifier { state: self.clone(), expected };
        let builder = builder.with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = builder.with_client_cert_resolver(Arc::new(CurrentKey(self.clone())));
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        Ok(Arc::new(config))
    }

    fn server(self: &Arc<Self>) -> Result<Arc<ServerConfig>, Error> {
        let builder = ServerConfig::builder_with_provider(self.provider.clone());
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
        let verifier = Verifier { state: self.clone(), expected: ExpectedServer::Node };
        let builder = builder.with_client_cert_verifier(Arc::new(verifier));
        let mut config = builder.with_cert_resolver(Arc::new(CurrentKey(self.clone())));
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.ignore_client_order = suites::server_decides();
        Ok(Arc::new(config))
    }

    /// The principals of a certificate that the authority has signed; all of them are trusted.
    fn check(
        &self,
        certificate: &CertificateDer<'_>,
        usage: KeyUsage,
    ) -> Result<Vec<Principal>, Error> {
        let holders = self.signed(certificate, usage)?;
        let trust = self.trust.borrow().clone();
        for holder in &holders {
            trust
                .admits(*holder)
                .map_err(|refusal| Error::InvalidCertificate(error_of(refusal)))?;
        }
        Ok(holders)
    }

    /// The principals of a certificate that the authority has signed.
    fn signed(
        &self,
        certificate: &CertificateDer<'_>,
        usage: KeyUsage,
    ) -> Result<Vec<Principal>, Error> {
        let anchor = anchor_from_trusted_cert(&self.authority).map_err(|_| not_ours())?;
        let parsed = EndEntityCert::try_from(certificate).map_err(|_| not_ours())?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        let (anchors, now) = ([anchor], UnixTime::now());
        parsed
            .verify_for_usage(algorithms, &anchors, &[], now, usage, None, None)
            .map_err(|_| not_ours())?;
        holders(certificate)
    }

    fn has_key(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The TLS error, whose alert tells the other side the reason.
fn error_of(refusal: TrustRefusal) -> CertificateError {
    match refusal {
        TrustRefusal::Revoked => CertificateError::Revoked,
        TrustRefusal::Replaced | TrustRefusal::JobEnded => CertificateError::Expired,
    }
}

fn not_ours() -> Error {
    Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
}

fn holders(certificate: &CertificateDer<'_>) -> Result<Vec<Principal>, Error> {
    let parsed = EndEntityCert::try_from(certificate).map_err(|_| not_ours())?;
    let holders: Vec<_> = parsed.valid_dns_names().filter_map(Principal::of_host_name).collect();
    if holders.is_empty() { Err(not_ours()) } else { Ok(holders) }
}

/// The principal that counts if there are several: the one that is not the dispatcher.
fn one_of(holders: &[Principal]) -> Option<Principal> {
    holders.iter().find(|holder| **holder != Principal::Dispatcher).or(holders.first()).copied()
}

fn certified_key(
    own: &KeyAndCertificate,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, CredentialsError> {
    let certificate = CertificateDer::from_pem_slice(own.certificate.as_bytes());
    let certificate = certificate.map_err(CredentialsError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).map_err(CredentialsError::Key)?;
    CertifiedKey::from_der(vec![certificate], key, provider).map_err(CredentialsError::OtherKey)
}

/// Presents the current key of this process.
struct CurrentKey(Arc<State>);

impl ResolvesClientCert for CurrentKey {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.own())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for CurrentKey {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.own())
    }
}

impl fmt::Debug for CurrentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentKey(..)")
    }
}

/// Verifies peers against authority and trust.
struct Verifier {
    state: Arc<State>,
    /// The servers that are accepted; clients may be any trusted principal.
    expected: ExpectedServer,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Verifier").field(&self.expected).finish()
    }
}

/// How both kinds of verifiers check signatures in handshakes.
macro_rules! verify_signatures {
    () => {
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
            self.state.has_key(message, certificate, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.state.schemes()
        }
    };
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let holders = self.state.check(end_entity, KeyUsage::server_auth())?;
        let is_expected = holders.into_iter().any(|holder| self.expected.is(holder));
        is_expected.then(ServerCertVerified::assertion).ok_or(not_ours())
    }

    verify_signatures!();
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.state
            .check(end_entity, KeyUsage::client_auth())
            .map(|_| ClientCertVerified::assertion())
    }

    verify_signatures!();
}
