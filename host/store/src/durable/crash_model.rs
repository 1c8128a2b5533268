//! A model of the disk contents after a power loss: files, directories, and the synced state of each.
//!
//! Only synced data is certain. An unsynced file has any length up to its own, or none of the written bytes. An
//! unsynced directory has any prefix of its changes, where a rename is one change. This is more than any file system
//! here does, and what the standard allows (the idea is ALICE's: Pillai and others, OSDI 2014).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::fault_injection::{LoggedOperation, OperationRecord};

type DirectoryEntries = BTreeMap<OsString, usize>;
/// Entries added (with a node) and removed (`None`) in one step.
type DirectoryChange = Vec<(OsString, Option<usize>)>;

#[derive(Clone, Debug)]
enum DiskNode {
    File { safe: Vec<u8>, now: Vec<u8> },
    Directory { safe: DirectoryEntries, pending: Vec<DirectoryChange> },
}

/// The unsynced data that a power loss destroys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PowerLoss {
    /// Nothing is lost, as after a killed process.
    Nothing,
    /// All unsynced data is lost.
    Everything,
    /// Bytes are lost, but names are kept: a durable rename of a file without content.
    Bytes,
    /// Names are lost, but bytes are kept.
    Names,
    /// Random, for each change and each file, from this seed.
    Random(u64),
}

impl PowerLoss {
    /// Returns every kind, with some random ones.
    pub(crate) fn kinds(random: u64) -> impl Iterator<Item = PowerLoss> {
        [PowerLoss::Nothing, PowerLoss::Everything, PowerLoss::Bytes, PowerLoss::Names]
            .into_iter()
            .chain((1..=random).map(PowerLoss::Random))
    }
}

/// A directory tree: its current state and its durable state.
#[derive(Clone, Debug)]
pub(crate) struct DiskModel {
    root: PathBuf,
    nodes: Vec<DiskNode>,
}

impl DiskModel {
    /// Returns a model of a directory as it is, entirely durable.
    pub(crate) fn from_directory(root: &Path) -> DiskModel {
        let mut model = DiskModel { root: root.to_owned(), nodes: Vec::new() };
        model.add_existing(root);
        model
    }

    fn add_existing(&mut self, path: &Path) -> usize {
        let node = self.nodes.len();
        if path.is_dir() {
            self.nodes.push(DiskNode::Directory { safe: DirectoryEntries::new(), pending: Vec::new() });
            let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
            let entries = entries.map(|name| (name.clone(), self.add_existing(&path.join(name)))).collect();
            self.nodes[node] = DiskNode::Directory { safe: entries, pending: Vec::new() };
        } else {
            let bytes = fs::read(path).unwrap();
            self.nodes.push(DiskNode::File { safe: bytes.clone(), now: bytes });
        }
        node
    }

    /// Applies a logged operation.
    pub(crate) fn apply(&mut self, record: &OperationRecord) {
        if !record.done {
            return;
        }
        match &record.operation {
            LoggedOperation::MakeDirectory(path) => {
                self.add_node(path, DiskNode::Directory { safe: DirectoryEntries::new(), pending: Vec::new() });
            }
            LoggedOperation::CreateFile(path) => {
                self.add_node(path, DiskNode::File { safe: Vec::new(), now: Vec::new() })
            }
            LoggedOperation::Write(path, bytes) => self.write(path, bytes),
            LoggedOperation::Sync(path) => {
                let node = self.find(path);
                if let DiskNode::File { safe, now } = &mut self.nodes[node] {
                    safe.clone_from(now);
                }
            }
            LoggedOperation::SyncDirectory(path) => {
                let node = self.find(path);
                let entries = self.entries(node);
                self.nodes[node] = DiskNode::Directory { safe: entries, pending: Vec::new() };
            }
            LoggedOperation::Rename(from, to) => {
                assert_eq!(from.parent(), to.parent(), "the model knows renames within a directory only");
                let node = self.find(from);
                self.record_change(from, vec![(file_name(from), None), (file_name(to), Some(node))]);
            }
            LoggedOperation::Link(from, to) => {
                let node = self.find(from);
                self.record_change(to, vec![(file_name(to), Some(node))]);
            }
            LoggedOperation::RemoveFile(path) | LoggedOperation::RemoveDirectory(path) => {
                self.record_change(path, vec![(file_name(path), None)])
            }
            LoggedOperation::Look => {}
        }
    }

    /// Appends to a file. An existing file is rewritten from its beginning.
    fn write(&mut self, path: &Path, bytes: &[u8]) {
        let node = self.find(path);
        let DiskNode::File { safe, now } = &mut self.nodes[node] else { panic!("{} is a directory", path.display()) };
        if now == safe && !now.is_empty() {
            let end = bytes.len().min(now.len());
            now[..end].copy_from_slice(&bytes[..end]);
            now.extend_from_slice(&bytes[end..]);
        } else {
            now.extend_from_slice(bytes);
        }
    }

    fn add_node(&mut self, path: &Path, node: DiskNode) {
        self.nodes.push(node);
        self.record_change(path, vec![(file_name(path), Some(self.nodes.len() - 1))]);
    }

    fn record_change(&mut self, path: &Path, change: DirectoryChange) {
        let parent = self.find(path.parent().unwrap());
        let DiskNode::Directory { pending, .. } = &mut self.nodes[parent] else { panic!("no directory") };
        pending.push(change);
    }

    /// Returns the current node of a path.
    fn find(&self, path: &Path) -> usize {
        let below = path.strip_prefix(&self.root).unwrap();
        below.iter().fold(0, |node, name| {
            let found = self.entries(node).get(name).copied();
            found.unwrap_or_else(|| panic!("{} is not in the model", path.display()))
        })
    }

    /// Returns the current entries of a directory.
    fn entries(&self, node: usize) -> DirectoryEntries {
        let DiskNode::Directory { safe, pending } = &self.nodes[node] else { panic!("no directory") };
        apply_changes(safe, pending.iter())
    }

    /// Writes the directory as it is on the disk after the power loss to `to`, which must not exist.
    pub(crate) fn write_crash_image(&self, loss: PowerLoss, to: &Path) {
        let mut dice = CrashRandom(match loss {
            PowerLoss::Random(seed) => seed,
            _ => 0,
        });
        self.write_node(0, loss, &mut dice, to);
    }

    fn write_node(&self, node: usize, loss: PowerLoss, dice: &mut CrashRandom, to: &Path) {
        match &self.nodes[node] {
            DiskNode::File { safe, now } => {
                let bytes = match loss {
                    PowerLoss::Nothing | PowerLoss::Names => now.clone(),
                    PowerLoss::Everything | PowerLoss::Bytes => safe.clone(),
                    PowerLoss::Random(_) => truncate_unsynced(safe, now, dice),
                };
                fs::write(to, bytes).unwrap();
            }
            DiskNode::Directory { safe, pending } => {
                fs::create_dir(to).unwrap();
                let survivors = pending.iter().filter(|_| match loss {
                    PowerLoss::Nothing | PowerLoss::Bytes => true,
                    PowerLoss::Everything | PowerLoss::Names => false,
                    PowerLoss::Random(_) => dice.next_below(2) == 0,
                });
                for (name, child) in apply_changes(safe, survivors) {
                    self.write_node(child, loss, dice, &to.join(name));
                }
            }
        }
    }
}

/// Returns a prefix of the bytes written since the last sync, or none.
fn truncate_unsynced(safe: &[u8], now: &[u8], dice: &mut CrashRandom) -> Vec<u8> {
    if safe == now || dice.next_below(4) == 0 {
        return safe.to_vec();
    }
    let cut = dice.next_below(now.len() as u64 + 1) as usize;
    let mut bytes = now[..cut].to_vec();
    bytes.extend_from_slice(safe.get(cut..).unwrap_or_default());
    bytes
}

fn apply_changes<'a>(safe: &DirectoryEntries, changes: impl Iterator<Item = &'a DirectoryChange>) -> DirectoryEntries {
    let mut entries = safe.clone();
    for (name, node) in changes.flatten() {
        match node {
            Some(node) => drop(entries.insert(name.clone(), *node)),
            None => drop(entries.remove(name)),
        }
    }
    entries
}

fn file_name(path: &Path) -> OsString {
    path.file_name().unwrap().to_owned()
}

/// A reproducible random number generator (SplitMix64: Steele and others, 2014).
struct CrashRandom(u64);

impl CrashRandom {
    fn next_below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}
