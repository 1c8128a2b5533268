//! Faults 12 and 13: many checkpoints, many tensors, large tensors, and values that are NaN or infinite.

use super::*;
use crate::checkpoint::manifest::CheckpointManifest;
use crate::limits::PART_BYTES_MAX;

fn small_checkpoint(step: u64) -> Checkpoint {
    let variables = vec![variable("w", VariableKind::Parameter, step.to_le_bytes().to_vec())];
    let metrics = [("loss".to_owned(), (step as f64 - 50.0).abs())].into();
    Checkpoint { variables, metrics, ..checkpoint(1) }
}

fn keep_three_and_the_best() -> Retention {
    let best = BestMetric { metric: "loss".to_owned(), mode: MetricMode::Min };
    Retention { keep_last: 3, keep_best: Some(best), keep_steps: Vec::new() }
}

#[test]
fn retention_over_many_checkpoints_leaves_no_orphaned_files() {
    let directory = scratch();
    let checkpoints = open_store(directory.path());
    block_on(async {
        for step in 1..=200 {
            checkpoints.save(JOB, 1, &Checkpoint { step, ..small_checkpoint(step) }).await.unwrap();
            checkpoints.prune(JOB, NEWEST_EPOCH, &keep_three_and_the_best()).await.unwrap();
        }
    });
    assert_eq!(intact_steps(directory.path()), [200, 199, 198, 50]);
    let left = files_below(&directory.path().join("checkpoints").join(JOB));
    assert_eq!(left.len(), 8, "a manifest and a part each");
}

#[test]
fn ten_thousand_checkpoints_are_pruned_in_one_call() {
    let directory = scratch();
    let checkpoints = open_store(directory.path());
    block_on(checkpoints.save(JOB, 1, &small_checkpoint(1))).unwrap();
    let folder = directory.path().join("checkpoints").join(JOB);
    let name = |step: u64| folder.join(format!("{step:020}-1.json"));
    let (manifest, _) = CheckpointManifest::decode(&std::fs::read(name(1)).unwrap()).unwrap();
    for step in 2..=10_000 {
        let metrics = small_checkpoint(step).metrics;
        let (text, _) = CheckpointManifest { step, metrics, ..manifest.clone() }.encode().unwrap();
        std::fs::write(name(step), text).unwrap();
    }
    assert_eq!(block_on(checkpoints.prune(JOB, NEWEST_EPOCH, &keep_three_and_the_best())).unwrap(), 9_996);
    assert_eq!(intact_steps(directory.path()), [10_000, 9_999, 9_998, 50]);
    block_on(checkpoints.save(JOB, 1, &Checkpoint { step: 10_001, ..small_checkpoint(10_001) })).unwrap();
    assert_eq!(intact_steps(directory.path()).len(), 5);
}

#[test]
fn a_checkpoint_of_100_000_tiny_tensors_is_few_files() {
    let directory = scratch();
    let checkpoints = open_store(directory.path());
    let tiny = |number: u32| variable(&format!("v{number:06}"), VariableKind::Parameter, number.to_le_bytes().to_vec());
    let many = Checkpoint { variables: (0..100_000).map(tiny).collect(), ..checkpoint(1) };
    block_on(checkpoints.save(JOB, 1, &many)).unwrap();
    assert_eq!(files_below(directory.path()).len(), 2);
    let found = block_on(checkpoints.latest(JOB, PLUGIN)).unwrap().found.unwrap().1;
    assert!(found == many);
}

/// A tensor of 8 GiB would be 64 times as large, in 128 parts instead of three; the code path is the same.
#[test]
fn a_tensor_larger_than_a_part_is_loaded_unchanged() {
    let directory = scratch();
    let checkpoints = open_store(directory.path());
    let bytes: Vec<u8> = (0..2 * PART_BYTES_MAX as u32 + 5).map(|at| (at >> 3) as u8 ^ (at >> 24) as u8).collect();
    let large = Checkpoint { variables: vec![variable("large", VariableKind::Parameter, bytes)], ..checkpoint(1) };
    let info = block_on(checkpoints.save(JOB, 1, &large)).unwrap();
    assert_eq!(info.bytes, 2 * PART_BYTES_MAX as u64 + 5 + 8);
    assert_eq!(files_below(directory.path()).len(), 5, "two whole parts, the rest, the state, the manifest");
    let found = block_on(checkpoints.latest(JOB, PLUGIN)).unwrap().found.unwrap().1;
    assert!(found == large);
}

#[test]
fn nan_and_infinite_elements_keep_every_bit() {
    let directory = scratch();
    let checkpoints = open_store(directory.path());
    // Quiet and signalling NaNs with payloads, infinities, negative zero, a subnormal.
    let bits = [0x7fc0_0000u32, 0xffc1_2345, 0x7f80_0001, 0x7f80_0000, 0xff80_0000, 0x8000_0000, 1];
    let bytes: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let descriptor = Descriptor::new(DType::F32, Shape::new([bits.len()]).unwrap());
    let weights =
        SavedVariable { name: "w".to_owned(), kind: VariableKind::Parameter, descriptor, bytes: bytes.into() };
    let metrics = [("loss", f64::NAN), ("grad", f64::INFINITY), ("rate", 0.1)];
    let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
    let saved = Checkpoint { variables: vec![weights], metrics, ..checkpoint(1) };
    block_on(checkpoints.save(JOB, 1, &saved)).unwrap();
    let (info, found) = block_on(checkpoints.latest(JOB, PLUGIN)).unwrap().found.unwrap();
    assert_eq!(found.variables, saved.variables);
    assert_eq!(digest_of_variables(&found.variables), digest_of_variables(&saved.variables));
    assert_eq!(info.metrics, [("rate".to_owned(), 0.1)].into(), "a NaN loss is not saved");
}
