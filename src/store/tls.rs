//! Whom TLS trusts: the system's authorities, and those of `--ca-bundle` beside them (never instead: STS and other endpoints need the system's).
//! And who we are to it, where a store asks for client certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::store::StoreError;
use crate::types::ErrorKind;

/// Where distributions keep the system's authorities, in one file (the list of OpenSSL's packagers: Debian, Fedora, SUSE, RHEL 7, Alpine).
const SYSTEM_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The bytes of a `--ca-bundle`, checked to hold at least one certificate.
pub(super) fn read_bundle(path: &Path) -> Result<Vec<u8>, StoreError> {
    let refuse = |reason: &str| StoreError::new(ErrorKind::Invalid, format!("--ca-bundle {}: {reason}", path.display()));
    let pem = std::fs::read(path).map_err(|error| refuse(&error.to_string()))?;
    let mut roots = RootCertStore::empty();
    match add(&mut roots, &pem) {
        0 => Err(refuse("holds no usable certificate: a PEM file is needed")),
        _ => Ok(pem),
    }
}

/// Adds what can be used of a PEM file; how many that were.
fn add(roots: &mut RootCertStore, pem: &[u8]) -> usize {
    CertificateDer::pem_slice_iter(pem).flatten().filter(|certificate| roots.add(certificate.clone()).is_ok()).count()
}

/// A client certificate and its key, PEM files.
#[derive(Clone, Debug)]
pub struct ClientIdentity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Our client's TLS: ring, TLS 1.2 and 1.3, HTTP/1.1 only.
pub(super) fn client_config(bundle: Option<&[u8]>) -> Result<ClientConfig, StoreError> {
    configure(bundle, None, false)
}

/// [`client_config`] with a client certificate, and `trust_anybody`: the server's certificate is not looked at (its key must still fit it).
pub(super) fn configure(bundle: Option<&[u8]>, identity: Option<&ClientIdentity>, trust_anybody: bool) -> Result<ClientConfig, StoreError> {
    let refuse = |text: String| StoreError::new(ErrorKind::Invalid, text);
    let mut roots = RootCertStore::empty();
    if let Some(pem) = SYSTEM_BUNDLES.iter().find_map(|path| std::fs::read(path).ok()) {
        add(&mut roots, &pem);
    }
    if let Some(pem) = bundle {
        add(&mut roots, pem);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(format!("TLS cannot be set up: {error}")))?;
    let builder = if trust_anybody {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
    } else {
        builder.with_root_certificates(roots)
    };
    let Some(ClientIdentity { certificate, key }) = identity else { return Ok(builder.with_no_client_auth()) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|error| refuse(format!("the client certificate {}: {error}", certificate.display())))?;
    // The error names no part of the key.
    let secret =
        PrivateKeyDer::from_pem_file(key).map_err(|_| refuse(format!("the client key {}: no PEM key can be read", key.display())))?;
    builder
        .with_client_auth_cert(chain, secret)
        .map_err(|error| refuse(format!("the client certificate {} and key {}: {error}", certificate.display(), key.display())))
}

/// Takes every certificate, as AIS_SKIP_VERIFY_CRT asks; signatures are still checked.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_bundle_fails_at_start() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("ca.pem");
        assert!(read_bundle(&path).expect_err("missing").to_string().contains("ca.pem"));
        std::fs::write(&path, "no certificate\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").expect("write");
        assert!(read_bundle(&path).expect_err("no certificate in it").to_string().contains("PEM"));
        assert!(client_config(None).is_ok());
        let nobody = ClientIdentity { certificate: path.clone(), key: path };
        assert!(configure(None, Some(&nobody), true).expect_err("no key in it").to_string().contains("ca.pem"));
        assert!(configure(None, None, true).is_ok());
    }
}
