//! Retention, the best checkpoint, lookup by step, and checkpoints of earlier builds.

use super::*;

const LOSS: &str = "validation/loss";

fn best_loss(mode: MetricMode) -> BestMetric {
    BestMetric { metric: LOSS.to_owned(), mode }
}

fn with_loss(step: u64, loss: f64) -> Checkpoint {
    let metrics = [(LOSS.to_owned(), loss), ("other".to_owned(), step as f64)].into();
    Checkpoint { metrics, ..checkpoint(step) }
}

/// Returns a store with checkpoints of these losses, at steps 1, 2, 3 ...
async fn store_with_losses(losses: &[f64]) -> (TempDir, CheckpointStore) {
    let (directory, checkpoints) = store_with_checkpoints(&[]).await;
    for (loss, step) in losses.iter().zip(1..) {
        checkpoints.save(JOB, 1, &with_loss(step, *loss)).await.unwrap();
    }
    (directory, checkpoints)
}

async fn steps(checkpoints: &CheckpointStore) -> Vec<u64> {
    checkpoints.list(JOB).await.unwrap().iter().map(|info| info.step).collect()
}

async fn best(losses: &[f64], mode: MetricMode) -> Option<u64> {
    let (_directory, checkpoints) = store_with_losses(losses).await;
    checkpoints.best(JOB, &best_loss(mode)).await.unwrap().map(|info| info.step)
}

#[tokio::test]
async fn the_best_checkpoint_is_found_from_manifests_alone() {
    assert_eq!(best(&[0.5, 0.25, 0.75], MetricMode::Min).await, Some(2));
    assert_eq!(best(&[0.5, 0.25, 0.75], MetricMode::Max).await, Some(3));
    assert_eq!(best(&[], MetricMode::Min).await, None);
    // Of equal ones, the earlier wins. A checkpoint whose metric is NaN or missing is never the best.
    assert_eq!(best(&[0.5, 0.25, 0.25], MetricMode::Min).await, Some(2));
    assert_eq!(best(&[f64::NAN, 0.5, f64::NEG_INFINITY], MetricMode::Min).await, Some(2));
    assert_eq!(best(&[f64::NAN], MetricMode::Max).await, None);
    assert_eq!(best(&[-0.0, 0.0], MetricMode::Max).await, Some(1));
    let (_directory, checkpoints) = store_with_checkpoints(&[1, 2]).await;
    assert_eq!(checkpoints.best(JOB, &best_loss(MetricMode::Min)).await.unwrap(), None);
}

#[tokio::test]
async fn retention_keeps_the_newest_and_the_best_checkpoint() {
    let (directory, checkpoints) = store_with_losses(&[0.5, 0.0625, 0.25, 0.125, 0.375]).await;
    let retention = Retention { keep_last: 2, keep_best: Some(best_loss(MetricMode::Min)), keep_steps: Vec::new() };
    assert_eq!(checkpoints.prune(JOB, NEWEST_EPOCH, &retention).await.unwrap(), 2);
    assert_eq!(steps(&checkpoints).await, [5, 4, 2]);
    let parts = directory.path().join("checkpoints").join(JOB).join("parts");
    assert_eq!(files_below(&parts).len(), 6);
    for info in checkpoints.list(JOB).await.unwrap() {
        assert_eq!(checkpoints.load_step(JOB, info.step, Some(PLUGIN)).await.unwrap().1.step, info.step);
    }
    // A new best replaces the old one, and is also among the newest.
    checkpoints.save(JOB, 1, &with_loss(6, 0.03125)).await.unwrap();
    checkpoints.prune(JOB, NEWEST_EPOCH, &retention).await.unwrap();
    assert_eq!(steps(&checkpoints).await, [6, 5]);
    // If no checkpoint has the metric, only the newest are kept.
    let by_nothing = BestMetric { metric: "nothing".to_owned(), mode: MetricMode::Max };
    let retention = Retention { keep_last: 1, keep_best: Some(by_nothing), keep_steps: Vec::new() };
    checkpoints.prune(JOB, NEWEST_EPOCH, &retention).await.unwrap();
    assert_eq!(steps(&checkpoints).await, [6]);
}

#[tokio::test]
async fn retention_keeps_the_checkpoints_of_given_steps_as_long_as_they_are_given() {
    let (_directory, checkpoints) = store_with_checkpoints(&[1, 2, 3, 4]).await;
    let retention = Retention { keep_steps: vec![2, 9], ..Retention::last(1) };
    checkpoints.prune(JOB, NEWEST_EPOCH, &retention).await.unwrap();
    assert_eq!(steps(&checkpoints).await, [4, 2]);
    assert_eq!(checkpoints.load_step(JOB, 2, Some(PLUGIN)).await.unwrap().1.step, 2);
    checkpoints.prune(JOB, NEWEST_EPOCH, &Retention::last(1)).await.unwrap();
    assert_eq!(steps(&checkpoints).await, [4]);
}

#[tokio::test]
async fn a_checkpoint_with_missing_parts_is_never_the_best() {
    let (directory, checkpoints) = store_with_losses(&[0.125, 0.25, 0.5]).await;
    let best = checkpoints.best(JOB, &best_loss(MetricMode::Min)).await.unwrap().unwrap();
    assert_eq!((best.step, best.metrics[LOSS], best.metrics["other"]), (1, 0.125, 1.0));
    std::fs::write(directory.path().join(best.file), "x").unwrap();
    assert_eq!(checkpoints.best(JOB, &best_loss(MetricMode::Min)).await.unwrap().unwrap().step, 2);
    for (path, _) in files_below(&directory.path().join("checkpoints").join(JOB).join("parts")) {
        std::fs::write(path, "short").unwrap();
    }
    assert_eq!(checkpoints.best(JOB, &best_loss(MetricMode::Min)).await.unwrap(), None);
}

#[tokio::test]
async fn a_manifest_damaged_after_caching_is_read_again() {
    let (directory, checkpoints) = store_with_checkpoints(&[1, 2]).await;
    assert_eq!(checkpoints.prune(JOB, NEWEST_EPOCH, &Retention::last(2)).await.unwrap(), 0);
    let newest = checkpoints.list(JOB).await.unwrap().remove(0);
    std::fs::write(directory.path().join(newest.file), "x").unwrap();
    assert_eq!(checkpoints.prune(JOB, NEWEST_EPOCH, &Retention::last(1)).await.unwrap(), 0, "it does not count");
    assert_eq!(latest_step(&checkpoints).await, Some(1));
}

#[tokio::test]
async fn the_number_of_metrics_in_a_manifest_is_limited() {
    let (_directory, checkpoints) = store_with_checkpoints(&[]).await;
    let many = (0..1000).map(|number| (format!("{number:04}"), 1.0));
    let metrics = many.chain([("é".repeat(1 << 20), 1.0)]).collect();
    checkpoints.save(JOB, 1, &Checkpoint { metrics, ..checkpoint(1) }).await.unwrap();
    let saved_metrics = &checkpoints.list(JOB).await.unwrap()[0].metrics;
    assert_eq!(
        (saved_metrics.len(), saved_metrics.contains_key("0000")),
        (crate::limits::CHECKPOINT_METRICS_MAX, true)
    );
}

#[tokio::test]
async fn a_checkpoint_is_loaded_by_its_step() {
    let (directory, checkpoints) = store_with_checkpoints(&[1, 2, 3]).await;
    let of_attempt_2 = Checkpoint { state: vec![9], ..checkpoint(2) };
    checkpoints.save(JOB, 2, &of_attempt_2).await.unwrap();
    assert_eq!(checkpoints.load_step(JOB, 1, None).await.unwrap().1, checkpoint(1));
    let (info, found) = checkpoints.load_step(JOB, 2, Some(PLUGIN)).await.unwrap();
    assert_eq!((info.fencing_epoch, found), (2, of_attempt_2.clone()));
    let refusal = async |step, plugin| checkpoints.load_step(JOB, step, plugin).await.unwrap_err();
    assert!(matches!(refusal(2, Some("another")).await, CheckpointError::OtherPlugin { .. }));
    assert_eq!(refusal(7, None).await.to_string(), "job 01JOB has no checkpoint of step 7");
    // A lookup by step gets that checkpoint or an error; a lookup of the newest gets an intact one.
    std::fs::write(directory.path().join(info.file), "x").unwrap();
    assert!(matches!(refusal(2, None).await, CheckpointError::Damaged { .. }));
    let latest = checkpoints.latest_of_any_plugin(JOB).await.unwrap();
    assert_eq!((latest.found.unwrap().1, latest.skipped.len()), (checkpoint(3), 1));
}

#[tokio::test]
async fn verify_reads_every_byte_of_every_checkpoint() {
    let (directory, checkpoints) = store_with_checkpoints(&[1, 2]).await;
    let whole = checkpoints.verify(JOB).await.unwrap();
    assert_eq!(whole.iter().map(|it| (it.step, it.fencing_epoch)).collect::<Vec<_>>(), [(2, 1), (1, 1)]);
    assert_eq!(whole[0].outcome, Ok(checkpoints.list(JOB).await.unwrap().remove(0)));
    for (path, content) in files_below(&directory.path().join("checkpoints").join(JOB)) {
        for at in [0, content.len() / 2, content.len() - 2] {
            let mut flipped = content.clone();
            flipped[at] ^= 4;
            std::fs::write(&path, flipped).unwrap();
            let verified = checkpoints.verify(JOB).await.unwrap();
            assert_eq!(verified.iter().filter(|it| it.outcome.is_err()).count(), 1, "byte {at} of {}", path.display());
        }
        std::fs::write(&path, content).unwrap();
    }
}

#[tokio::test]
async fn a_checkpoint_that_is_pruned_while_it_is_verified_is_not_damaged() {
    let (_directory, checkpoints) = store_with_checkpoints(&[1]).await;
    let retention = Retention { keep_last: 1, keep_best: None, keep_steps: Vec::new() };
    let writer = async {
        for step in 2..200 {
            checkpoints.save(JOB, 1, &checkpoint(step)).await.unwrap();
            checkpoints.prune(JOB, NEWEST_EPOCH, &retention).await.unwrap();
        }
    };
    let mut intact = 0;
    let reader = async {
        loop {
            for verified in checkpoints.verify(JOB).await.unwrap() {
                verified.outcome.unwrap();
                intact += 1;
            }
        }
    };
    tokio::select! {
        () = writer => {}
        () = reader => {}
    }
    assert!(intact > 0);
}

#[tokio::test]
async fn removing_all_checkpoints_frees_every_byte() {
    let (directory, checkpoints) = store_with_checkpoints(&[1, 2]).await;
    checkpoints.claim(JOB, 2).await.unwrap();
    checkpoints.save("other", 1, &checkpoint(1)).await.unwrap();
    let on_disk: u64 =
        files_below(&directory.path().join("checkpoints").join(JOB)).values().map(|it| it.len() as u64).sum();
    assert_eq!(checkpoints.stored_bytes(JOB).await.unwrap(), on_disk);
    assert_eq!(checkpoints.remove_all(JOB).await.unwrap(), on_disk);
    assert!(!directory.path().join("checkpoints").join(JOB).exists());
    assert_eq!(checkpoints.remove_all(JOB).await.unwrap(), 0);
    assert_eq!(checkpoints.latest("other", PLUGIN).await.unwrap().found.unwrap().1, checkpoint(1));
    // The cache has no state of the removed checkpoints: the same job can start again.
    checkpoints.save(JOB, 1, &checkpoint(1)).await.unwrap();
    assert_eq!(latest_step(&checkpoints).await, Some(1));
}

#[tokio::test]
async fn checkpoints_of_older_builds_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("checkpoints").join(JOB);
    std::fs::create_dir_all(folder.join("parts")).unwrap();
    std::fs::write(folder.join("00000000000000001200-2.json"), include_bytes!("format-1.json")).unwrap();
    let part = [&[0, 0, 128, 63, 0, 0, 192, 127, 1, 2, 3, 4, 7, 8, 9], &b"plugin"[..]].concat();
    std::fs::write(folder.join("parts").join(Digest::of(&part).hex()), &part).unwrap();
    let checkpoints = open_store(directory.path());
    let (info, found) = checkpoints.latest(JOB, &"p".repeat(64)).await.unwrap().found.unwrap();
    assert_eq!((info.step, info.fencing_epoch, info.bytes, info.metrics.len()), (1200, 2, 21, 0));
    assert_eq!(info.epoch, Some(4), "three epochs are over, and the fourth is going on");
    let variable = |name: &str, kind, dtype, dims: &[usize], bytes: &[u8]| SavedVariable {
        name: name.to_owned(),
        kind,
        descriptor: Descriptor::new(dtype, Shape::new(dims.to_vec()).unwrap()),
        bytes: Bytes::copy_from_slice(bytes),
    };
    let expected = Checkpoint {
        step: 1200,
        metrics: BTreeMap::new(),
        variables: vec![
            variable("bias", VariableKind::Parameter, DType::F32, &[2], &part[..8]),
            variable("mean", VariableKind::Statistic, DType::F16, &[1, 2], &part[8..12]),
            variable("moment", VariableKind::Training, DType::U8, &[3], &part[12..15]),
        ],
        positions: vec![DatasetPosition {
            dataset: "d".repeat(64),
            seed: Some(u64::MAX),
            batch: 32,
            epoch: 3,
            item: 96,
        }],
        state: b"plugin".to_vec(),
        plugin_digest: "p".repeat(64),
        device: "cpu: native (none)".to_owned(),
        build: "0.1.0".to_owned(),
        kernel_tuning: Default::default(),
    };
    assert_eq!(found, expected);
    // The next attempt resumes from there, in this build's format.
    checkpoints.save(JOB, 3, &checkpoint(1201)).await.unwrap();
    assert_eq!(checkpoints.prune(JOB, NEWEST_EPOCH, &Retention::last(2)).await.unwrap(), 0);
    assert_eq!(checkpoints.verify(JOB).await.unwrap().iter().filter(|it| it.outcome.is_ok()).count(), 2);
}

#[tokio::test]
async fn removing_a_job_without_checkpoints_succeeds_in_an_empty_store() {
    let directory = tempfile::tempdir().unwrap();
    let checkpoints = CheckpointStore::new(ObjectStorage::local(directory.path()).unwrap());
    assert_eq!(checkpoints.remove_all(JOB).await.unwrap(), 0);
}
