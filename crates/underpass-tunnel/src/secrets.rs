//! What the halves of a pair know each other by. Made per object, in one go; the key of the authority is forgotten at once, so that
//! nobody, and nothing that leaks later, can add a fourth party.
//!
//! Each party gets its own part and no more: a container that is broken into cannot give orders to the host.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::{Duration, OffsetDateTime};

/// The names that the halves have in their certificates. Addresses say nothing here: both are dialled through forwarders.
pub(crate) const CLIENT_NAME: &str = "client.tunnel.underpass";
pub(crate) const SERVER_NAME: &str = "server.tunnel.underpass";
const CALLER_NAME: &str = "caller.tunnel.underpass";

/// Longer than any pair: a pair that is started again gets new secrets.
const LIFE: Duration = Duration::days(3650);
/// For a container engine in a virtual machine whose clock is behind.
const CLOCK_SKEW: Duration = Duration::days(1);

/// Why secrets cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    #[error("cannot make a certificate for {name}")]
    Certificate { name: &'static str, source: rcgen::Error },
    /// Without the parser's words: they may quote what it has read.
    #[error("not the secrets of a {whose}: wrong at line {line}, column {column}")]
    Unreadable { whose: &'static str, line: usize, column: usize },
}

/// All that a pair needs. Kept by whoever starts it, in a file that only the owner can read.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PairSecrets {
    pub client: ClientSecrets,
    pub server: ServerSecrets,
    pub caller: CallerSecrets,
}

/// The part of the half that listens where clients are.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientSecrets {
    pub(crate) identity: Identity,
    pub(crate) data_key: DataKey,
}

/// The part of the half that dials servers.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServerSecrets {
    pub(crate) identity: Identity,
    pub(crate) data_key: DataKey,
}

/// The part of whoever gives orders to the server half.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallerSecrets {
    pub(crate) identity: Identity,
}

/// Who one is, and whom one believes. PEM.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Identity {
    pub(crate) authority: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// What data connections are proven with.
#[derive(Clone)]
pub(crate) struct DataKey(pub(crate) [u8; 32]);

impl PairSecrets {
    /// Everything new.
    pub fn generate() -> Result<Self, SecretsError> {
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        let authority = authority()?;
        let data_key = DataKey(rand::random());
        let client = identity(&authority, CLIENT_NAME, &[ServerAuth])?;
        let server = identity(&authority, SERVER_NAME, &[ServerAuth, ClientAuth])?;
        let caller = identity(&authority, CALLER_NAME, &[ClientAuth])?;
        Ok(Self {
            client: ClientSecrets { identity: client, data_key: data_key.clone() },
            server: ServerSecrets { identity: server, data_key },
            caller: CallerSecrets { identity: caller },
        })
    }
}

impl ClientSecrets {
    pub fn parse(json: &[u8]) -> Result<Self, SecretsError> {
        parse(json, "tunnel's client half")
    }
}

impl ServerSecrets {
    pub fn parse(json: &[u8]) -> Result<Self, SecretsError> {
        parse(json, "tunnel's server half")
    }
}

fn parse<T: DeserializeOwned>(json: &[u8], whose: &'static str) -> Result<T, SecretsError> {
    serde_json::from_slice(json).map_err(|error| SecretsError::Unreadable {
        whose,
        line: error.line(),
        column: error.column(),
    })
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>, SecretsError> {
    let name = "the authority";
    let failed = |source| SecretsError::Certificate { name, source };
    let mut params = params("authority.tunnel.underpass");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(failed)?).map_err(failed)
}

fn identity(
    authority: &CertifiedIssuer<'static, KeyPair>,
    name: &'static str,
    purposes: &[ExtendedKeyUsagePurpose],
) -> Result<Identity, SecretsError> {
    let failed = |source| SecretsError::Certificate { name, source };
    let mut params = params(name);
    params.subject_alt_names = vec![rcgen::SanType::DnsName(name.try_into().map_err(failed)?)];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = purposes.to_vec();
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, authority).map_err(failed)?;
    Ok(Identity { authority: authority.pem(), certificate: certificate.pem(), key: key.serialize_pem() })
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::now_utc();
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + LIFE;
    params
}

impl Serialize for DataKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(self.0))
    }
}

impl<'de> Deserialize<'de> for DataKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // What is wrong with it is not quoted: it may be almost right.
        let bytes = BASE64_STANDARD.decode(text).map_err(|_| de::Error::custom("the data key is not base64"))?;
        let key = bytes.try_into().map_err(|_| de::Error::custom("the data key does not have 32 bytes"))?;
        Ok(Self(key))
    }
}

macro_rules! silent {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}

silent!(PairSecrets, ClientSecrets, ServerSecrets, CallerSecrets, Identity, DataKey);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_survive_a_file_and_are_never_shown() {
        let secrets = PairSecrets::generate().unwrap();
        let text = serde_json::to_string(&secrets).unwrap();
        let read: PairSecrets = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        assert_eq!(format!("{secrets:?}"), "PairSecrets { .. }");
        assert_eq!(format!("{:?}", secrets.client.data_key), "DataKey { .. }");
    }

    #[test]
    fn nobody_gets_what_is_another_ones() {
        let secrets = PairSecrets::generate().unwrap();
        let client = serde_json::to_string(&secrets.client).unwrap();
        assert_eq!(client.matches("PRIVATE KEY").count(), 2, "one key, with its begin and its end");
        let caller = serde_json::to_string(&secrets.caller).unwrap();
        assert!(!caller.contains(&BASE64_STANDARD.encode(secrets.client.data_key.0)));
    }

    #[test]
    fn damage_is_told_without_quoting_it() {
        let client = serde_json::to_value(PairSecrets::generate().unwrap().client).unwrap();
        for (place, wrong) in [("dataKey", "aGlkZGVu"), ("dataKey", "hidden!"), ("identity", "hidden")] {
            let mut value = client.clone();
            value[place] = wrong.into();
            let error = ClientSecrets::parse(value.to_string().as_bytes()).unwrap_err().to_string();
            assert!(error.contains("tunnel's client half") && !error.contains(wrong), "{error}");
        }
    }
}
