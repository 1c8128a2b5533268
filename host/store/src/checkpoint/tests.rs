//! Whatever happens to the files or the store, loading returns the previous checkpoint or the new one, intact.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use saggar_tensor::{DType, Shape};
use tempfile::TempDir;

use super::*;
use crate::durable::crash_test::scratch;
use crate::limits::OWN_PART_BYTES_MIN;

mod exporting;
mod faults;
mod object_store_faults;
mod replaced_writers;
mod retention;

const JOB: &str = "01JOB";
const PLUGIN: &str = "plugin-1";
/// An epoch that no other one replaces.
const NEWEST_EPOCH: u64 = u64::MAX;

fn variable(name: &str, kind: VariableKind, bytes: Vec<u8>) -> SavedVariable {
    let descriptor = Descriptor::new(DType::U8, Shape::new([bytes.len()]).unwrap());
    SavedVariable { name: name.to_owned(), kind, descriptor, bytes: bytes.into() }
}

/// Returns a checkpoint whose parts all differ from those of other steps. Cached.
fn checkpoint(step: u64) -> Checkpoint {
    static MADE: Mutex<BTreeMap<u64, Checkpoint>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock();
    made.entry(step).or_insert_with(|| make(step)).clone()
}

fn make(step: u64) -> Checkpoint {
    let fill = |size: usize| (0..size).map(|at| (at as u64 * 31 + step * 7) as u8).collect();
    Checkpoint {
        step,
        metrics: [("loss".to_owned(), 1.0 / (step + 1) as f64)].into(),
        variables: vec![
            variable("bias", VariableKind::Parameter, fill(10)),
            variable("mean", VariableKind::Statistic, fill(300)),
            variable("moment", VariableKind::Training, fill(OWN_PART_BYTES_MIN + 3)),
            variable("none", VariableKind::Training, Vec::new()),
        ],
        positions: vec![DatasetPosition { seed: Some(u64::MAX), epoch: step, item: 5, ..DatasetPosition::default() }],
        state: step.to_le_bytes().to_vec(),
        plugin_digest: PLUGIN.to_owned(),
        device: "cpu".to_owned(),
        build: "test".to_owned(),
        kernel_tuning: [("matmul 1x [8, 8]".to_owned(), format!("lanes {step}"))].into(),
    }
}

fn open_store(directory: &Path) -> CheckpointStore {
    CheckpointStore::new(ObjectStorage::local(directory).unwrap())
}

/// Returns a store with checkpoints of these steps, all of epoch 1.
async fn store_with_checkpoints(steps: &[u64]) -> (TempDir, CheckpointStore) {
    let directory = scratch();
    let checkpoints = open_store(directory.path());
    for step in steps {
        checkpoints.save(JOB, 1, &checkpoint(*step)).await.unwrap();
    }
    (directory, checkpoints)
}

async fn latest_step(checkpoints: &CheckpointStore) -> Option<u64> {
    let found = checkpoints.latest(JOB, PLUGIN).await.unwrap().found;
    found.map(|(info, found)| {
        assert_eq!(found, checkpoint(found.step), "a checkpoint is whole or none");
        assert_eq!(info.step, found.step);
        found.step
    })
}

/// Returns every file under a directory, with its content.
fn files_below(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.insert(path.clone(), std::fs::read(path).unwrap());
        }
    }
    found
}

#[tokio::test]
async fn a_saved_checkpoint_is_loaded_unchanged() {
    let (_directory, checkpoints) = store_with_checkpoints(&[]).await;
    let nothing = checkpoints.latest(JOB, PLUGIN).await.unwrap();
    assert!(nothing.found.is_none() && nothing.skipped.is_empty());
    let info = checkpoints.save(JOB, 1, &checkpoint(100)).await.unwrap();
    assert_eq!((info.step, info.fencing_epoch, info.bytes), (100, 1, 10 + 300 + OWN_PART_BYTES_MIN as u64 + 3 + 8));
    checkpoints.save(JOB, 1, &checkpoint(20)).await.unwrap();
    assert_eq!(latest_step(&checkpoints).await, Some(100));
    let listed = checkpoints.list(JOB).await.unwrap();
    assert_eq!(listed.iter().map(|info| info.step).collect::<Vec<_>>(), [100, 20]);
    assert_eq!(listed[0].digest, info.digest);
    assert!(listed[0].written_ms > 0);
    assert!(checkpoints.latest("other", PLUGIN).await.unwrap().found.is_none());
}

#[tokio::test]
async fn the_epoch_of_a_checkpoint_comes_from_its_dataset_positions() {
    let (_directory, checkpoints) = store_with_checkpoints(&[]).await;
    let at = |epoch, item| DatasetPosition { epoch, item, ..DatasetPosition::default() };
    let cases =
        [(vec![], None), (vec![at(0, 0)], Some(0)), (vec![at(0, 32)], Some(1)), (vec![at(2152, 0)], Some(2152))];
    for (step, (positions, epoch)) in (1..).zip(cases) {
        let info = checkpoints.save(JOB, 3, &Checkpoint { positions, ..checkpoint(step) }).await.unwrap();
        assert_eq!((info.epoch, info.fencing_epoch), (epoch, 3));
    }
    // The stream with the largest epoch counts: others can be for validation.
    let positions = vec![at(0, 4), at(7, 1), at(3, 0)];
    let info = checkpoints.save(JOB, 3, &Checkpoint { positions, ..checkpoint(9) }).await.unwrap();
    assert_eq!(info.epoch, Some(8));
    assert_eq!(checkpoints.list(JOB).await.unwrap()[0].epoch, Some(8));
}

#[tokio::test]
async fn saving_a_step_again_succeeds_only_with_the_same_content() {
    let (_directory, checkpoints) = store_with_checkpoints(&[5]).await;
    checkpoints.save(JOB, 1, &checkpoint(5)).await.unwrap();
    let other = Checkpoint { state: vec![1], ..checkpoint(5) };
    let error = checkpoints.save(JOB, 1, &other).await.unwrap_err();
    assert!(matches!(error, CheckpointError::AlreadySaved { .. }), "{error}");
    assert_eq!(latest_step(&checkpoints).await, Some(5));
}

#[tokio::test]
async fn unchanged_variables_are_deduplicated_between_checkpoints() {
    let (directory, checkpoints) = store_with_checkpoints(&[1]).await;
    let parts = directory.path().join("checkpoints").join(JOB).join("parts");
    let before = files_below(&parts).len();
    let next = Checkpoint { step: 2, state: vec![9; 8], ..checkpoint(1) };
    checkpoints.save(JOB, 1, &next).await.unwrap();
    assert_eq!(files_below(&parts).len(), before + 1, "the small ones' part only");
    let found = checkpoints.latest(JOB, PLUGIN).await.unwrap().found.unwrap().1;
    assert_eq!(found, next);
}

#[tokio::test]
async fn any_damage_falls_back_to_the_previous_checkpoint() {
    let (directory, checkpoints) = store_with_checkpoints(&[1]).await;
    let before = files_below(directory.path());
    checkpoints.save(JOB, 1, &checkpoint(2)).await.unwrap();
    let new: Vec<_> =
        files_below(directory.path()).into_iter().filter(|(path, _)| !before.contains_key(path)).collect();
    assert_eq!(new.len(), 3, "two parts and a manifest");
    for (path, content) in new {
        let check = async |what: &str| {
            let latest = checkpoints.latest(JOB, PLUGIN).await.unwrap();
            let (_, found) = latest.found.unwrap();
            assert_eq!(found, checkpoint(1), "{what} of {}", path.display());
            assert_eq!(latest.skipped.len(), 1);
            assert!(latest.skipped[0].file.ends_with("2-1.json"));
        };
        let size = content.len();
        // The trailing line break is not part of a manifest.
        let cuts = (0..size).step_by((size / 16).next_multiple_of(4096)).chain([1, size / 2, size - 2]);
        for cut in cuts {
            std::fs::write(&path, &content[..cut]).unwrap();
            check(&format!("cut at {cut}")).await;
        }
        for at in [0, 8, size / 4, size / 2, size - 9, size - 2] {
            let mut flipped = content.clone();
            flipped[at] ^= 1 << (at % 8);
            std::fs::write(&path, flipped).unwrap();
            check(&format!("bit at {at}")).await;
        }
        let mut longer = content.clone();
        longer.push(b'x');
        std::fs::write(&path, longer).unwrap();
        check("a byte more").await;
        std::fs::remove_file(&path).unwrap();
        if path.extension().is_none() {
            check("absence").await;
        } else {
            // Parts without a manifest are not a checkpoint, so nothing is skipped.
            assert_eq!(latest_step(&checkpoints).await, Some(1));
        }
        std::fs::create_dir(&path).unwrap();
        assert_eq!(latest_step(&checkpoints).await, Some(1), "a directory in its place");
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, &content).unwrap();
        assert_eq!(latest_step(&checkpoints).await, Some(2));
    }
}

#[tokio::test]
async fn a_manifest_under_another_name_is_damage() {
    let (directory, checkpoints) = store_with_checkpoints(&[1, 2]).await;
    let folder = directory.path().join("checkpoints").join(JOB);
    std::fs::copy(folder.join(format!("{:020}-1.json", 1)), folder.join(format!("{:020}-1.json", 7))).unwrap();
    let latest = checkpoints.latest(JOB, PLUGIN).await.unwrap();
    assert_eq!(latest.found.unwrap().1.step, 2);
    assert!(latest.skipped[0].reason.contains("another checkpoint"), "{:?}", latest.skipped);
}

#[tokio::test]
async fn if_all_checkpoints_are_damaged_each_is_reported_as_skipped() {
    let (directory, checkpoints) = store_with_checkpoints(&[1, 2]).await;
    for (path, _) in files_below(directory.path()) {
        std::fs::write(path, "").unwrap();
    }
    let latest = checkpoints.latest(JOB, PLUGIN).await.unwrap();
    assert!(latest.found.is_none());
    assert_eq!(latest.skipped.len(), 2);
    // A new process saves over the damaged checkpoint.
    let again = open_store(directory.path());
    again.save(JOB, 1, &checkpoint(2)).await.unwrap();
    assert_eq!(latest_step(&again).await, Some(2));
}

#[tokio::test]
async fn the_checkpoint_with_the_newest_fencing_epoch_is_loaded() {
    let (_directory, checkpoints) = store_with_checkpoints(&[100, 110]).await;
    let fenced = |result: Result<(), CheckpointError>, at: u64| match result {
        Err(CheckpointError::Fenced { newest, .. }) => assert_eq!(newest, at),
        other => panic!("{other:?}"),
    };
    checkpoints.claim(JOB, 2).await.unwrap();
    checkpoints.claim(JOB, 2).await.unwrap();
    fenced(checkpoints.claim(JOB, 1).await, 2);
    fenced(checkpoints.save(JOB, 1, &checkpoint(120)).await.map(drop), 2);
    assert_eq!(latest_step(&checkpoints).await, Some(110));
    // The new attempt resumed from an earlier step; its checkpoints are still the newest.
    checkpoints.save(JOB, 2, &checkpoint(105)).await.unwrap();
    assert_eq!(latest_step(&checkpoints).await, Some(105));
    checkpoints.save(JOB, 4, &checkpoint(106)).await.unwrap();
    fenced(checkpoints.save(JOB, 3, &checkpoint(200)).await.map(drop), 4);
    assert_eq!(latest_step(&checkpoints).await, Some(106));
}

#[tokio::test]
async fn other_plugins_and_formats_are_refused_by_name() {
    let (directory, checkpoints) = store_with_checkpoints(&[1]).await;
    let error = checkpoints.latest(JOB, "plugin-2").await.unwrap_err();
    assert!(matches!(&error, CheckpointError::OtherPlugin { found, .. } if found == PLUGIN), "{error}");
    let digest = {
        let mut hasher = Sha256Hasher::new();
        hasher.update(b"saggar checkpoint 9\n{}");
        hasher.finish()
    };
    let text = format!(r#"{{"format":9,"sha256":"{digest}","body":{{}}}}"#);
    let name = format!("checkpoints/{JOB}/{:020}-1.json", 2);
    std::fs::write(directory.path().join(name), text).unwrap();
    let error = checkpoints.latest(JOB, PLUGIN).await.unwrap_err();
    assert!(matches!(error, CheckpointError::OtherFormat { found: 9, .. }), "{error}");
}

#[tokio::test]
async fn invalid_checkpoints_are_refused_before_any_write() {
    let (directory, checkpoints) = store_with_checkpoints(&[]).await;
    let mut short = checkpoint(1);
    short.variables[0].bytes = Bytes::from_static(b"x");
    let mut twice = checkpoint(1);
    twice.variables[1].name = "bias".to_owned();
    let refused = [
        checkpoints.save(JOB, 1, &short).await.unwrap_err(),
        checkpoints.save(JOB, 1, &twice).await.unwrap_err(),
        checkpoints.save("../x", 1, &checkpoint(1)).await.unwrap_err(),
    ];
    assert!(matches!(refused[0], CheckpointError::WrongSize { expected: 10, found: 1, .. }), "{}", refused[0]);
    assert!(matches!(refused[1], CheckpointError::DuplicateName { .. }), "{}", refused[1]);
    assert!(matches!(refused[2], CheckpointError::BadJob { .. }), "{}", refused[2]);
    assert!(files_below(directory.path()).is_empty());
}

#[tokio::test]
async fn pruning_keeps_whole_checkpoints_and_their_parts() {
    let (directory, checkpoints) = store_with_checkpoints(&[1, 2, 3, 4]).await;
    let folder = directory.path().join("checkpoints").join(JOB);
    let oldest = folder.join(format!("{:020}-1.json", 1));
    let manifest = std::fs::read(&oldest).unwrap();
    // The newest is damaged, so it is not one of the two that are kept.
    std::fs::write(folder.join(format!("{:020}-1.json", 4)), "x").unwrap();
    assert_eq!(checkpoints.prune(JOB, NEWEST_EPOCH, &Retention::last(2)).await.unwrap(), 1);
    assert_eq!(latest_step(&checkpoints).await, Some(3));
    assert_eq!(files_below(&folder.join("parts")).len(), 4);
    // A deleted manifest that reappears after a power loss changes nothing.
    std::fs::write(&oldest, manifest).unwrap();
    assert_eq!(latest_step(&checkpoints).await, Some(3));
    assert_eq!(checkpoints.prune(JOB, NEWEST_EPOCH, &Retention::last(0)).await.unwrap(), 2);
    assert_eq!(checkpoints.list(JOB).await.unwrap().len(), 1);
    // Pruned parts that are needed again are written again.
    checkpoints.save(JOB, 1, &checkpoint(2)).await.unwrap();
    checkpoints.save(JOB, 2, &Checkpoint { step: 9, ..checkpoint(1) }).await.unwrap();
    let found = checkpoints.latest(JOB, PLUGIN).await.unwrap().found.unwrap().1;
    assert_eq!(found.variables, checkpoint(1).variables);
}

#[tokio::test]
async fn a_damaged_part_is_rewritten_by_the_next_checkpoint_that_shares_it() {
    let (directory, _) = store_with_checkpoints(&[1]).await;
    let parts = directory.path().join("checkpoints").join(JOB).join("parts");
    for (path, mut content) in files_below(&parts) {
        content[0] ^= 1;
        std::fs::write(path, content).unwrap();
    }
    let checkpoints = open_store(directory.path());
    checkpoints.save(JOB, 1, &checkpoint(1)).await.unwrap();
    assert_eq!(latest_step(&checkpoints).await, Some(1));
}

proptest! {
    #[test]
    fn weights_digest_ignores_order_and_nothing_else(
        mut contents in prop::collection::btree_map("[a-z]{1,4}", prop::collection::vec(any::<u8>(), 1..20), 1..6),
        at in any::<prop::sample::Index>(),
    ) {
        let build = |contents: &BTreeMap<String, Vec<u8>>| -> Vec<_> {
            contents.iter().map(|(name, bytes)| variable(name, VariableKind::Parameter, bytes.clone())).collect()
        };
        let mut variables = build(&contents);
        let digest = digest_of_variables(&variables);
        variables.reverse();
        prop_assert_eq!(digest_of_variables(&variables), digest);
        let name = contents.keys().nth(at.index(contents.len())).cloned().unwrap();
        contents.get_mut(&name).unwrap()[0] ^= 1;
        prop_assert_ne!(digest_of_variables(&build(&contents)), digest);
    }
}
