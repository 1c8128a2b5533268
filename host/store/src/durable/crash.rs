//! What a disk may hold after the power fails: a model of files, directories and what of them was synced.
//!
//! Only what was synced is sure. A file that was not has any length up to its own, or holds nothing of what was written;
//! a directory that was not has any of its changes, in order, a rename being one change. This is more than any file system
//! here does, and what the standard allows (the idea is ALICE's: Pillai and others, OSDI 2014).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::faults::{Operation, Record};

type Entries = BTreeMap<OsString, usize>;
/// Entries that come (a node) and go (none), in one step.
type Change = Vec<(OsString, Option<usize>)>;

#[derive(Clone, Debug)]
enum Node {
    File { safe: Vec<u8>, now: Vec<u8> },
    Directory { safe: Entries, pending: Vec<Change> },
}

/// What the power's failure leaves of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Loss {
    /// All of it: what a killed process leaves.
    Nothing,
    /// Nothing of it.
    Everything,
    /// Names, but no bytes: a rename that the disk has, of a file that it has not.
    Bytes,
    /// Bytes, but no names.
    Names,
    /// Whatever these random numbers say, for each change and each file.
    Random(u64),
}

impl Loss {
    /// Every kind, with some random ones.
    pub(crate) fn kinds(random: u64) -> impl Iterator<Item = Loss> {
        [Loss::Nothing, Loss::Everything, Loss::Bytes, Loss::Names].into_iter().chain((1..=random).map(Loss::Random))
    }
}

/// A directory and all below, as they are and as the disk has them.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    root: PathBuf,
    nodes: Vec<Node>,
}

impl Model {
    /// A model of a directory as it is, all of it on the disk.
    pub(crate) fn of(root: &Path) -> Model {
        let mut model = Model { root: root.to_owned(), nodes: Vec::new() };
        model.take_in(root);
        model
    }

    fn take_in(&mut self, path: &Path) -> usize {
        let node = self.nodes.len();
        if path.is_dir() {
            self.nodes.push(Node::Directory { safe: Entries::new(), pending: Vec::new() });
            let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
            let entries = entries.map(|name| (name.clone(), self.take_in(&path.join(name)))).collect();
            self.nodes[node] = Node::Directory { safe: entries, pending: Vec::new() };
        } else {
            let bytes = fs::read(path).unwrap();
            self.nodes.push(Node::File { safe: bytes.clone(), now: bytes });
        }
        node
    }

    /// Does what was done.
    pub(crate) fn apply(&mut self, record: &Record) {
        if !record.done {
            return;
        }
        match &record.operation {
            Operation::MakeDirectory(path) => {
                self.add(path, Node::Directory { safe: Entries::new(), pending: Vec::new() });
            }
            Operation::CreateFile(path) => self.add(path, Node::File { safe: Vec::new(), now: Vec::new() }),
            Operation::Write(path, bytes) => self.write(path, bytes),
            Operation::Sync(path) => {
                let node = self.find(path);
                if let Node::File { safe, now } = &mut self.nodes[node] {
                    safe.clone_from(now);
                }
            }
            Operation::SyncDirectory(path) => {
                let node = self.find(path);
                let entries = self.entries(node);
                self.nodes[node] = Node::Directory { safe: entries, pending: Vec::new() };
            }
            Operation::Rename(from, to) => {
                assert_eq!(from.parent(), to.parent(), "the model knows renames within a directory only");
                let node = self.find(from);
                self.change(from, vec![(name(from), None), (name(to), Some(node))]);
            }
            Operation::Link(from, to) => {
                let node = self.find(from);
                self.change(to, vec![(name(to), Some(node))]);
            }
            Operation::RemoveFile(path) | Operation::RemoveDirectory(path) => {
                self.change(path, vec![(name(path), None)])
            }
            Operation::Look => {}
        }
    }

    /// Writes go to the end of a file; one that is there already is written anew, from its beginning.
    fn write(&mut self, path: &Path, bytes: &[u8]) {
        let node = self.find(path);
        let Node::File { safe, now } = &mut self.nodes[node] else { panic!("{} is a directory", path.display()) };
        if now == safe && !now.is_empty() {
            let end = bytes.len().min(now.len());
            now[..end].copy_from_slice(&bytes[..end]);
            now.extend_from_slice(&bytes[end..]);
        } else {
            now.extend_from_slice(bytes);
        }
    }

    fn add(&mut self, path: &Path, node: Node) {
        self.nodes.push(node);
        self.change(path, vec![(name(path), Some(self.nodes.len() - 1))]);
    }

    fn change(&mut self, path: &Path, change: Change) {
        let parent = self.find(path.parent().unwrap());
        let Node::Directory { pending, .. } = &mut self.nodes[parent] else { panic!("no directory") };
        pending.push(change);
    }

    /// The node that has a path now.
    fn find(&self, path: &Path) -> usize {
        let below = path.strip_prefix(&self.root).unwrap();
        below.iter().fold(0, |node, name| {
            let found = self.entries(node).get(name).copied();
            found.unwrap_or_else(|| panic!("{} is not in the model", path.display()))
        })
    }

    /// A directory's entries now.
    fn entries(&self, node: usize) -> Entries {
        let Node::Directory { safe, pending } = &self.nodes[node] else { panic!("no directory") };
        after(safe, pending.iter())
    }

    /// Makes a directory of what the disk holds after the power failed, at `to`, which must not be there.
    pub(crate) fn image(&self, loss: Loss, to: &Path) {
        let mut dice = Dice(match loss {
            Loss::Random(seed) => seed,
            _ => 0,
        });
        self.lay(0, loss, &mut dice, to);
    }

    fn lay(&self, node: usize, loss: Loss, dice: &mut Dice, to: &Path) {
        match &self.nodes[node] {
            Node::File { safe, now } => {
                let bytes = match loss {
                    Loss::Nothing | Loss::Names => now.clone(),
                    Loss::Everything | Loss::Bytes => safe.clone(),
                    Loss::Random(_) => torn(safe, now, dice),
                };
                fs::write(to, bytes).unwrap();
            }
            Node::Directory { safe, pending } => {
                fs::create_dir(to).unwrap();
                let kept = pending.iter().filter(|_| match loss {
                    Loss::Nothing | Loss::Bytes => true,
                    Loss::Everything | Loss::Names => false,
                    Loss::Random(_) => dice.throw(2) == 0,
                });
                for (name, child) in after(safe, kept) {
                    self.lay(child, loss, dice, &to.join(name));
                }
            }
        }
    }
}

/// Some of the bytes that were written since the file was synced, from the first on, or none.
fn torn(safe: &[u8], now: &[u8], dice: &mut Dice) -> Vec<u8> {
    if safe == now || dice.throw(4) == 0 {
        return safe.to_vec();
    }
    let cut = dice.throw(now.len() as u64 + 1) as usize;
    let mut bytes = now[..cut].to_vec();
    bytes.extend_from_slice(safe.get(cut..).unwrap_or_default());
    bytes
}

fn after<'a>(safe: &Entries, changes: impl Iterator<Item = &'a Change>) -> Entries {
    let mut entries = safe.clone();
    for (name, node) in changes.flatten() {
        match node {
            Some(node) => drop(entries.insert(name.clone(), *node)),
            None => drop(entries.remove(name)),
        }
    }
    entries
}

fn name(path: &Path) -> OsString {
    path.file_name().unwrap().to_owned()
}

/// Random numbers that a seed gives again (SplitMix64: Steele and others, 2014).
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}
