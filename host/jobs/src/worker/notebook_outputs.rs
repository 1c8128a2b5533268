//! Copies the files of a notebook to the outputs of its job as they change.
//!
//! The notebook's own code can write the folder at any time, so no path in it is trusted: every file and folder is opened
//! below the folder's own descriptor, without following links, and only regular files with names of outputs are read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::{Dir, FileType, Mode, OFlags, open};
use saggar_store::error::is_store_unavailable;
use saggar_store::limits::OUTPUTS_LISTED_MAX;
use saggar_store::{StoreError, is_output_path};

use crate::limits::NOTEBOOK_FILE_BYTES_MAX;
use crate::storage_guard::StorageGuard;

/// A file's content as far as it can be known without reading it: its inode, its size, and when it was changed.
type FileStamp = (u64, u64, i64, i64);

/// Stores an output of this path with this content.
type StoreOutput = Box<dyn Fn(&str, &[u8]) -> Result<(), StoreError>>;

/// Copies the files of one notebook.
pub(super) struct OutputCopier {
    folder: PathBuf,
    store: StoreOutput,
    room: StorageGuard,
    /// The stamps of the last look, and of the last copies.
    seen: BTreeMap<String, FileStamp>,
    copied: BTreeMap<String, FileStamp>,
    /// What the log says already that it is not copied.
    refused: BTreeSet<String>,
}

impl OutputCopier {
    /// Returns a copier of the files below `folder`, which `store` stores as outputs of the notebook's job.
    pub(super) fn new(folder: PathBuf, store: StoreOutput, room: StorageGuard) -> OutputCopier {
        let (seen, copied, refused) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        OutputCopier { folder, store, room, seen, copied, refused }
    }

    /// Copies the files that have changed since the last copy and not since the last look, because a file that changes may
    /// be incomplete; if `is_last`, all that have changed. Returns lines for the log.
    pub(super) fn copy_changes(&mut self, is_last: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let found = match self.list(&mut lines) {
            Ok(found) => found,
            Err(error) => {
                self.refuse("", &format!("the notebook's folder cannot be read: {error}"), &mut lines);
                return lines;
            }
        };
        for (path, stamp) in &found {
            let is_settled = is_last || self.seen.get(path) == Some(stamp);
            if is_settled && self.copied.get(path) != Some(stamp) {
                match self.copy(path) {
                    Ok(bytes) => {
                        self.refused.remove(path);
                        lines.push(format!("wrote output/{path} ({bytes} bytes)"));
                    }
                    Err(error) => {
                        self.refuse(path, &format!("output `{path}`: {error}"), &mut lines);
                        if is_store_unavailable(&error) {
                            // The next look tries again.
                            continue;
                        }
                    }
                }
                self.copied.insert(path.clone(), *stamp);
            }
        }
        self.seen = found;
        lines
    }

    fn copy(&mut self, path: &str) -> io::Result<usize> {
        let root = self.open_root()?;
        let mut file = File::from(open_below(&root, path, OFlags::RDONLY)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut data = Vec::new();
        file.by_ref().take(NOTEBOOK_FILE_BYTES_MAX + 1).read_to_end(&mut data)?;
        if data.len() as u64 > NOTEBOOK_FILE_BYTES_MAX {
            return Err(io::Error::other(format!("it is larger than {NOTEBOOK_FILE_BYTES_MAX} bytes")));
        }
        self.room.reserve(data.len() as u64).map_err(io::Error::other)?;
        (self.store)(path, &data).map_err(io::Error::other)?;
        Ok(data.len())
    }

    fn open_root(&self) -> io::Result<OwnedFd> {
        Ok(open(&self.folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Lists the regular files, at most as many as a job's outputs. Hidden ones are JupyterLab's own.
    fn list(&mut self, lines: &mut Vec<String>) -> io::Result<BTreeMap<String, FileStamp>> {
        let root = self.open_root()?;
        let (mut found, mut folders) = (BTreeMap::new(), vec![String::new()]);
        while let Some(folder) = folders.pop() {
            let opened = match folder.as_str() {
                "" => self.open_root(),
                below => open_below(&root, below, OFlags::RDONLY | OFlags::DIRECTORY),
            };
            // A folder can be removed or replaced while it is listed.
            let Ok(directory) = opened.and_then(|opened| Ok(Dir::new(opened)?)) else { continue };
            for entry in directory {
                let Ok(entry) = entry else { break };
                let name = entry.file_name().to_string_lossy();
                if name.starts_with('.') {
                    continue;
                }
                let path = if folder.is_empty() { name.into_owned() } else { format!("{folder}/{name}") };
                if !is_output_path(&path) {
                    let reason = format!("output `{path}`: a name has only letters, digits, `.`, `_` and `-`");
                    self.refuse(&path, &reason, lines);
                    continue;
                }
                match entry.file_type() {
                    FileType::Directory => folders.push(path),
                    _ if found.len() >= OUTPUTS_LISTED_MAX => return Ok(found),
                    FileType::RegularFile => found.extend(stamp(&root, &path).map(|stamp| (path, stamp))),
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    /// Adds a line about something that is not copied, once.
    fn refuse(&mut self, path: &str, line: &str, lines: &mut Vec<String>) {
        if self.refused.len() < OUTPUTS_LISTED_MAX && self.refused.insert(path.to_owned()) {
            lines.push(line.to_owned());
        }
    }
}

fn stamp(root: &OwnedFd, path: &str) -> Option<FileStamp> {
    let file = File::from(open_below(root, path, OFlags::RDONLY).ok()?);
    let data = file.metadata().ok()?;
    data.is_file().then(|| (data.ino(), data.len(), data.mtime(), data.mtime_nsec()))
}

/// Opens a path below `root`, without following links. A pipe is opened without waiting for a writer.
#[cfg(target_os = "linux")]
fn open_below(root: &impl AsFd, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    use rustix::fs::{ResolveFlags, openat2};

    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    Ok(openat2(root, path, flags, Mode::empty(), within)?)
}

/// Notebooks run only on Linux, where their sandbox exists.
#[cfg(not(target_os = "linux"))]
fn open_below(_: &impl AsFd, _: &str, _: OFlags) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use saggar_store::StateDir;

    use super::*;

    fn copier(home: &StateDir, folder: &std::path::Path) -> OutputCopier {
        let room = StorageGuard::new(None, home.clone(), home.models());
        let files = home.job_files();
        OutputCopier::new(folder.to_owned(), Box::new(move |path, data| files.write_output("J", path, data)), room)
    }

    #[test]
    fn changed_files_become_outputs_once_they_have_settled() {
        let dir = tempfile::tempdir().unwrap();
        let (home, folder) = (StateDir::open(dir.path().join("state")).unwrap(), dir.path().join("work"));
        fs::create_dir_all(folder.join("plots")).unwrap();
        fs::write(folder.join("plots/a.txt"), "one").unwrap();
        let mut copier = copier(&home, &folder);
        assert!(copier.copy_changes(false).is_empty(), "it may still be written");
        assert_eq!(copier.copy_changes(false), ["wrote output/plots/a.txt (3 bytes)"]);
        assert!(copier.copy_changes(false).is_empty(), "it has not changed");
        fs::write(folder.join("plots/a.txt"), "longer").unwrap();
        assert_eq!(copier.copy_changes(true), ["wrote output/plots/a.txt (6 bytes)"]);
        let (mut file, _) = home.job_files().open_output("J", "plots/a.txt").unwrap().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "longer");
    }

    #[test]
    fn links_and_pipes_never_become_outputs() {
        let dir = tempfile::tempdir().unwrap();
        let (home, folder) = (StateDir::open(dir.path().join("state")).unwrap(), dir.path().join("work"));
        let outside = dir.path().join("outside");
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("secret"), "keys").unwrap();
        symlink(outside.join("secret"), folder.join("file")).unwrap();
        symlink(&outside, folder.join("folder")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, folder.join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let mut copier = copier(&home, &folder);
        copier.copy_changes(true);
        copier.copy_changes(true);
        assert!(home.job_files().list_outputs("J").unwrap().is_empty());
        for path in ["file", "folder/secret", "pipe"] {
            assert!(copier.copy(path).is_err(), "{path}");
        }
    }

    #[test]
    fn names_that_are_no_outputs_are_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        let (home, folder) = (StateDir::open(dir.path().join("state")).unwrap(), dir.path().join("work"));
        fs::create_dir_all(folder.join(".ipynb_checkpoints")).unwrap();
        fs::write(folder.join(".ipynb_checkpoints/x.ipynb"), "{}").unwrap();
        fs::write(folder.join("two words.txt"), "1").unwrap();
        let mut copier = copier(&home, &folder);
        let lines = copier.copy_changes(true);
        assert!(lines.len() == 1 && lines[0].contains("two words.txt"), "{lines:?}");
        assert!(copier.copy_changes(true).is_empty());
    }
}
