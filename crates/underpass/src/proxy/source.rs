//! A file, read again and again: only what changed in it is parsed and checked again.
//!
//! A file that cannot be parsed to its end, or that declares no ProxyServer, is refused as a whole: it may have been caught half-written,
//! and what it does not say any more may be what its author is about to write. Everything else is refused entry by entry.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use underpass_plan::proxy_server::{Observed, relay_table};
use underpass_tables::{Reject, RelayTable};

use super::check::Checker;
use super::listed;
use super::objects::{Object, read_part};
use crate::manifests::split;

/// What a file without one has to be given.
const MISSING: &str = ": add a document with apiVersion: hostedcluster.densityops.com/v1alpha1, kind: ProxyServer, a metadata.name, the \
                       address to listen on in spec.networkConfig.serverIP, and where to lead to in spec.backends";

/// Why a file is refused as a whole.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    #[error("{}, document {document} cannot be parsed", .path.display())]
    Parse {
        path: PathBuf,
        document: usize,
        #[source]
        cause: anyhow::Error,
    },
    #[error("{} declares no ProxyServer{}", .path.display(), what_to_do(.rejects))]
    NoProxy { path: PathBuf, rejects: Vec<Reject> },
}

pub(crate) struct Source {
    path: PathBuf,
    checker: Checker,
    generation: u64,
    text: String,
    parts: Vec<Part>,
}

/// What stands between two marks, by its place in the text, and what it was read as.
struct Part {
    range: Range<usize>,
    objects: Arc<Vec<Object>>,
}

impl Source {
    /// Reads the file for the first time.
    pub(crate) fn open(path: &Path) -> anyhow::Result<(Self, RelayTable)> {
        let mut source = Self {
            path: path.to_owned(),
            checker: Checker::new()?,
            generation: 0,
            text: String::new(),
            parts: Vec::new(),
        };
        let table = source.take(source.read()?)?;
        Ok((source, table))
    }

    /// The table that the file asks for by now; None when it says what it said before. After an error everything is as before.
    pub(crate) fn reload(&mut self) -> Result<Option<RelayTable>, SourceError> {
        let text = self.read()?;
        if text == self.text { Ok(None) } else { self.take(text).map(Some) }
    }

    /// For messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn read(&self) -> Result<String, SourceError> {
        std::fs::read_to_string(&self.path).map_err(|error| SourceError::Read(self.path.clone(), error))
    }

    fn take(&mut self, text: String) -> Result<RelayTable, SourceError> {
        let parts = self.parse(&text)?;
        let table = self.table(&parts)?;
        self.generation += 1;
        self.checker.forget_unused();
        (self.text, self.parts) = (text, parts);
        Ok(table)
    }

    fn parse(&mut self, text: &str) -> Result<Vec<Part>, SourceError> {
        let known: HashMap<&str, &Arc<Vec<Object>>> =
            self.parts.iter().map(|part| (&self.text[part.range.clone()], &part.objects)).collect();
        let mut parts = Vec::with_capacity(known.len());
        for (number, (_, range)) in split(text).into_iter().enumerate() {
            let part = &text[range.clone()];
            let objects = match known.get(part) {
                Some(objects) => Arc::clone(objects),
                None => Arc::new(read_part(part, &mut self.checker).map_err(|cause| SourceError::Parse {
                    path: self.path.clone(),
                    document: number + 1,
                    cause,
                })?),
            };
            parts.push(Part { range, objects });
        }
        Ok(parts)
    }

    fn table(&self, parts: &[Part]) -> Result<RelayTable, SourceError> {
        let mut observed = Observed::default();
        let mut rejects = Vec::new();
        let mut seen = HashSet::new();
        for object in parts.iter().flat_map(|part| part.objects.iter()) {
            if let Some(identity) = object.identity()
                && !seen.insert(identity)
            {
                let reason = "the file has this object twice; the first one counts".to_owned();
                rejects.push(Reject { entry: object.to_string(), reason });
                continue;
            }
            match object {
                Object::Proxy { proxy, refused } => {
                    observed.proxies.push(proxy);
                    rejects.extend_from_slice(refused);
                }
                Object::Service(service) => observed.services.push(service),
                Object::Slice(slice) => observed.slices.push(slice),
                Object::Refused(reject) => rejects.push(reject.clone()),
                Object::Other => {}
            }
        }
        if observed.proxies.is_empty() {
            return Err(SourceError::NoProxy { path: self.path.clone(), rejects });
        }
        let mut table = relay_table(self.generation + 1, &observed);
        table.rejects.extend(rejects);
        table.rejects.sort_by(|one, other| (&one.entry, &one.reason).cmp(&(&other.entry, &other.reason)));
        Ok(table)
    }
}

/// To be said after "declares no ProxyServer".
fn what_to_do(rejects: &[Reject]) -> String {
    let is_refused = rejects.iter().any(|reject| reject.entry.starts_with("ProxyServer"));
    let what = if is_refused { " that can be used" } else { MISSING };
    format!("{what}{}", listed(rejects))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: ProxyServer\nmetadata: {name: edge}\nspec:\n  \
        networkConfig: {serverIP: 127.0.0.1}\n  backends:\n  - {name: a, hostname: a.example.com, port: 443, targetService: web, \
        targetNamespace: cp, targetPort: 443}\n";
    const SERVICE: &str =
        "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: cp}\nspec: {ports: [{port: 443}]}\n";
    const SLICE: &str = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata: {name: web, namespace: cp, \
        labels: {kubernetes.io/service-name: web}}\nports: [{port: 8443}]\nendpoints: [{addresses: [127.0.0.1]}]\n";

    struct File {
        folder: tempfile::TempDir,
        source: Source,
    }

    impl File {
        fn new(documents: &[&str]) -> (Self, RelayTable) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("f");
            std::fs::write(&path, documents.join("---\n")).unwrap();
            let (source, table) = Source::open(&path).unwrap();
            (Self { folder, source }, table)
        }

        fn change(&mut self, documents: &[&str]) -> Result<Option<RelayTable>, SourceError> {
            std::fs::write(self.folder.path().join("f"), documents.join("---\n")).unwrap();
            self.source.reload()
        }
    }

    #[test]
    fn only_what_changed_is_read_again() {
        let (mut file, first) = File::new(&[PROXY, SERVICE, SLICE]);
        assert_eq!((first.generation, first.routes[0].endpoints.len()), (1, 1), "loopback is fine here");
        let before: Vec<_> = file.source.parts.iter().map(|part| part.objects.clone()).collect();
        file.change(&[&PROXY.replace("a.example.com", "b.example.com"), SERVICE, SLICE]).unwrap();
        let same: Vec<bool> =
            file.source.parts.iter().zip(&before).map(|(part, before)| Arc::ptr_eq(&part.objects, before)).collect();
        assert_eq!(same, [false, true, true]);
    }

    #[test]
    fn after_a_refusal_everything_is_as_before() {
        let (mut file, _) = File::new(&[PROXY]);
        assert!(matches!(file.change(&[PROXY, "a: ["]), Err(SourceError::Parse { document: 2, .. })));
        let refused = file.change(&[SERVICE]).unwrap_err();
        assert!(matches!(refused, SourceError::NoProxy { .. }), "{refused}");
        let said = refused.to_string();
        assert!(said.contains("declares no ProxyServer: add a document with apiVersion: hostedcluster."), "{said}");
        assert!(file.change(&[PROXY]).unwrap().is_none(), "back to what is in force");
    }

    #[test]
    fn of_two_with_one_name_the_first_counts() {
        let (_, table) = File::new(&[PROXY, SERVICE, SLICE, &SERVICE.replace("443", "444")]);
        assert_eq!(table.rejects[0].entry, "Service cp/web");
        assert_eq!(table.routes[0].endpoints.len(), 1);
    }
}
