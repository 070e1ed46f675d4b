//! Who the server is: its certificate authority, its serving certificate and its bearer token.
//!
//! The authority and the token outlive restarts, so that a kubeconfig stays good. The serving certificate does not: it is issued in
//! memory at every start, and again before it expires or when a connection arrives at an address that it does not name yet.
//! Key and certificate of the authority share one file: two files could be torn apart by a crash between them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use time::{Duration, OffsetDateTime};

use crate::private_file;

const FOLDER: &str = "pki";
const AUTHORITY_FILE: &str = "ca.pem";
const TOKEN_FILE: &str = "token";

const AUTHORITY_LIFE: Duration = Duration::days(3650);
const SERVING_LIFE: Duration = Duration::days(30);
/// Certificates are valid from a little before they were made, for clients whose clock is behind.
const CLOCK_SKEW: Duration = Duration::hours(1);
/// The names by which clients inside and outside of a pod know an API server.
const SERVING_NAMES: [&str; 5] =
    ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
/// A machine has fewer addresses than this; whoever makes up more of them gets a certificate without them.
const MOST_ADDRESSES: usize = 64;

#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    #[error("cannot make the folder {}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "the certificate authority in {} is damaged ({what}): restore the file, or delete it to get a new authority \
         and with it new kubeconfigs", path.display()
    )]
    DamagedAuthority { path: PathBuf, what: &'static str },
    #[error(
        "the certificate authority in {} expired on {}: delete the file to get a new authority and with it new \
         kubeconfigs", path.display(), at.date()
    )]
    Expired { path: PathBuf, at: OffsetDateTime },
    #[error(
        "the token in {} is damaged (not {TOKEN_DIGITS} hexadecimal digits): restore the file, or delete it to get a new \
         token and with it new kubeconfigs", path.display()
    )]
    DamagedToken { path: PathBuf },
    #[error("cannot make a certificate")]
    Issue(#[source] rcgen::Error),
    #[error("cannot use the serving certificate")]
    Use(#[source] rustls::Error),
}

/// What clients need to trust the server, and the server to trust them.
pub(crate) struct Identity {
    authority: Arc<Authority>,
    token: String,
}

impl Identity {
    /// Reads `pki/` in the data folder and makes what is missing there; without a folder everything is new and kept nowhere.
    pub(crate) fn load_or_create(folder: Option<&Path>) -> Result<Self, IdentityError> {
        let now = OffsetDateTime::now_utc();
        let Some(folder) = folder.map(|folder| folder.join(FOLDER)) else {
            let authority = Authority::parse(Path::new("memory"), &new_authority(now)?, now)?;
            return Ok(Self { authority: Arc::new(authority), token: new_token() });
        };
        private_file::make_folder(&folder).map_err(|source| IdentityError::Folder { path: folder.clone(), source })?;
        let (authority_path, token_path) = (folder.join(AUTHORITY_FILE), folder.join(TOKEN_FILE));
        let authority = read_or_write(&authority_path, || new_authority(now))?;
        let token = read_or_write(&token_path, || Ok(new_token()))?;
        Ok(Self {
            authority: Arc::new(Authority::parse(&authority_path, &authority, now)?),
            token: parse_token(&token_path, &token)?,
        })
    }

    pub(crate) fn ca_pem(&self) -> &str {
        &self.authority.pem
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// A certificate for the loopback addresses, the names of an API server, and the address that it listens on.
    pub(crate) fn serving(&self, listen: IpAddr) -> Result<Arc<ServingCertificate>, IdentityError> {
        let mut addresses = BTreeSet::from([IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]);
        if !listen.is_unspecified() {
            addresses.insert(listen.to_canonical());
        }
        let issued = self.authority.issue(addresses, OffsetDateTime::now_utc())?;
        Ok(Arc::new(ServingCertificate { authority: self.authority.clone(), issued: Mutex::new(issued) }))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Identity").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// The serving certificate of now: rustls asks for it at each handshake.
#[derive(Debug)]
pub(crate) struct ServingCertificate {
    authority: Arc<Authority>,
    issued: Mutex<Issued>,
}

impl ServingCertificate {
    /// Names one more address of this machine: who listens everywhere learns its addresses from the connections.
    pub(crate) fn cover(&self, address: IpAddr) {
        let address = address.to_canonical();
        let mut issued = self.issued.lock();
        if issued.addresses.contains(&address) || issued.addresses.len() >= MOST_ADDRESSES {
            return;
        }
        let addresses = issued.addresses.iter().copied().chain([address]).collect();
        self.replace(&mut issued, addresses, OffsetDateTime::now_utc());
    }

    fn at(&self, now: OffsetDateTime) -> Arc<CertifiedKey> {
        let mut issued = self.issued.lock();
        if now >= issued.renew_at {
            let addresses = issued.addresses.clone();
            self.replace(&mut issued, addresses, now);
        }
        issued.certificate.clone()
    }

    fn replace(&self, issued: &mut Issued, addresses: BTreeSet<IpAddr>, now: OffsetDateTime) {
        match self.authority.issue(addresses, now) {
            Ok(renewed) => *issued = renewed,
            Err(error) => tracing::error!(error = %error, "the old serving certificate stays in use"),
        }
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.at(OffsetDateTime::now_utc()))
    }
}

#[derive(Debug)]
struct Issued {
    addresses: BTreeSet<IpAddr>,
    certificate: Arc<CertifiedKey>,
    renew_at: OffsetDateTime,
}

#[derive(Debug)]
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    expires: OffsetDateTime,
    provider: CryptoProvider,
}

impl Authority {
    /// Takes the text apart and checks that its key belongs to its certificate and that it is still valid.
    fn parse(path: &Path, text: &str, now: OffsetDateTime) -> Result<Self, IdentityError> {
        let damaged = |what| IdentityError::DamagedAuthority { path: path.into(), what };
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| damaged("no private key"))?;
        let key = KeyPair::try_from(&key).map_err(|_| damaged("the private key cannot be used"))?;
        let certificate = CertificateDer::from_pem_slice(text.as_bytes()).map_err(|_| damaged("no certificate"))?;
        let expires = check_certificate(&certificate, &key).map_err(damaged)?;
        if expires <= now {
            return Err(IdentityError::Expired { path: path.into(), at: expires });
        }
        let pem = text.find(CERTIFICATE_MARK).map_or(text, |start| &text[start..]).to_owned();
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|_| damaged("not a certificate authority"))?;
        Ok(Self { pem, issuer, expires, provider: ring::default_provider() })
    }

    fn issue(&self, addresses: BTreeSet<IpAddr>, now: OffsetDateTime) -> Result<Issued, IdentityError> {
        let names = SERVING_NAMES.into_iter().map(str::to_owned).chain(addresses.iter().map(IpAddr::to_string));
        let mut params = CertificateParams::new(names.collect::<Vec<_>>()).map_err(IdentityError::Issue)?;
        params.distinguished_name.push(DnType::CommonName, "underpass-apiserver");
        params.not_before = now - CLOCK_SKEW;
        params.not_after = (now + SERVING_LIFE).min(self.expires);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let renew_at = params.not_after - (params.not_after - now) / 3;
        let key = KeyPair::generate().map_err(IdentityError::Issue)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(IdentityError::Issue)?;
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let certificate = CertifiedKey::from_der(vec![certificate.der().clone()], key, &self.provider);
        Ok(Issued { addresses, certificate: Arc::new(certificate.map_err(IdentityError::Use)?), renew_at })
    }
}

const CERTIFICATE_MARK: &str = "-----BEGIN CERTIFICATE-----";

/// Key first, certificate second: see [`Authority::parse`].
fn new_authority(now: OffsetDateTime) -> Result<String, IdentityError> {
    let key = KeyPair::generate().map_err(IdentityError::Issue)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "underpass-ca");
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + AUTHORITY_LIFE;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).map_err(IdentityError::Issue)?;
    Ok(key.serialize_pem() + &certificate.pem())
}

/// When the certificate ends; an error is what is wrong with it.
fn check_certificate(certificate: &CertificateDer<'_>, key: &KeyPair) -> Result<OffsetDateTime, &'static str> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| "the certificate cannot be read")?;
    if !parsed.is_ca() {
        return Err("not a certificate authority");
    }
    if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
        return Err("the private key belongs to another certificate");
    }
    Ok(parsed.validity().not_after.to_datetime())
}

const TOKEN_DIGITS: usize = 64;

fn new_token() -> String {
    rand::random::<[u8; TOKEN_DIGITS / 2]>().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_token(path: &Path, text: &str) -> Result<String, IdentityError> {
    let token = text.trim();
    if token.len() != TOKEN_DIGITS || !token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(IdentityError::DamagedToken { path: path.into() });
    }
    Ok(token.to_owned())
}

/// What the file says; if there is none, it is made first.
fn read_or_write(path: &Path, make: impl FnOnce() -> Result<String, IdentityError>) -> Result<String, IdentityError> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = make()?;
            private_file::write(path, &text).map_err(|source| IdentityError::Write { path: path.into(), source })?;
            Ok(text)
        }
        Err(source) => Err(IdentityError::Read { path: path.into(), source }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn data_folder() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (authority, token) = (folder.path().join("pki/ca.pem"), folder.path().join("pki/token"));
        (folder, authority, token)
    }

    fn failure(folder: &tempfile::TempDir) -> String {
        Identity::load_or_create(Some(folder.path())).unwrap_err().to_string()
    }

    fn addresses_in(certificate: &CertifiedKey) -> usize {
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate.cert[0]).unwrap();
        let names = parsed.subject_alternative_name().unwrap().unwrap();
        names
            .value
            .general_names
            .iter()
            .filter(|name| matches!(name, x509_parser::prelude::GeneralName::IPAddress(_)))
            .count()
    }

    #[test]
    fn a_restart_keeps_authority_and_token() {
        let (folder, authority, token) = data_folder();
        let first = Identity::load_or_create(Some(folder.path())).unwrap();
        let second = Identity::load_or_create(Some(folder.path())).unwrap();
        assert_eq!((first.ca_pem(), first.token()), (second.ca_pem(), second.token()));
        assert!(!first.ca_pem().contains("PRIVATE"));
        for (path, mode) in [(authority, 0o600), (token, 0o600), (folder.path().join("pki"), 0o700)] {
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
        }
    }

    #[test]
    fn without_a_folder_everything_is_new() {
        let (first, second) = (Identity::load_or_create(None).unwrap(), Identity::load_or_create(None).unwrap());
        assert_ne!(first.ca_pem(), second.ca_pem());
        assert_ne!(first.token(), second.token());
        assert_eq!(first.token().len(), TOKEN_DIGITS);
    }

    #[test]
    fn damaged_files_are_named_and_left_alone() {
        let (folder, authority, token) = data_folder();
        Identity::load_or_create(Some(folder.path())).unwrap();
        let good = fs::read_to_string(&authority).unwrap();
        let other = new_authority(OffsetDateTime::now_utc()).unwrap();
        let certificate = &other[other.find(CERTIFICATE_MARK).unwrap()..];
        let key = &good[..good.find(CERTIFICATE_MARK).unwrap()];
        for (text, what) in [
            (String::new(), "no private key"),
            (key.to_owned(), "no certificate"),
            (good[..good.len() / 2].to_owned(), "damaged"),
            (key.to_owned() + certificate, "belongs to another certificate"),
        ] {
            fs::write(&authority, &text).unwrap();
            let failure = failure(&folder);
            assert!(failure.contains("pki/ca.pem") && failure.contains(what), "{failure}");
            assert_eq!(fs::read_to_string(&authority).unwrap(), text);
        }
        fs::write(&authority, &good).unwrap();
        fs::write(&token, "short").unwrap();
        assert!(failure(&folder).contains("pki/token is damaged"));
    }

    #[test]
    fn an_expired_authority_is_refused_with_its_date() {
        let (folder, authority, _) = data_folder();
        Identity::load_or_create(Some(folder.path())).unwrap();
        let long_ago = time::macros::datetime!(2010-05-05 00:00 UTC);
        fs::write(&authority, new_authority(long_ago).unwrap()).unwrap();
        assert!(failure(&folder).contains("expired on 2020-05-02"), "{}", failure(&folder));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let (folder, ..) = data_folder();
        fs::write(folder.path().join("pki"), "").unwrap();
        assert!(failure(&folder).contains("cannot make the folder"));
    }

    #[test]
    fn the_serving_certificate_is_renewed_before_it_expires_and_never_outlives_its_authority() {
        let serving = Identity::load_or_create(None).unwrap().serving(Ipv4Addr::LOCALHOST.into()).unwrap();
        let now = OffsetDateTime::now_utc();
        let first = serving.at(now);
        assert!(Arc::ptr_eq(&first, &serving.at(now + SERVING_LIFE / 2)));
        assert!(!Arc::ptr_eq(&first, &serving.at(now + SERVING_LIFE * 0.7)));
        let last = serving.at(serving.authority.expires - Duration::days(1));
        let (_, parsed) = x509_parser::parse_x509_certificate(&last.cert[0]).unwrap();
        assert_eq!(parsed.validity().not_after.to_datetime(), serving.authority.expires);
    }

    #[test]
    fn addresses_are_added_as_they_are_met() {
        let serving = Identity::load_or_create(None).unwrap().serving(Ipv4Addr::UNSPECIFIED.into()).unwrap();
        let now = OffsetDateTime::now_utc();
        assert_eq!(addresses_in(&serving.at(now)), 2);
        for address in ["192.0.2.1", "::ffff:192.0.2.1", "127.0.0.1"] {
            serving.cover(address.parse().unwrap());
        }
        assert_eq!(addresses_in(&serving.at(now)), 3);
        for last in 0..200 {
            serving.cover(Ipv4Addr::new(198, 51, 100, last).into());
        }
        assert_eq!(addresses_in(&serving.at(now)), MOST_ADDRESSES);
    }
}
