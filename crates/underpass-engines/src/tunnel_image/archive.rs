//! Images and build contexts as tars: the same content gives the same bytes, whoever packs it and when.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::json;
use sha2::{Digest, Sha256};

/// Tars consist of blocks.
const BLOCK: usize = 512;
/// A tar ends with two empty blocks.
const END: usize = 2 * BLOCK;

/// An image in the format of `docker save`.
#[derive(Clone)]
pub struct Archive {
    pub reference: String,
    pub bytes: Bytes,
}

/// The one layer of an image: one program.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    source: PathBuf,
    target: String,
}

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileState {
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
    let reference = format!("{repository}:{}", &layer.digest()?[..super::TAG_LENGTH]);
    let bytes = image(&reference, &layer, &[&format!("/{target}")], labels)?;
    Ok(Archive { reference, bytes })
}

/// The image in the format of `docker save`, which both engines load.
pub(super) fn image(
    reference: &str,
    layer: &Layer,
    entrypoint: &[&str],
    labels: &BTreeMap<String, String>,
) -> io::Result<Bytes> {
    let mut tar = tar::Builder::new(Vec::new());
    append_layer(&mut tar, layer)?;
    // The digest belongs to the bytes that were packed: the file may have changed since somebody looked at it.
    let digest = hex(&Sha256::digest(&tar.get_ref()[BLOCK..]));
    let config = config(&digest, entrypoint, labels);
    let name = format!("{}.json", hex(&Sha256::digest(&config)));
    let manifest = json!([{ "Config": name, "RepoTags": [reference], "Layers": ["layer.tar"] }]).to_string();
    append(&mut tar, &name, 0o644, config.as_bytes())?;
    append(&mut tar, "manifest.json", 0o644, manifest.as_bytes())?;
    Ok(tar.into_inner()?.into())
}

/// What a build needs: a Dockerfile, and the program beside it.
pub(super) fn context(dockerfile: &str, layer: &Layer) -> io::Result<Bytes> {
    let mut tar = tar::Builder::new(Vec::new());
    append(&mut tar, "Dockerfile", 0o644, dockerfile.as_bytes())?;
    let file = File::open(&layer.source)?;
    tar.append(&header(&layer.target, 0o755, file.metadata()?.len())?, file)?;
    Ok(tar.into_inner()?.into())
}

impl Layer {
    pub(super) fn of_program(source: &Path, target: &str) -> Self {
        Self { source: source.to_owned(), target: target.to_owned() }
    }

    pub(super) fn state(&self) -> io::Result<FileState> {
        let meta = fs::metadata(&self.source)?;
        Ok(FileState {
            device: meta.dev(),
            inode: meta.ino(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            size: meta.size(),
        })
    }

    /// SHA-256 of the layer's tar.
    pub(super) fn digest(&self) -> io::Result<String> {
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

/// A tar within the tar, written in place: the program may be large. It is a whole number of blocks, so that nothing follows it.
fn append_layer(tar: &mut tar::Builder<Vec<u8>>, layer: &Layer) -> io::Result<()> {
    let file = File::open(&layer.source)?;
    let size = file.metadata()?.len();
    let whole = size.next_multiple_of(BLOCK as u64) + (BLOCK + END) as u64;
    let out = tar.get_mut();
    out.reserve(usize::try_from(whole).unwrap_or_default() + 8 * BLOCK);
    out.write_all(header("layer.tar", 0o644, whole)?.as_bytes())?;
    layer.write(file, size, out)
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

fn config(layer_digest: &str, entrypoint: &[&str], labels: &BTreeMap<String, String>) -> String {
    json!({
        "architecture": architecture(),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": { "Entrypoint": entrypoint, "Labels": labels },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_digest}")] },
        "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "underpass" }],
    })
    .to_string()
}

/// Engines use Go's names.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
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
            let manifest: serde_json::Value = serde_json::from_slice(&parts["manifest.json"].1).unwrap();
            let layer = &parts[manifest[0]["Layers"][0].as_str().unwrap()].1;
            let config: serde_json::Value =
                serde_json::from_slice(&parts[manifest[0]["Config"].as_str().unwrap()].1).unwrap();
            assert_eq!(entries(layer), BTreeMap::from([("underpass".to_owned(), (0o755, contents))]));
            let digest = hex(&Sha256::digest(layer));
            assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{digest}"));
            assert_eq!(Layer::of_program(file.path(), "underpass").digest().unwrap(), digest);
            assert_eq!(manifest[0]["RepoTags"][0], archive.reference);
        }
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
