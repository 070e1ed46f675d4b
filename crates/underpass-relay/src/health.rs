//! Active checks: every endpoint of a route that asks for them is dialled regularly, and gets no connections while it does not answer.
//!
//! Checks run on the caller's async runtime, apart from the workers. They follow the table: what is new is checked, what is gone is
//! not any more, what stays keeps its count.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use underpass_protocols::proxy_protocol::{Addresses, write_v1, write_v2_local};
use underpass_tables::{CheckKind, HealthCheck, ProxyHeader};

use crate::live::{Endpoint, Live, LiveRoute};

/// First checks are spread over this time, or over the interval when that is shorter: thousands at once would be an attack.
const SPREAD: Duration = Duration::from_secs(2);

/// The checks of a table. They stop when this value goes.
#[derive(Default)]
pub struct HealthChecks {
    running: HashMap<(String, SocketAddr), Running>,
    tls: Option<TlsConnector>,
}

struct Running {
    probe: Probe,
    subject: Arc<Subject>,
    task: AbortHandle,
}

/// How an endpoint is checked.
#[derive(Clone, PartialEq)]
struct Probe {
    check: HealthCheck,
    proxy_header: Option<ProxyHeader>,
}

/// An endpoint, and whether verdicts about it still count: a task that is being stopped may be about to give one.
struct Subject {
    endpoint: Arc<Endpoint>,
    row: Mutex<Option<Row>>,
}

/// Equal results in a row.
#[derive(Clone, Copy, Default)]
struct Row {
    passed: u32,
    failed: u32,
}

impl HealthChecks {
    /// Checks what this table has, from now on. Must be called on the runtime on which checks are to run.
    pub fn follow(&mut self, live: &Live) {
        let mut before = std::mem::take(&mut self.running);
        for route in &live.routes {
            let Some(check) = &route.route.health_check else { continue };
            let probe = Probe { check: check.clone(), proxy_header: route.route.proxy_header };
            for endpoint in &route.endpoints {
                let key = (route.route.name.clone(), endpoint.address);
                let running = match before.remove(&key) {
                    Some(running) if running.serves(&probe, endpoint) => running,
                    replaced => {
                        drop(replaced);
                        self.start(&probe, route, endpoint)
                    }
                };
                self.running.insert(key, running);
            }
        }
        before.into_values().for_each(|running| running.subject.forget());
    }

    fn start(&mut self, probe: &Probe, route: &LiveRoute, endpoint: &Arc<Endpoint>) -> Running {
        let tls = self.tls.get_or_insert_with(any_certificate).clone();
        let subject = Arc::new(Subject { endpoint: endpoint.clone(), row: Mutex::new(Some(Row::default())) });
        let wait = head_start(&probe.check, &route.route.name, endpoint.address);
        let task = tokio::spawn(check_for_ever(subject.clone(), probe.clone(), tls, wait));
        Running { probe: probe.clone(), subject, task: task.abort_handle() }
    }
}

impl Running {
    fn serves(&self, probe: &Probe, endpoint: &Arc<Endpoint>) -> bool {
        self.probe == *probe && Arc::ptr_eq(&self.subject.endpoint, endpoint)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
        *self.subject.row.lock() = None;
    }
}

impl Subject {
    /// Counts a result, and gives a verdict when there were enough of its kind.
    fn record(&self, passed: bool, check: &HealthCheck) {
        let mut row = self.row.lock();
        let Some(row) = &mut *row else { return };
        *row = match passed {
            true => Row { passed: row.passed.saturating_add(1), failed: 0 },
            false => Row { passed: 0, failed: row.failed.saturating_add(1) },
        };
        let passes = &self.endpoint.passes_checks;
        if row.failed >= check.unhealthy_after && passes.swap(false, Relaxed) {
            tracing::warn!(endpoint = %self.endpoint.address, failures = row.failed, "an endpoint fails its checks");
        }
        if row.passed >= check.healthy_after && !passes.swap(true, Relaxed) {
            tracing::info!(endpoint = %self.endpoint.address, "an endpoint passes its checks again");
        }
        self.endpoint.checked.store(true, Relaxed);
    }

    /// Nobody checks it any more: nothing is held against it.
    fn forget(&self) {
        *self.row.lock() = None;
        self.endpoint.passes_checks.store(true, Relaxed);
        self.endpoint.checked.store(false, Relaxed);
    }
}

async fn check_for_ever(subject: Arc<Subject>, probe: Probe, tls: TlsConnector, wait: Duration) {
    sleep(wait).await;
    loop {
        let begun = Instant::now();
        let result = timeout(probe.check.timeout, try_once(subject.endpoint.address, &probe, &tls)).await;
        let passed = matches!(result, Ok(Ok(())));
        if !passed {
            tracing::debug!(endpoint = %subject.endpoint.address, ?result, "a check failed");
        }
        subject.record(passed, &probe.check);
        sleep_until(begun + probe.check.interval).await;
    }
}

async fn try_once(address: SocketAddr, probe: &Probe, tls: &TlsConnector) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    // We speak for ourselves: nobody is behind this connection.
    match probe.proxy_header {
        Some(ProxyHeader::V1) => stream.write_all(&write_v1(&Addresses::Unspecified)).await?,
        Some(ProxyHeader::V2) => stream.write_all(&write_v2_local()).await?,
        None => {}
    }
    if let CheckKind::Tls { server_name } = &probe.check.kind {
        let name = ServerName::try_from(server_name.clone()).map_err(io::Error::other)?;
        let mut session = tls.connect(name, stream).await?;
        // The handshake was the check; how the goodbye goes says nothing.
        let _ = session.shutdown().await;
    }
    Ok(())
}

/// Always the same for an endpoint, different between them.
fn head_start(check: &HealthCheck, route: &str, address: SocketAddr) -> Duration {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((route, address));
    let spread = u64::try_from(check.interval.min(SPREAD).as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(hash % spread.max(1))
}

/// For handshakes that only prove that a server answers.
pub fn any_certificate() -> TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has ciphers for them")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Arc::new(config).into()
}

/// Whose certificate it is matters to clients, who check it end to end. That the server has its key is still proven.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
