//! The image of the tunnel client: our own program and nothing else.
//!
//! It is the program that runs, packed here and loaded through the engine's API: no Dockerfile, no pull, no build tool, no network. Its
//! tag follows from its content, so that what is there under that tag need not be made again. With a base image it is a real build.
//!
//! At most one process on this host makes an image in one engine at a time, and the others use what it made ([`lock`]). An image that
//! no container and no process uses any more is collected by whoever makes another.

mod lock;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use bytes::Bytes;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use crate::container::Image;
use crate::engine::{BuildRequest, ContainerEngine, EngineError};
use crate::image_archive::{self, About, FileState, Layer, TAG_LENGTH, hex};
use crate::labels::{IMAGE, labels};
use lock::{Exclusive, InUse, Locks};

pub use lock::remove_stale_locks;

const REPOSITORY: &str = "localhost/underpass-tunnel";
/// The value of the label on the image.
const CONTENT: &str = "tunnel-client";
/// Where the program is in the image.
const PROGRAM: &str = "underpass";

/// One per process: remembers what was computed, and holds the images that the process uses until it ends.
pub struct TunnelImages {
    program: PathBuf,
    /// By what tells one state of a file from another.
    digests: Mutex<BTreeMap<FileState, String>>,
    /// Bases that were asked for in this process already: a registry is asked once, not once per object.
    pulled: Mutex<BTreeSet<(String, String)>>,
    in_use: Mutex<BTreeMap<(String, String), InUse>>,
}

/// An image that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ensured {
    pub reference: String,
    pub id: String,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was there, or somebody else made it while we waited.
    Reused,
    Loaded,
    Built,
}

/// What shall be in the image.
struct Recipe {
    tag: String,
    layer: Layer,
    base: Option<String>,
}

impl Default for TunnelImages {
    fn default() -> Self {
        Self::new("/proc/self/exe")
    }
}

impl TunnelImages {
    /// Images with that program instead of the one that runs.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), digests: Mutex::default(), pulled: Mutex::default(), in_use: Mutex::default() }
    }

    /// The image, if the engine has it.
    pub async fn find(&self, engine: &dyn ContainerEngine, base: Option<&str>) -> Result<Option<Ensured>, EngineError> {
        let address = engine.describe().await?.address;
        let recipe = self.recipe(engine, &address, base).await?;
        // Before it is looked for: what is in use is not collected.
        self.hold(&Locks::of(&address), &address, &recipe.tag).await?;
        let found = engine.find_image(&recipe.reference()).await?;
        Ok(found.map(|image| recipe.ensured(image, Outcome::Reused)))
    }

    pub async fn ensure(&self, engine: &dyn ContainerEngine, base: Option<&str>) -> Result<Ensured, EngineError> {
        if let Some(found) = self.find(engine, base).await? {
            return Ok(found);
        }
        let address = engine.describe().await?.address;
        let recipe = self.recipe(engine, &address, base).await?;
        let locks = Locks::of(&address);
        let _alone = locks.exclusive().await.map_err(cannot_lock)?;
        if let Some(image) = engine.find_image(&recipe.reference()).await? {
            return Ok(recipe.ensured(image, Outcome::Reused));
        }
        let ensured = make(engine, recipe).await?;
        info!(image = ensured.reference, outcome = ?ensured.outcome, "image made");
        collect(engine, &locks, &ensured.id).await;
        Ok(ensured)
    }

    async fn recipe(
        &self,
        engine: &dyn ContainerEngine,
        address: &str,
        base: Option<&str>,
    ) -> Result<Recipe, EngineError> {
        let layer = Layer::of_program(&self.program, PROGRAM);
        let digest = self.digest(&layer).await?;
        let base_id = match base {
            Some(base) => self.base(engine, address, base).await?.id,
            None => String::new(),
        };
        let described = format!("1\n{digest}\n{}\n{base_id}\n", base.unwrap_or_default());
        let tag = hex(&Sha256::digest(described))[..TAG_LENGTH].to_owned();
        Ok(Recipe { tag, layer, base: base.map(str::to_owned) })
    }

    /// The base as the engine has it, after it was asked for a newer one.
    async fn base(&self, engine: &dyn ContainerEngine, address: &str, base: &str) -> Result<Image, EngineError> {
        let key = (address.to_owned(), base.to_owned());
        let known = self.pulled.lock().contains(&key);
        let pulled = if known { Ok(()) } else { engine.pull_image(base).await };
        match (engine.find_image(base).await?, pulled) {
            (Some(image), pulled) => {
                if let Err(error) = pulled {
                    warn!(image = base, %error, "cannot be pulled; the local copy is used");
                }
                self.pulled.lock().insert(key);
                Ok(image)
            }
            (None, pulled) => {
                let pull =
                    pulled.err().map_or_else(|| "it has gone".to_owned(), |error| format!("the pull failed ({error})"));
                let why = format!(
                    "{pull}, and the engine has no local copy; load it into the engine, or name another base image"
                );
                Err(EngineError::NoImage { reference: base.to_owned(), why })
            }
        }
    }

    async fn digest(&self, layer: &Layer) -> Result<String, EngineError> {
        let state = layer.state().map_err(cannot_read)?;
        if let Some(digest) = self.digests.lock().get(&state) {
            return Ok(digest.clone());
        }
        let layer = layer.clone();
        let digest = blocking(move || layer.digest()).await?;
        self.digests.lock().insert(state, digest.clone());
        Ok(digest)
    }

    async fn hold(&self, locks: &Locks, address: &str, tag: &str) -> Result<(), EngineError> {
        let key = (address.to_owned(), tag.to_owned());
        if self.in_use.lock().contains_key(&key) {
            return Ok(());
        }
        remove_stale_locks();
        let held = locks.in_use(tag).await.map_err(cannot_lock)?;
        self.in_use.lock().insert(key, held);
        Ok(())
    }
}

impl Recipe {
    fn reference(&self) -> String {
        format!("{REPOSITORY}:{}", self.tag)
    }

    fn ensured(&self, image: Image, outcome: Outcome) -> Ensured {
        Ensured { reference: self.reference(), id: image.id, outcome }
    }

    fn archive(&self) -> std::io::Result<Bytes> {
        let reference = self.reference();
        match &self.base {
            None => {
                let about = About { reference: &reference, user: None, labels: &content_labels() };
                image_archive::image(about, &self.layer).map(|archive| archive.bytes)
            }
            Some(base) => image_archive::context(
                &format!("FROM {base}\nCOPY {PROGRAM} /{PROGRAM}\nENTRYPOINT [\"/{PROGRAM}\"]\n"),
                &self.layer,
            ),
        }
    }
}

fn content_labels() -> BTreeMap<String, String> {
    labels(&[(IMAGE, CONTENT)])
}

async fn make(engine: &dyn ContainerEngine, recipe: Recipe) -> Result<Ensured, EngineError> {
    let (recipe, archive) = blocking(move || recipe.archive().map(|archive| (recipe, archive))).await?;
    let reference = recipe.reference();
    let outcome = if recipe.base.is_some() {
        let request = BuildRequest { reference: reference.clone(), context: archive, labels: content_labels() };
        engine.build_image(request).await?;
        Outcome::Built
    } else {
        engine.load_image(archive).await?;
        Outcome::Loaded
    };
    match engine.find_image(&reference).await? {
        Some(image) => Ok(recipe.ensured(image, outcome)),
        None => {
            let why = "the engine took it without an error and does not show it".to_owned();
            Err(EngineError::NoImage { reference, why })
        }
    }
}

/// Takes away what nobody uses any more. Nothing depends on it, so that a failure is told and no more.
async fn collect(engine: &dyn ContainerEngine, locks: &Locks, keep: &str) {
    if let Err(error) = try_collect(engine, locks, keep).await {
        warn!(%error, "old images cannot be collected");
    }
}

async fn try_collect(engine: &dyn ContainerEngine, locks: &Locks, keep: &str) -> Result<(), EngineError> {
    let images = engine.list_images(&[(IMAGE, CONTENT)]).await?;
    let used: BTreeSet<String> =
        engine.list_containers(&[]).await?.into_iter().map(|container| container.image_id).collect();
    for image in images.into_iter().filter(|image| image.id != keep && !used.contains(&image.id)) {
        let tags: Vec<&str> = image.references.iter().filter_map(|reference| reference.rsplit(':').next()).collect();
        let claimed: Result<Vec<Exclusive>, _> = tags.iter().map(|tag| locks.claim(tag)).collect();
        // Somebody lives who uses it: without a container as yet, or as the base of another.
        let Ok(_claimed) = claimed else { continue };
        match engine.remove_image(&image.id).await {
            Ok(()) => info!(image = ?image.references, "old image removed"),
            Err(EngineError::InUse(_)) => {}
            Err(error) => warn!(image = ?image.references, %error, "old image cannot be removed"),
        }
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, EngineError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(cannot_read),
        Err(error) => Err(EngineError::Refused(format!("packing the image was stopped: {error}"))),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn cannot_read(error: std::io::Error) -> EngineError {
    EngineError::NoImage { reference: REPOSITORY.to_owned(), why: format!("the program cannot be read: {error}") }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn cannot_lock(error: std::io::Error) -> EngineError {
    EngineError::NoImage {
        reference: REPOSITORY.to_owned(),
        why: format!("other processes cannot be kept out: {error}"),
    }
}
