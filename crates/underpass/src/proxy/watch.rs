//! Tells when a file may say something else: written, replaced, linked anew, gone or back.
//!
//! The folders are watched in which a change can happen: that of the file, and those of every link on the way to it (a ConfigMap is
//! swapped by renaming the link `..data`). A change counts when it is complete: the writer has closed the file, or a name has moved.
//! Polling was rejected: it is either late or busy.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, timeout_at};

/// A writer that never closes the file: after so long without another byte it is read as it is.
const SETTLED: Duration = Duration::from_secs(1);
/// As the kernel bounds them.
const MAX_LINKS: usize = 40;
const EVENT_BYTES: usize = 4096;

const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

pub(crate) struct Watch {
    path: PathBuf,
    inotify: AsyncFd<OwnedFd>,
    /// By the kernel's number: a folder, and which names in it matter.
    folders: HashMap<i32, (PathBuf, BTreeSet<OsString>)>,
}

/// What events amount to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    Nothing,
    /// Somebody is writing.
    Unfinished,
    Complete,
}

impl Watch {
    /// Changes from here on are told.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        #[expect(deprecated, reason = "its successor is unsafe; what that asks of its caller, an OwnedFd promises")]
        let inotify = AsyncFd::new(inotify)?;
        let mut watch = Self { path: std::path::absolute(path)?, inotify, folders: HashMap::new() };
        watch.look_again()?;
        Ok(watch)
    }

    /// Waits for a complete change. Whatever happens after this returns is told by the next call.
    pub(crate) async fn changed(&mut self) -> io::Result<()> {
        let mut unfinished_since = None;
        loop {
            let news = match unfinished_since {
                None => self.next().await?,
                Some(since) => match timeout_at(since + SETTLED, self.next()).await {
                    Ok(news) => news?,
                    Err(_) => News::Complete,
                },
            };
            match news {
                News::Nothing => {}
                News::Unfinished => unfinished_since = Some(Instant::now()),
                News::Complete => return self.look_again(),
            }
        }
    }

    /// Waits for events, and takes all that there are.
    async fn next(&self) -> io::Result<News> {
        loop {
            let mut ready = self.inotify.readable().await?;
            // An error means that there was nothing to read after all.
            if let Ok(news) = ready.try_io(|inotify| self.read(inotify.get_ref())) {
                return news;
            }
        }
    }

    fn read(&self, inotify: &OwnedFd) -> io::Result<News> {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut events = inotify::Reader::new(inotify, &mut buffer);
        let mut news = None;
        loop {
            match events.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    news = news.max(Some(self.judge(event.wd(), event.events(), name)));
                }
                Err(Errno::AGAIN) => return news.ok_or_else(|| io::ErrorKind::WouldBlock.into()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn judge(&self, folder: i32, events: ReadFlags, name: Option<&OsStr>) -> News {
        if events.intersects(ReadFlags::QUEUE_OVERFLOW) {
            return News::Complete;
        }
        let Some((folder, names)) = self.folders.get(&folder) else { return News::Nothing };
        if events.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED | ReadFlags::UNMOUNT) {
            return News::Complete;
        }
        let Some(name) = name.filter(|name| names.contains(*name)) else { return News::Nothing };
        let moved = ReadFlags::CLOSE_WRITE | ReadFlags::MOVED_TO | ReadFlags::MOVED_FROM | ReadFlags::DELETE;
        if events.intersects(moved) || (events.contains(ReadFlags::CREATE) && is_whole(&folder.join(name))) {
            return News::Complete;
        }
        News::Unfinished
    }

    /// Finds out anew where changes can happen. Folders that stay are not let go of for a moment.
    fn look_again(&mut self) -> io::Result<()> {
        let mut folders = HashMap::new();
        for (folder, names) in places(&self.path) {
            match inotify::add_watch(self.inotify.get_ref(), &folder, CHANGES) {
                // Two ways may lead to one folder.
                Ok(number) => folders.entry(number).or_insert((folder, BTreeSet::new())).1.extend(names),
                // Gone since it was looked at: its own parent tells.
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        for number in self.folders.keys().filter(|number| !folders.contains_key(number)) {
            // Gone with its folder, then.
            let _ = inotify::remove_watch(self.inotify.get_ref(), *number);
        }
        self.folders = folders;
        Ok(())
    }
}

/// A link or a second name is there at once; a new file is still to be written.
fn is_whole(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    path.symlink_metadata().is_ok_and(|metadata| !metadata.is_file() || metadata.nlink() > 1)
}

/// The folders, and the names in them, by which a path leads to its file: every link, the first thing that is missing, and the file.
fn places(path: &Path) -> BTreeMap<PathBuf, BTreeSet<OsString>> {
    let mut places: BTreeMap<PathBuf, BTreeSet<OsString>> = BTreeMap::new();
    let mut rest: Vec<OsString> = reversed(path);
    let mut here = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&name);
        let found = next.symlink_metadata();
        let link = found.as_ref().is_ok_and(Metadata::is_symlink);
        if link || found.is_err() || rest.is_empty() {
            places.entry(here.clone()).or_default().insert(name);
        }
        if found.is_err() {
            break;
        }
        if !link {
            here = next;
            continue;
        }
        links += 1;
        let Ok(target) = next.read_link() else { break };
        if links > MAX_LINKS {
            break;
        }
        if target.is_absolute() {
            here = PathBuf::from("/");
        }
        rest.extend(reversed(&target));
    }
    places
}

/// The names in a path, the first one last.
fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut names: Vec<OsString> = names.collect();
    names.reverse();
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// What is watched inside `folder`, as `folder: names`.
    fn watched(path: &Path, folder: &Path) -> Vec<String> {
        let inside = |place: &Path| place.strip_prefix(folder).map(|rest| format!("/{}", rest.display())).ok();
        let names = |names: &BTreeSet<OsString>| {
            names.iter().map(|name| name.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        places(path).iter().filter_map(|(place, held)| Some(format!("{}: {}", inside(place)?, names(held)))).collect()
    }

    #[test]
    fn a_file_is_watched_in_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        assert_eq!(watched(&root.join("f"), &root), ["/: f"], "also before it is there");
        std::fs::write(root.join("f"), "").unwrap();
        assert_eq!(watched(&root.join("f"), &root), ["/: f"]);
    }

    #[test]
    fn every_link_on_the_way_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("..v1")).unwrap();
        std::fs::write(root.join("..v1/f"), "").unwrap();
        symlink("..v1", root.join("..data")).unwrap();
        symlink("..data/f", root.join("f")).unwrap();
        assert_eq!(watched(&root.join("f"), &root), ["/: ..data f", "/..v1: f"]);
    }

    #[test]
    fn the_first_thing_that_is_missing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        symlink(root.join("a/b/../f"), root.join("f")).unwrap();
        assert_eq!(watched(&root.join("f"), &root), ["/: a f"]);
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        assert_eq!(watched(&root.join("f"), &root), ["/: f", "/a: f"]);
    }

    #[test]
    fn links_in_a_circle_end() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        symlink("b", root.join("a")).unwrap();
        symlink("a", root.join("b")).unwrap();
        assert_eq!(watched(&root.join("a"), &root), ["/: a b"]);
    }
}
