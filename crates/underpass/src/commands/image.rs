//! `underpass image`: this very program as a container image, for clusters and engines.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use underpass_engines::{About, program_image};

use crate::args::Image;
use crate::exit::Ended;
use crate::output;

/// Whom its containers run as: nobody whom a node knows. Numbers, so that a cluster can see that it is not root.
const USER: &str = "65532:65532";
/// The program that runs, whatever has become of its file.
const PROGRAM: &str = "/proc/self/exe";

pub(crate) fn run(args: &Image) -> anyhow::Result<Ended> {
    let reference = args.name.clone().unwrap_or_else(|| concat!("underpass:", env!("CARGO_PKG_VERSION")).to_owned());
    let output = target(&args.output)?;
    let about = About { reference: &reference, user: Some(USER), labels: &labels() };
    let archive = program_image(about, Path::new(PROGRAM), "underpass").context("this program cannot be read")?;
    write(&output, &archive.bytes).with_context(|| format!("cannot write {}", args.output.display()))?;
    let (digest, megabytes) = (&archive.digest, archive.bytes.len() as f64 / 1e6);
    output::print(&format!("{reference}\n{digest}\n{megabytes:.1} MB in {}\n", args.output.display()))?;
    Ok(Ended::Well)
}

fn labels() -> BTreeMap<String, String> {
    let about = [
        ("title", "underpass"),
        ("description", env!("CARGO_PKG_DESCRIPTION")),
        ("version", env!("CARGO_PKG_VERSION")),
        ("licenses", env!("CARGO_PKG_LICENSE")),
    ];
    about.map(|(name, value)| (format!("org.opencontainers.image.{name}"), value.to_owned())).into()
}

/// The file that is replaced, or made: what a link leads to, so that the link stays one. Nothing else can be replaced without harm.
fn target(path: &Path) -> anyhow::Result<PathBuf> {
    let found = std::fs::metadata(path);
    if path == Path::new("-") || found.as_ref().is_ok_and(|found| !found.is_file()) {
        bail!("{} is not a file: name one for the archive with --output", path.display());
    }
    Ok(if found.is_ok() { path.canonicalize()? } else { path.to_owned() })
}

/// Whole, or not at all: whoever loads it while it is written gets the old one.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    // It holds nothing that is not public, and others have to read it: an engine's own user, for example.
    let public = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(public)?;
    file.persist(path)?;
    Ok(())
}
