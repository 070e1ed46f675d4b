//! Images and build contexts as tars: the same content gives the same bytes, whoever packs it and when.
//!
//! An image is an OCI layout with the file beside it by which `docker load` finds its way, so that containerd, Podman and every version of
//! Docker take the same archive. Its layer is not compressed: a node unpacks it faster than it would unzip it, and a registry zips
//! it when it is pushed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Tars consist of blocks.
const BLOCK: usize = 512;
/// A tar ends with two empty blocks.
const END: usize = 2 * BLOCK;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// Of a name's parts, what is taken for granted.
const USUAL_REGISTRY: &str = "docker.io";
const USUAL_REPOSITORY: &str = "library";
/// Half of SHA-256 is far more than chance can hit, and can still be read.
pub(crate) const TAG_LENGTH: usize = 24;

/// An image in a tar.
#[derive(Clone)]
pub struct Archive {
    pub reference: String,
    /// By which registries and containerd know it: that of its manifest, with the name of the hash.
    pub digest: String,
    pub bytes: Bytes,
}

/// What an image says of itself, beside the program in it.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    pub reference: &'a str,
    /// Whom its containers run as, unless they are told otherwise; `None`: root.
    pub user: Option<&'a str>,
    pub labels: &'a BTreeMap<String, String>,
}

/// The one layer of an image: one program.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    source: PathBuf,
    target: String,
}

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileState {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    size: u64,
}

/// An image with one program in it, whose tag follows from its content.
pub fn scratch_image(
    repository: &str,
    program: &Path,
    target: &str,
    labels: &BTreeMap<String, String>,
) -> io::Result<Archive> {
    let layer = Layer::of_program(program, target);
    let reference = format!("{repository}:{}", &layer.digest()?[..TAG_LENGTH]);
    image(About { reference: &reference, user: None, labels }, &layer)
}

/// An image with one program in it, under the name that it is given.
pub fn program_image(about: About<'_>, program: &Path, target: &str) -> io::Result<Archive> {
    image(about, &Layer::of_program(program, target))
}

/// The image that runs the program of its layer.
pub(crate) fn image(about: About<'_>, layer: &Layer) -> io::Result<Archive> {
    let mut tar = tar::Builder::new(Vec::new());
    // The digest belongs to the bytes that were packed: the file may have changed since somebody looked at it.
    let layer_blob = append_layer(&mut tar, layer)?;
    let config = append_blob(&mut tar, CONFIG, &config(&layer_blob, layer, about))?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.describe(),
        "layers": [layer_blob.describe()],
    });
    let manifest = append_blob(&mut tar, MANIFEST, &manifest)?;
    let mut listed = manifest.describe();
    listed["platform"] = json!({ "architecture": architecture(), "os": "linux" });
    listed["annotations"] = json!({
        "io.containerd.image.name": full_name(about.reference),
        "org.opencontainers.image.ref.name": tag(about.reference),
    });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [listed] });
    append(&mut tar, "index.json", 0o644, index.to_string().as_bytes())?;
    append(&mut tar, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let docker = json!([{ "Config": config.path(), "RepoTags": [about.reference], "Layers": [layer_blob.path()] }]);
    append(&mut tar, "manifest.json", 0o644, docker.to_string().as_bytes())?;
    let bytes = tar.into_inner()?.into();
    Ok(Archive { reference: about.reference.to_owned(), digest: format!("sha256:{}", manifest.digest), bytes })
}

/// What a build needs: a Dockerfile, and the program beside it.
pub(crate) fn context(dockerfile: &str, layer: &Layer) -> io::Result<Bytes> {
    let mut tar = tar::Builder::new(Vec::new());
    append(&mut tar, "Dockerfile", 0o644, dockerfile.as_bytes())?;
    let file = File::open(&layer.source)?;
    tar.append(&header(&layer.target, 0o755, file.metadata()?.len())?, file)?;
    Ok(tar.into_inner()?.into())
}

impl Layer {
    pub(crate) fn of_program(source: &Path, target: &str) -> Self {
        Self { source: source.to_owned(), target: target.to_owned() }
    }

    pub(crate) fn state(&self) -> io::Result<FileState> {
        let meta = fs::metadata(&self.source)?;
        Ok(FileState {
            device: meta.dev(),
            inode: meta.ino(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            size: meta.size(),
        })
    }

    /// SHA-256 of the layer's tar.
    pub(crate) fn digest(&self) -> io::Result<String> {
        let mut hash = Sha256::new();
        let file = File::open(&self.source)?;
        let size = file.metadata()?.len();
        self.write(file, size, &mut hash)?;
        Ok(hex(&hash.finalize()))
    }

    fn write(&self, file: File, size: u64, out: &mut impl Write) -> io::Result<()> {
        let mut tar = tar::Builder::new(out);
        tar.append(&header(&self.target, 0o755, size)?, file)?;
        tar.finish()
    }
}

/// A part of an image, stored under its hash.
struct Blob {
    digest: String,
    size: usize,
    media_type: &'static str,
}

impl Blob {
    fn of(contents: &[u8], media_type: &'static str) -> Self {
        Self { digest: hex(&Sha256::digest(contents)), size: contents.len(), media_type }
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn describe(&self) -> Value {
        json!({ "mediaType": self.media_type, "digest": format!("sha256:{}", self.digest), "size": self.size })
    }
}

/// A tar within the tar, written in place: the program may be large. It is a whole number of blocks, so that nothing follows it. Its name
/// is known when it is written, and so its header is put before it afterwards.
fn append_layer(tar: &mut tar::Builder<Vec<u8>>, layer: &Layer) -> io::Result<Blob> {
    let file = File::open(&layer.source)?;
    let size = file.metadata()?.len();
    let whole = size.next_multiple_of(BLOCK as u64) + (BLOCK + END) as u64;
    let out = tar.get_mut();
    let start = out.len();
    out.reserve(usize::try_from(whole).unwrap_or_default() + 16 * BLOCK);
    out.resize(start + BLOCK, 0);
    layer.write(file, size, out)?;
    let blob = Blob::of(&out[start + BLOCK..], LAYER);
    out[start..start + BLOCK].copy_from_slice(header(&blob.path(), 0o644, whole)?.as_bytes());
    Ok(blob)
}

fn append_blob(tar: &mut tar::Builder<Vec<u8>>, media_type: &'static str, contents: &Value) -> io::Result<Blob> {
    let contents = contents.to_string();
    let blob = Blob::of(contents.as_bytes(), media_type);
    append(tar, &blob.path(), 0o644, contents.as_bytes())?;
    Ok(blob)
}

fn append(tar: &mut tar::Builder<Vec<u8>>, name: &str, mode: u32, contents: &[u8]) -> io::Result<()> {
    tar.append(&header(name, mode, contents.len() as u64)?, contents)
}

fn header(path: &str, mode: u32, size: u64) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_gnu();
    header.set_path(path)?;
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    Ok(header)
}

fn config(layer: &Blob, program: &Layer, about: About<'_>) -> Value {
    let mut config = json!({ "Entrypoint": [format!("/{}", program.target)], "Labels": about.labels });
    if let Some(user) = about.user {
        config["User"] = json!(user);
    }
    json!({
        "architecture": architecture(),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": config,
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", layer.digest)] },
        "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "underpass" }],
    })
}

/// A name with all that people leave out, as containerd stores it: a first part that could be a host is one.
fn full_name(reference: &str) -> String {
    match reference.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => reference.to_owned(),
        Some(_) => format!("{USUAL_REGISTRY}/{reference}"),
        None => format!("{USUAL_REGISTRY}/{USUAL_REPOSITORY}/{reference}"),
    }
}

fn tag(reference: &str) -> &str {
    reference.rsplit_once(':').map_or(reference, |(_, tag)| tag)
}

/// Engines use Go's names.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn program(contents: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(contents).unwrap();
        file
    }

    fn entries(tar: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut archive = tar::Archive::new(tar);
        let entries = archive.entries().unwrap();
        let read = entries.map(|entry| {
            let mut entry = entry.unwrap();
            let mut contents = Vec::new();
            entry.read_to_end(&mut contents).unwrap();
            assert_eq!(entry.header().mtime().unwrap(), 0);
            (entry.path().unwrap().display().to_string(), (entry.header().mode().unwrap(), contents))
        });
        read.collect()
    }

    #[test]
    fn an_image_is_its_program_and_what_describes_it() {
        for size in [0, 1, 511, 512, 513, 70_000] {
            let contents = vec![7; size];
            let file = program(&contents);
            let archive = scratch_image("localhost/x", file.path(), "underpass", &BTreeMap::new()).unwrap();
            let parts = entries(&archive.bytes);
            let manifest: Value = serde_json::from_slice(&parts["manifest.json"].1).unwrap();
            let layer = &parts[manifest[0]["Layers"][0].as_str().unwrap()].1;
            let config: Value = serde_json::from_slice(&parts[manifest[0]["Config"].as_str().unwrap()].1).unwrap();
            assert_eq!(entries(layer), BTreeMap::from([("underpass".to_owned(), (0o755, contents))]));
            let digest = hex(&Sha256::digest(layer));
            assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{digest}"));
            assert_eq!(Layer::of_program(file.path(), "underpass").digest().unwrap(), digest);
            assert_eq!(manifest[0]["RepoTags"][0], archive.reference);
        }
    }

    /// Every part is found by its hash from the index on, as OCI wants it.
    #[test]
    fn an_image_is_an_oci_layout() {
        let file = program(b"elf");
        let about = About { reference: "underpass:1.2.3", user: Some("65532:65532"), labels: &BTreeMap::new() };
        let archive = program_image(about, file.path(), "underpass").unwrap();
        let parts = entries(&archive.bytes);
        let blob = |described: &Value| {
            let digest = described["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let contents = &parts[&format!("blobs/sha256/{digest}")].1;
            assert_eq!(
                (hex(&Sha256::digest(contents)).as_str(), described["size"].as_u64()),
                (digest, Some(contents.len() as u64))
            );
            contents.clone()
        };
        let json = |contents: Vec<u8>| serde_json::from_slice::<Value>(&contents).unwrap();
        assert_eq!(json(parts["oci-layout"].1.clone())["imageLayoutVersion"], "1.0.0");
        let listed = json(parts["index.json"].1.clone())["manifests"][0].clone();
        assert_eq!(listed["digest"], archive.digest);
        assert_eq!(listed["annotations"]["io.containerd.image.name"], "docker.io/library/underpass:1.2.3");
        let manifest = json(blob(&listed));
        let config = json(blob(&manifest["config"]));
        assert_eq!(config["config"], json!({ "Entrypoint": ["/underpass"], "Labels": {}, "User": "65532:65532" }));
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"], "it is not compressed");
        blob(&manifest["layers"][0]);
        assert_eq!(parts.len(), 6, "and nothing else: {:?}", parts.keys());
    }

    #[test]
    fn names_are_completed_as_containerd_does() {
        for (short, full) in [
            ("underpass:1", "docker.io/library/underpass:1"),
            ("team/underpass:1", "docker.io/team/underpass:1"),
            ("localhost/underpass:1", "localhost/underpass:1"),
            ("r.example/underpass:1", "r.example/underpass:1"),
            ("host:5000/underpass:1", "host:5000/underpass:1"),
        ] {
            assert_eq!(full_name(short), full);
        }
        assert_eq!(tag("host:5000/underpass:1"), "1");
    }

    #[test]
    fn the_same_content_gives_the_same_bytes() {
        let pack = |contents: &[u8]| scratch_image("r", program(contents).path(), "p", &BTreeMap::new()).unwrap();
        assert_eq!(pack(b"one").bytes, pack(b"one").bytes);
        assert_ne!(pack(b"one").reference, pack(b"two").reference);
    }

    #[test]
    fn a_context_has_a_dockerfile_and_the_program() {
        let file = program(b"elf");
        let tar = context("FROM base\n", &Layer::of_program(file.path(), "underpass")).unwrap();
        let parts = entries(&tar);
        assert_eq!(parts["Dockerfile"].1, b"FROM base\n");
        assert_eq!(parts["underpass"], (0o755, b"elf".to_vec()));
    }
}
