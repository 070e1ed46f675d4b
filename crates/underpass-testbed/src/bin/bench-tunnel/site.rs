//! The container network: where one half of each tunnel runs, in a container that holds nothing but its program.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tokio::runtime::Runtime;
use underpass_engines::labels::labels;
use underpass_engines::{ContainerEngine, ContainerRequest, EngineKind, File, Network, NetworkChoice, NetworkRequest};
use underpass_testbed::{PATIENCE, TestEngine, look_until};

/// On the images that are made here, which go when the measuring ends.
const MINE: &str = "dev.underpass.bench";
/// Where a program finds its files.
pub(crate) const FOLDER: &str = "/etc/bench";

/// What the programs written in Rust take for "no line per stream"; the others do not look at it.
pub(crate) const QUIET: (&str, &str) = ("RUST_LOG", "warn");

/// A network of an engine; it goes with this value, and so does what runs on it.
pub(crate) struct Site {
    pub(crate) runtime: Runtime,
    /// Removes network and containers when it goes.
    pub(crate) engine: TestEngine,
    network: Network,
    /// Of each program. They go with this value.
    images: RefCell<BTreeMap<PathBuf, String>>,
}

/// A program that runs in a container. It ends with this value.
pub(crate) struct Guest<'a> {
    site: &'a Site,
    id: String,
    pub(crate) address: IpAddr,
    pub(crate) pid: u32,
}

impl Site {
    pub(crate) fn on(kind: EngineKind) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let engine = TestEngine::shared(kind);
        let name = engine.name("bench");
        let request = NetworkRequest { name: name.clone(), object: "bench".to_owned(), ipv6: false, owner: None };
        let network = runtime.block_on(async {
            engine.engine.create_network(&request).await?;
            engine.engine.find_network(&name).await
        })?;
        let network = network.context("the engine does not have the network that it has just made")?;
        Ok(Self { runtime, engine, network, images: RefCell::default() })
    }

    /// Which engine it is, for people.
    pub(crate) fn engine_version(&self) -> anyhow::Result<String> {
        let described = self.runtime.block_on(self.engine.engine.describe())?;
        Ok(format!("{} {}", described.kind, described.version))
    }

    /// Runs a program with these arguments until it listens on a port; files are below [`FOLDER`].
    pub(crate) fn run(
        &self,
        program: &Path,
        arguments: &[&str],
        files: &[(&str, String)],
        port: u16,
    ) -> anyhow::Result<Guest<'_>> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let request = ContainerRequest {
            name: self.engine.name(&name),
            image: self.image(program, &name)?,
            command: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            environment: labels(&[QUIET]),
            network: Some(NetworkChoice { id: self.network.id.clone(), aliases: Vec::new() }),
            private_folder: Some(FOLDER.to_owned()),
            ..ContainerRequest::default()
        };
        let file = |(name, text): &(&str, String)| File {
            name: (*name).to_owned(),
            mode: 0o444,
            contents: text.clone().into_bytes(),
        };
        let files: Vec<File> = files.iter().map(file).collect();
        let engine = &self.engine.engine;
        self.runtime.block_on(async {
            let id = engine.create_container(&request).await?;
            engine.put_files(&id, FOLDER, &files).await?;
            engine.start_container(&id).await
        })?;
        let guest = self.guest(&request.name)?;
        let connected = look_until(PATIENCE, || TcpStream::connect((guest.address, port)).ok());
        connected.with_context(|| format!("{name} does not listen on {port}; it said: {}", self.said(&guest.id)))?;
        Ok(guest)
    }

    /// The first process of a container.
    pub(crate) fn pid(&self, id: &str) -> anyhow::Result<u32> {
        let found = self.runtime.block_on(self.engine.engine.find_container(id))?;
        found.and_then(|container| container.pid).with_context(|| format!("the container {id} does not run"))
    }

    /// Takes an image away, so that it has to be made again.
    pub(crate) fn forget_image(&self, reference: &str) -> anyhow::Result<()> {
        let engine = &self.engine.engine;
        Ok(self.runtime.block_on(async {
            match engine.find_image(reference).await? {
                Some(image) => engine.remove_image(&image.id).await,
                None => Ok(()),
            }
        })?)
    }

    /// Takes an image away at the end that somebody else has made of a program.
    pub(crate) fn forget_at_the_end(&self, program: &Path, reference: String) {
        self.images.borrow_mut().insert(program.to_owned(), reference);
    }

    fn guest(&self, name: &str) -> anyhow::Result<Guest<'_>> {
        let find = || self.runtime.block_on(self.engine.engine.find_container(name)).ok().flatten();
        let running = look_until(PATIENCE, || {
            let container = find()?;
            let address = container.networks.values().find_map(|attachment| attachment.addresses.first().copied())?;
            Some(Guest { site: self, id: container.id, address, pid: container.pid? })
        });
        running.with_context(|| format!("the container {name} does not run; it said: {}", self.said(name)))
    }

    /// The last words of a container.
    fn said(&self, id: &str) -> String {
        self.runtime.block_on(self.engine.engine.container_logs(id, 20)).unwrap_or_default()
    }

    fn image(&self, program: &Path, name: &str) -> anyhow::Result<String> {
        if let Some(reference) = self.images.borrow().get(program) {
            return Ok(reference.clone());
        }
        let labels = labels(&[(MINE, &self.engine.instance)]);
        let repository = format!("localhost/underpass-bench-{name}");
        let archive = underpass_engines::scratch_image(&repository, program, name, &labels)?;
        self.runtime.block_on(self.engine.engine.load_image(archive.bytes))?;
        self.images.borrow_mut().insert(program.to_owned(), archive.reference.clone());
        Ok(archive.reference)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for reference in self.images.take().into_values() {
            let _ = self.forget_image(&reference);
        }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        let _ = self.site.runtime.block_on(self.site.engine.engine.remove_container(&self.id));
    }
}
