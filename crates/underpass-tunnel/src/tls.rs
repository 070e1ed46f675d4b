//! TLS between the parties of a pair: version 1.3, both ends verified, and nobody believed but the pair's own authority.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::secrets::Identity;

/// Why secrets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the secrets have no usable {0}")]
    Unreadable(&'static str),
    #[error("the secrets do not fit together")]
    Unusable(#[source] rustls::Error),
    #[error("the secrets' authority cannot judge anybody")]
    Authority(#[source] rustls::server::VerifierBuilderError),
}

pub(crate) fn acceptor(identity: &Identity) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(identity)?), provider.clone());
    let verifier = verifier.build().map_err(TlsError::Authority)?;
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(TlsError::Unusable)?.with_client_cert_verifier(verifier);
    let (certificate, key) = own(identity)?;
    let mut config = builder.with_single_cert(vec![certificate], key).map_err(TlsError::Unusable)?;
    // Every connection proves itself anew.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config).into())
}

pub(crate) fn connector(identity: &Identity) -> Result<TlsConnector, TlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(&[&TLS13]).map_err(TlsError::Unusable)?;
    let (certificate, key) = own(identity)?;
    let config = builder.with_root_certificates(roots(identity)?).with_client_auth_cert(vec![certificate], key);
    Ok(Arc::new(config.map_err(TlsError::Unusable)?).into())
}

fn roots(identity: &Identity) -> Result<RootCertStore, TlsError> {
    let authority = CertificateDer::from_pem_slice(identity.authority.as_bytes());
    let mut roots = RootCertStore::empty();
    roots.add(authority.map_err(|_| TlsError::Unreadable("authority"))?).map_err(TlsError::Unusable)?;
    Ok(roots)
}

fn own(identity: &Identity) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), TlsError> {
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes());
    Ok((
        certificate.map_err(|_| TlsError::Unreadable("certificate"))?,
        key.map_err(|_| TlsError::Unreadable("private key"))?,
    ))
}
