//! Export of a checkpoint: the file is valid for the format's own reader, and survives pruning of its checkpoint.

use futures::{StreamExt, TryStreamExt};
use safetensors::SafeTensors;

use super::*;
use crate::limits::PART_BYTES_MAX;

async fn collect_export(export: CheckpointExport) -> Result<Vec<u8>, CheckpointError> {
    let bytes = export.bytes();
    let file: Vec<Bytes> = export.into_stream().try_collect().await?;
    let file = file.concat();
    assert_eq!(file.len() as u64, bytes, "a file is as long as was said");
    Ok(file)
}

fn typed_variable(name: &str, dtype: DType, dims: &[usize], seed: u8) -> SavedVariable {
    let descriptor = Descriptor::new(dtype, Shape::new(dims.to_vec()).unwrap());
    let bytes = (0..descriptor.bytes()).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
    SavedVariable { name: name.to_owned(), kind: VariableKind::Parameter, descriptor, bytes }
}

#[tokio::test]
async fn the_safetensors_crate_reads_an_exported_checkpoint() {
    let (_directory, checkpoints) = store_with_checkpoints(&[]).await;
    let variables = vec![
        typed_variable("a/bytes", DType::U8, &[3], 1),
        typed_variable("b/wide", DType::I64, &[2, 2], 2),
        typed_variable("c/large", DType::F32, &[(OWN_PART_BYTES_MIN >> 2) + 1], 3),
        typed_variable("d/half", DType::F16, &[5], 4),
        typed_variable("e/none", DType::F32, &[0, 7], 5),
        typed_variable("f/scalar", DType::F32, &[], 6),
    ];
    let it = Checkpoint { variables, ..checkpoint(1200) };
    checkpoints.save(JOB, 1, &it).await.unwrap();
    let export = checkpoints.export(JOB, &CheckpointQuery::Step(1200)).await.unwrap();
    assert_eq!((export.info().step, export.info().fencing_epoch), (1200, 1));
    let digest = export.info().digest;
    let file = collect_export(export).await.unwrap();
    let read = SafeTensors::deserialize(&file).unwrap();
    assert_eq!(read.len(), it.variables.len());
    for variable in &it.variables {
        let view = read.tensor(&variable.name).unwrap();
        assert_eq!((view.shape(), view.data()), (variable.descriptor.shape.dims(), &variable.bytes[..]));
        let width = variable.descriptor.dtype.bytes();
        assert_eq!((view.data().as_ptr() as usize - file.as_ptr() as usize) % width, 0, "{} is aligned", variable.name);
    }
    let (_, header) = SafeTensors::read_metadata(&file).unwrap();
    let about = header.metadata().as_ref().unwrap();
    assert_eq!((about["job"].as_str(), about["step"].as_str()), (JOB, "1200"));
    assert_eq!((about["digest"].as_str(), about["plugin"].as_str()), (digest.hex().as_str(), PLUGIN));
    // The reader of weights accepts the file.
    let mut weights = crate::models::read_weights(&file.into(), &[]).unwrap();
    weights.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(digest_of_variables(&weights), digest_of_variables(&it.variables));
}

#[tokio::test]
async fn latest_and_best_checkpoints_are_exported_by_selector() {
    let (_directory, checkpoints) = store_with_checkpoints(&[1, 2, 3]).await;
    let step = async |wanted| checkpoints.export(JOB, &wanted).await.map(|export| export.info().step);
    let by = |metric: &str, mode| CheckpointQuery::Best(BestMetric { metric: metric.to_owned(), mode });
    assert_eq!(step(CheckpointQuery::Latest).await.unwrap(), 3);
    assert_eq!(step(by("loss", MetricMode::Max)).await.unwrap(), 1);
    assert_eq!(
        step(by("none", MetricMode::Max)).await.unwrap_err().to_string(),
        "job 01JOB has no checkpoint with the metric `none`"
    );
    assert_eq!(step(CheckpointQuery::Step(9)).await.unwrap_err().to_string(), "job 01JOB has no checkpoint of step 9");
    let nothing = checkpoints.export("other", &CheckpointQuery::Latest).await.unwrap_err();
    assert_eq!(nothing.to_string(), "job other has no checkpoint");
    let reserved = Checkpoint { variables: vec![typed_variable("__metadata__", DType::U8, &[1], 1)], ..checkpoint(4) };
    checkpoints.save(JOB, 1, &reserved).await.unwrap();
    assert!(matches!(step(CheckpointQuery::Latest).await, Err(CheckpointError::Damaged { .. })));
}

#[tokio::test]
async fn small_tensors_are_coalesced_and_large_ones_stream_in_parts() {
    let (_directory, checkpoints) = store_with_checkpoints(&[]).await;
    let mut variables: Vec<_> =
        (0..5000).map(|at| typed_variable(&format!("v{at:05}"), DType::F32, &[25], at as u8)).collect();
    variables.push(typed_variable("large", DType::U8, &[PART_BYTES_MAX + 1], 7));
    checkpoints.save(JOB, 1, &Checkpoint { variables, ..checkpoint(1) }).await.unwrap();
    let export = checkpoints.export(JOB, &CheckpointQuery::Latest).await.unwrap();
    let pieces: Vec<Bytes> = export.into_stream().try_collect().await.unwrap();
    assert!(pieces.len() < 20 && pieces.iter().all(|piece| piece.len() <= PART_BYTES_MAX), "{}", pieces.len());
    SafeTensors::deserialize(&pieces.concat()).unwrap();
}

#[tokio::test]
async fn an_export_pins_its_checkpoint_against_pruning() {
    let (directory, checkpoints) = store_with_checkpoints(&[1, 2]).await;
    // The reader and the writer share only files, like a server and a worker.
    let reader = open_store(directory.path());
    let export = reader.export(JOB, &CheckpointQuery::Step(1)).await.unwrap();
    let another = reader.export(JOB, &CheckpointQuery::Step(1)).await.unwrap();
    assert_eq!(checkpoints.prune(JOB, NEWEST_EPOCH, &Retention::last(1)).await.unwrap(), 0, "it is being read");
    let file = collect_export(export).await.unwrap();
    assert_eq!(
        SafeTensors::deserialize(&file).unwrap().tensor("bias").unwrap().data(),
        &checkpoint(1).variables[0].bytes[..]
    );
    assert_eq!(
        checkpoints.prune(JOB, NEWEST_EPOCH, &Retention::last(1)).await.unwrap(),
        0,
        "another one still reads it"
    );
    drop(another);
    assert_eq!(checkpoints.prune(JOB, NEWEST_EPOCH, &Retention::last(1)).await.unwrap(), 1);
    assert!(matches!(reader.export(JOB, &CheckpointQuery::Step(1)).await, Err(CheckpointError::NotFound { .. })));
}

#[tokio::test]
async fn an_export_of_a_damaged_checkpoint_ends_with_an_error() {
    let (directory, checkpoints) = store_with_checkpoints(&[1]).await;
    for (path, content) in files_below(&directory.path().join("checkpoints").join(JOB).join("parts")) {
        let export = checkpoints.export(JOB, &CheckpointQuery::Latest).await.unwrap();
        let mut stream = Box::pin(export.into_stream());
        stream.next().await.unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut rest: Vec<_> = stream.collect().await;
        let last = rest.pop().unwrap();
        assert!(
            matches!(&last, Err(CheckpointError::Damaged { reason, .. }) if reason.contains("missing")),
            "{last:?}"
        );
        std::fs::write(&path, &content[1..]).unwrap();
        let export = checkpoints.export(JOB, &CheckpointQuery::Latest).await;
        assert!(export.is_err(), "a glance shows that a part is too short");
        std::fs::write(&path, content).unwrap();
    }
}

#[test]
fn concurrent_exports_and_prunes_give_whole_files_or_errors() {
    let directory = scratch();
    let wait = |future: std::pin::Pin<Box<dyn Future<Output = ()>>>| {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future);
    };
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let root = directory.path();
    let whole_ones = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut whole_ones = 0;
            let checkpoints = open_store(root);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            while !is_over.load(std::sync::atomic::Ordering::Acquire) || whole_ones == 0 {
                let Ok(export) = runtime.block_on(checkpoints.export(JOB, &CheckpointQuery::Latest)) else { continue };
                let step = export.info().step;
                let file = runtime.block_on(collect_export(export)).expect("what is pinned stays");
                let read = SafeTensors::deserialize(&file).unwrap();
                assert_eq!(read.tensor("mean").unwrap().data(), &checkpoint(step).variables[1].bytes[..]);
                whole_ones += 1;
            }
            whole_ones
        });
        let checkpoints = open_store(root);
        wait(Box::pin(async move {
            for step in 1..=60 {
                checkpoints.save(JOB, 1, &checkpoint(step)).await.unwrap();
                checkpoints.prune(JOB, NEWEST_EPOCH, &Retention::last(1)).await.unwrap();
            }
        }));
        is_over.store(true, std::sync::atomic::Ordering::Release);
        reader.join().unwrap()
    });
    assert!(whole_ones > 0);
}
