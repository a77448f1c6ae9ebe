//! The ciphers of TLS: AES-GCM if both processors have instructions for it, otherwise
//! ChaCha20-Poly1305.

use rustls::SupportedCipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::ring::default_provider;

/// AES-128 first: it is as safe here as AES-256, and needs fewer rounds.
const WITH_AES: [SupportedCipherSuite; 3] =
    [TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];
const WITHOUT_AES: [SupportedCipherSuite; 3] =
    [TLS13_CHACHA20_POLY1305_SHA256, TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384];

/// The suites of TLS 1.3, the fastest on this processor first.
pub(crate) fn provider() -> CryptoProvider {
    let cipher_suites = if has_aes() { WITH_AES } else { WITHOUT_AES };
    CryptoProvider { cipher_suites: cipher_suites.to_vec(), ..default_provider() }
}

/// Whether a server uses its own order of ciphers. A server without AES instructions does, so that
/// AES is only used if both sides have them.
pub(crate) fn server_decides() -> bool {
    !has_aes()
}

/// Whether the processor has instructions for AES and for the multiplication of GCM.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has_aes = std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    let has_aes = std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has_aes = false;
    has_aes
}
