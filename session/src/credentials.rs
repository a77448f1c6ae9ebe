//! What a process proves itself with, whom it accepts, and the TLS settings that follow from both.
//!
//! TLS 1.3, with certificates on both sides. A certificate counts if the cluster's authority has signed it and its
//! holder is trusted *now*: keys are replaced while a cluster runs, so the settings ask each time instead of
//! remembering. For the same reason no session of TLS is ever resumed: a resumed one would be as trusted as it was at
//! first.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use eyas_types::access::Principal;
use eyas_wire::trust::{SHARED_BYTES, Trust, TrustRefusal};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
};
use tokio::sync::watch;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::authority::Certified;
use crate::suites;

/// The name that clients of TLS have to say. Which server may answer is decided by its certificate.
pub const SERVER_NAME: &str = "eyas";

/// What a process proves itself with, and whom it accepts. Clones share it, also when keys are replaced.
#[derive(Clone)]
pub struct Credentials {
    state: Arc<State>,
    to_dispatcher: Arc<ClientConfig>,
    to_node: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// What changes while a process runs.
struct State {
    authority: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
    own: RwLock<Arc<CertifiedKey>>,
    trust: watch::Sender<Arc<Trust>>,
}

impl Credentials {
    /// Those of the holder of `own`, who accepts what `authority` (PEM) has signed.
    pub(crate) fn new(authority: &str, own: &Certified, trust: Trust) -> Result<Self, String> {
        let provider = Arc::new(suites::provider());
        let authority =
            CertificateDer::from_pem_slice(authority.as_bytes()).map_err(|e| format!("its authority: {e}"))?;
        let own = certified_key(own, &provider)?;
        let trust = watch::Sender::new(Arc::new(trust));
        let state = Arc::new(State { authority, provider, own: RwLock::new(Arc::new(own)), trust });
        state.signed(&state.own().cert[0], KeyUsage::client_auth()).map_err(|e| format!("its certificate: {e}"))?;
        let wrong = |e: Error| e.to_string();
        Ok(Credentials {
            to_dispatcher: state.client(Expected::Dispatcher).map_err(wrong)?,
            to_node: state.client(Expected::Node).map_err(wrong)?,
            server: state.server().map_err(wrong)?,
            state,
        })
    }

    /// For a client of the dispatcher, who takes nobody else for it.
    pub fn to_dispatcher(&self) -> &Arc<ClientConfig> {
        &self.to_dispatcher
    }

    /// For a client of executors and of nodes of the file system.
    pub fn to_node(&self) -> &Arc<ClientConfig> {
        &self.to_node
    }

    /// For a server. Clients without a certificate are not let in.
    pub fn server(&self) -> &Arc<ServerConfig> {
        &self.server
    }

    /// Whose these are.
    pub fn holder(&self) -> Principal {
        let own = self.state.own();
        holders(&own.cert[0]).ok().and_then(|holders| one_of(&holders)).expect("checked when it was taken over")
    }

    /// Who has shown these certificates in a handshake that has succeeded.
    ///
    /// # Errors
    /// If there are none, or none with a name of eyas's.
    pub fn peer(certificates: Option<&[CertificateDer<'_>]>) -> Result<Principal, Error> {
        let certificate = certificates.and_then(|shown| shown.first()).ok_or(Error::NoCertificatesPresented)?;
        one_of(&holders(certificate)?).ok_or(not_ours())
    }

    /// What the cluster trusts, as far as this process was told.
    pub fn trust(&self) -> Arc<Trust> {
        self.state.trust.borrow().clone()
    }

    /// Takes over what the cluster trusts from now on.
    pub fn learn(&self, trust: Trust) {
        self.state.trust.send_if_modified(|known| {
            let is_new = **known != trust;
            if is_new {
                *known = Arc::new(trust);
            }
            is_new
        });
    }

    /// Proves itself with another key from now on.
    ///
    /// # Errors
    /// If it is not a key that the cluster's authority has signed: for a person.
    pub fn adopt(&self, own: &Certified) -> Result<(), String> {
        let own = certified_key(own, &self.state.provider)?;
        self.state.signed(&own.cert[0], KeyUsage::client_auth()).map_err(|e| e.to_string())?;
        *self.state.own.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(own);
        Ok(())
    }

    /// Watches over the trust in somebody.
    pub fn standing(&self, holder: Principal) -> TrustWatch {
        TrustWatch { holder, trust: self.state.trust.subscribe() }
    }

    /// Secrets of those who exchange data with nodes: the first is to be used, all are to be accepted.
    pub fn data_secrets(&self) -> Vec<[u8; SHARED_BYTES]> {
        self.trust().data.clone()
    }

    /// Secrets that only nodes have, likewise.
    pub fn node_secrets(&self) -> Vec<[u8; SHARED_BYTES]> {
        self.trust().nodes.clone()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("holder", &self.holder()).finish_non_exhaustive()
    }
}

/// Whether somebody with an open session is still trusted.
pub struct TrustWatch {
    holder: Principal,
    trust: watch::Receiver<Arc<Trust>>,
}

impl TrustWatch {
    /// Who it is.
    pub fn holder(&self) -> Principal {
        self.holder
    }

    /// It has another key now.
    pub fn becomes(&mut self, holder: Principal) {
        self.holder = holder;
    }

    /// Waits until it is trusted no longer, and tells why. Dropped before, nothing is lost by it.
    pub async fn ends(&mut self) -> TrustRefusal {
        let holder = self.holder;
        loop {
            if let Err(refusal) = self.trust.borrow_and_update().admits(holder) {
                return refusal;
            }
            if self.trust.changed().await.is_err() {
                // Nobody is left who could say so.
                return std::future::pending().await;
            }
        }
    }
}

/// Which servers a client accepts.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Dispatcher,
    Node,
}

impl Expected {
    fn is(self, holder: Principal) -> bool {
        match (self, holder) {
            (Expected::Dispatcher, Principal::Dispatcher) => true,
            (Expected::Node, Principal::Key(_, role)) => role.is_of_nodes(),
            _ => false,
        }
    }
}

impl State {
    fn own(&self) -> Arc<CertifiedKey> {
        self.own.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn client(self: &Arc<Self>, expected: Expected) -> Result<Arc<ClientConfig>, Error> {
        let builder = ClientConfig::builder_with_provider(self.provider.clone());
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?.dangerous();
        let verifier = Verifier { state: self.clone(), expected };
        let builder = builder.with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = builder.with_client_cert_resolver(Arc::new(Own(self.clone())));
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        Ok(Arc::new(config))
    }

    fn server(self: &Arc<Self>) -> Result<Arc<ServerConfig>, Error> {
        let builder = ServerConfig::builder_with_provider(self.provider.clone());
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
        let verifier = Verifier { state: self.clone(), expected: Expected::Node };
        let builder = builder.with_client_cert_verifier(Arc::new(verifier));
        let mut config = builder.with_cert_resolver(Arc::new(Own(self.clone())));
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.ignore_client_order = suites::server_decides();
        Ok(Arc::new(config))
    }

    /// Whose certificate this is, if the authority has signed it and its holder is trusted.
    fn check(&self, certificate: &CertificateDer<'_>, usage: KeyUsage) -> Result<Vec<Principal>, Error> {
        let holders = self.signed(certificate, usage)?;
        let trust = self.trust.borrow().clone();
        for holder in &holders {
            trust.admits(*holder).map_err(|refusal| Error::InvalidCertificate(error_of(refusal)))?;
        }
        Ok(holders)
    }

    /// Whose certificate this is, if the authority has signed it.
    fn signed(&self, certificate: &CertificateDer<'_>, usage: KeyUsage) -> Result<Vec<Principal>, Error> {
        let anchor = anchor_from_trusted_cert(&self.authority).map_err(|_| not_ours())?;
        let parsed = EndEntityCert::try_from(certificate).map_err(|_| not_ours())?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        let (anchors, now) = ([anchor], UnixTime::now());
        parsed.verify_for_usage(algorithms, &anchors, &[], now, usage, None, None).map_err(|_| not_ours())?;
        holders(certificate)
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

/// How the other side hears of it: as the alert of TLS that belongs to the error.
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

/// Whoever is a dispatcher and more is meant as what it is beside.
fn one_of(holders: &[Principal]) -> Option<Principal> {
    holders.iter().find(|holder| **holder != Principal::Dispatcher).or(holders.first()).copied()
}

fn certified_key(own: &Certified, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let certificate = CertificateDer::from_pem_slice(own.certificate.as_bytes());
    let certificate = certificate.map_err(|e| format!("its certificate: {e}"))?;
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).map_err(|e| format!("its key: {e}"))?;
    CertifiedKey::from_der(vec![certificate], key, provider).map_err(|e| format!("its key: {e}"))
}

/// Shows the key that a process has now.
struct Own(Arc<State>);

impl ResolvesClientCert for Own {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.own())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Own {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.own())
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Own(..)")
    }
}

/// Accepts whom the cluster trusts.
struct Verifier {
    state: Arc<State>,
    /// Of servers.
    expected: Expected,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Verifier").field(&self.expected).finish()
    }
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
        self.state.check(end_entity, KeyUsage::client_auth()).map(|_| ClientCertVerified::assertion())
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
        self.state.has_key(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.state.schemes()
    }
}
