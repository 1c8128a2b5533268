//! Writers that were replaced and do not know it yet.

use super::*;

/// Returns two writers of one store, as on two servers: of epoch 1, which has saved step 1, and of epoch 2.
async fn old_and_new_writer(directory: &Path) -> (CheckpointStore, CheckpointStore) {
    let (old, new) = (open_store(directory), open_store(directory));
    let (old, new) = (old.with_parts_by_epoch(true), new.with_parts_by_epoch(true));
    old.claim(JOB, 1).await.unwrap();
    old.save(JOB, 1, &checkpoint(1)).await.unwrap();
    new.claim(JOB, 2).await.unwrap();
    (old, new)
}

#[tokio::test]
async fn a_replaced_writer_can_neither_save_nor_prune_nor_publish() {
    let directory = scratch();
    let (old, new) = old_and_new_writer(directory.path()).await;
    let before = files_below(directory.path());
    let refused = [
        old.save(JOB, 1, &checkpoint(2)).await.map(drop),
        old.prune(JOB, 1, &Retention::last(1)).await.map(drop),
        old.check_epoch(JOB, 1).await,
    ];
    for refused in refused {
        let error = refused.expect_err("a newer epoch was announced");
        assert!(matches!(error, CheckpointError::Fenced { epoch: 1, newest: 2, .. }), "{error}");
        assert!(error.to_string().contains("was replaced by one with epoch 2"), "{error}");
    }
    assert_eq!(files_below(directory.path()), before);
    new.check_epoch(JOB, 2).await.unwrap();
}

/// The old writer has looked for newer epochs before the new one announced its own, and deletes unused parts after the new
/// one has written its parts, and before it has written its manifest.
#[tokio::test]
async fn a_replaced_writer_deletes_no_parts_of_its_successor() {
    let directory = scratch();
    let (old, new) = old_and_new_writer(directory.path()).await;
    // The same content as that of the old writer, of which no part is shared.
    new.save(JOB, 2, &checkpoint(1)).await.unwrap();
    new.save(JOB, 2, &checkpoint(2)).await.unwrap();
    let folder = directory.path().join("checkpoints").join(JOB);
    let manifests = [1, 2].map(|step| folder.join(format!("{step:020}-2.json")));
    let texts = manifests.clone().map(|path| std::fs::read(path).unwrap());
    manifests.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    std::fs::remove_file(folder.join(format!("epochs/{:020}", 2))).unwrap();
    let parts = || files_below(&folder.join(format!("parts/{:020}", 2)));
    let before = parts();
    assert!(!before.is_empty());
    old.prune(JOB, 1, &Retention::last(1)).await.unwrap();
    assert_eq!(parts(), before);
    manifests.iter().zip(texts).for_each(|(path, text)| std::fs::write(path, text).unwrap());
    assert_eq!(latest_step(&new).await, Some(2));
    // The new writer removes what the old one left.
    assert_eq!(new.prune(JOB, 2, &Retention::last(1)).await.unwrap(), 2);
    assert_eq!(files_below(&folder.join("parts")).len(), parts().len());
    assert!(new.verify(JOB).await.unwrap().iter().all(|it| it.outcome.is_ok()));
}

#[tokio::test]
async fn a_manifest_names_the_epoch_of_its_parts_only_if_they_have_one() {
    let (directory, _checkpoints) = store_with_checkpoints(&[1]).await;
    let by_epoch = open_store(directory.path()).with_parts_by_epoch(true);
    by_epoch.save(JOB, 2, &checkpoint(2)).await.unwrap();
    let text = |name: &str| std::fs::read_to_string(directory.path().join("checkpoints").join(JOB).join(name)).unwrap();
    assert!(text(&format!("{:020}-1.json", 1)).starts_with(r#"{"format":3,"#));
    assert!(text(&format!("{:020}-2.json", 2)).starts_with(r#"{"format":4,"#));
    // A store of one server reads both.
    assert_eq!(latest_step(&open_store(directory.path())).await, Some(2));
    assert_eq!(open_store(directory.path()).load_step(JOB, 1, None).await.unwrap().1, checkpoint(1));
}
