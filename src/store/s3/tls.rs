//! Whom TLS trusts: the system's authorities, and those of `--ca-bundle` beside them (never instead: STS and other endpoints need the system's).

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

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

/// Our client's TLS: ring, TLS 1.2 and 1.3, HTTP/1.1 only.
pub(super) fn client_config(bundle: Option<&[u8]>) -> Result<ClientConfig, StoreError> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = SYSTEM_BUNDLES.iter().find_map(|path| std::fs::read(path).ok()) {
        add(&mut roots, &pem);
    }
    if let Some(pem) = bundle {
        add(&mut roots, pem);
    }
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map(|builder| builder.with_root_certificates(roots).with_no_client_auth())
        .map_err(|error| StoreError::new(ErrorKind::Invalid, format!("TLS cannot be set up: {error}")))
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
    }
}
