//! Uploads: complete, interrupted, with wrong digests, too large.

use super::upload::{UploadFile, UploadStore};
use super::*;
use crate::limits::{CHUNK_BYTES_MAX, UPLOAD_FILES_MAX, UPLOADS_OPEN_MAX};
use crate::objects::{BlockingObjects, ObjectStorage};

const JSON: &[u8] = br#"{"format":"csv","file":"data/x.csv","fields":[{"name":"x","columns":[0,1],"dtype":"uint8"}]}"#;

struct UploadFixture {
    directory: TempDir,
    uploads: UploadStore,
    datasets: DatasetStore,
}

fn fixture() -> UploadFixture {
    let directory = tempfile::tempdir().unwrap();
    let (uploads, datasets) = (directory.path().join("uploads"), directory.path().join("datasets"));
    [&uploads, &datasets].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    let datasets = DatasetStore::new(datasets);
    UploadFixture { uploads: UploadStore::new(uploads, datasets.clone()), datasets, directory }
}

impl UploadFixture {
    /// Returns the names of the entries in a folder.
    fn entries_left(&self, folder: &str) -> usize {
        let entries = std::fs::read_dir(self.directory.path().join(folder)).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().file_name() != ".locks").count()
    }
}

fn file(path: &str, content: &[u8], chunk: usize) -> UploadFile {
    UploadFile {
        path: path.to_owned(),
        size: content.len() as u64,
        sha256: Digest::of(content),
        chunks: content.chunks(chunk).map(Digest::of).collect(),
    }
}

fn announced_files(csv: &[u8]) -> Vec<UploadFile> {
    vec![file("dataset.json", JSON, 1 << 20), file("data/x.csv", csv, 4)]
}

fn send_chunks(place: &UploadFixture, id: &Digest, csv: &[u8]) {
    for chunk in [JSON].into_iter().chain(csv.chunks(4)) {
        place.uploads.put_chunk(id, &Digest::of(chunk), chunk).unwrap();
    }
}

#[test]
fn an_upload_committed_twice_gives_one_version() {
    let place = fixture();
    let csv = b"1\n2\n3\n4\n3\n4\n";
    let begun = place.uploads.begin("d", announced_files(csv), |_| Ok(())).unwrap();
    // The last two chunks are identical.
    assert_eq!((begun.missing.len(), begun.version), (3, None));
    place.uploads.put_chunk(&begun.id, &begun.missing[1], b"1\n2\n").unwrap();
    // The upload is interrupted here and started again.
    let again = place.uploads.begin("d", announced_files(csv), |_| Ok(())).unwrap();
    assert_eq!((again.id, again.missing.len()), (begun.id, 2));
    let early = place.uploads.commit("d", &begun.id, 0, |_, _| Ok(())).unwrap_err();
    assert!(matches!(early, DatasetError::ChunksMissing { missing: 2, .. }), "{early}");
    send_chunks(&place, &begun.id, csv);
    assert!(place.uploads.missing(&begun.id).unwrap().is_empty());
    let other = place.uploads.commit("e", &begun.id, 0, |_, _| Ok(())).unwrap_err();
    assert!(matches!(other, DatasetError::NotFound { kind: "upload", .. }), "{other}");
    let info = place.uploads.commit("d", &begun.id, 5, |_, _| Ok(())).unwrap();
    assert_eq!((info.version, info.items, info.created_ms), (1, 6, 5));
    assert_eq!(place.entries_left("uploads"), 0);
    assert_eq!(place.uploads.commit("d", &begun.id, 6, |_, _| Ok(())).unwrap(), info, "the answer may have been lost");
    let known = place.uploads.begin("d", announced_files(csv), |_| Ok(())).unwrap();
    assert_eq!((known.version, known.missing.len()), (Some(1), 0));
    assert_eq!(place.entries_left("uploads"), 0);
    let changed = place.uploads.begin("d", announced_files(b"1\n"), |_| Ok(())).unwrap();
    send_chunks(&place, &changed.id, b"1\n");
    assert_eq!(place.uploads.commit("d", &changed.id, 7, |_, _| Ok(())).unwrap().version, 2);
    assert_eq!(place.datasets.list().unwrap().len(), 2);
}

#[test]
fn chunks_with_a_wrong_digest_are_refused() {
    let place = fixture();
    let begun = place.uploads.begin("d", announced_files(b"1\n2\n"), |_| Ok(())).unwrap();
    let put = |id: &Digest, digest: Digest, bytes: &[u8]| place.uploads.put_chunk(id, &digest, bytes).unwrap_err();
    let wrong = put(&begun.id, Digest::of(b"1\n2\n"), b"1\n3\n");
    assert!(matches!(wrong, DatasetError::WrongDigest { .. }), "{wrong}");
    let stranger = put(&begun.id, Digest::of(b"hello"), b"hello");
    assert!(matches!(stranger, DatasetError::NotFound { kind: "chunk", .. }), "{stranger}");
    let nowhere = put(&Digest::of(b"none"), Digest::of(b"1\n2\n"), b"1\n2\n");
    assert!(matches!(nowhere, DatasetError::NotFound { kind: "upload", .. }), "{nowhere}");
    let large = vec![0; CHUNK_BYTES_MAX + 1];
    let large = put(&begun.id, Digest::of(&large), &large);
    assert!(matches!(large, DatasetError::TooLarge { .. }), "{large}");
}

/// The plan of many files has megabytes, so it is read once for all chunks.
#[test]
fn the_upload_plan_is_read_once_for_all_chunks() {
    let place = fixture();
    let csv = b"1\n2\n3\n4\n";
    let id = place.uploads.begin("d", announced_files(csv), |_| Ok(())).unwrap().id;
    let path = place.directory.path().join("uploads").join(id.hex()).join("plan.json");
    let plan = std::fs::read(&path).unwrap();
    std::fs::write(&path, "no plan").unwrap();
    send_chunks(&place, &id, csv);
    let stranger = place.uploads.put_chunk(&id, &Digest::of(b"hello"), b"hello").unwrap_err();
    assert!(matches!(stranger, DatasetError::NotFound { kind: "chunk", .. }), "{stranger}");
    // Another server on the same directory reads it once.
    let again = UploadStore::new(place.directory.path().join("uploads"), place.datasets.clone());
    let unread = again.put_chunk(&id, &Digest::of(JSON), JSON).unwrap_err();
    assert!(matches!(unread, DatasetError::NotFound { kind: "upload", .. }), "{unread}");
    std::fs::write(&path, &plan).unwrap();
    again.put_chunk(&id, &Digest::of(JSON), JSON).unwrap();
    std::fs::write(&path, "no plan").unwrap();
    again.put_chunk(&id, &Digest::of(JSON), JSON).unwrap();
    // Other uploads evict it from memory.
    std::fs::write(&path, &plan).unwrap();
    for at in 0..UPLOADS_OPEN_MAX {
        again.begin(&format!("d{at}"), announced_files(csv), |_| Ok(())).unwrap();
    }
    std::fs::write(&path, "no plan").unwrap();
    assert!(again.put_chunk(&id, &Digest::of(JSON), JSON).is_err());
    // Discarding an upload also removes it from memory.
    std::fs::write(&path, &plan).unwrap();
    again.put_chunk(&id, &Digest::of(JSON), JSON).unwrap();
    place.uploads.discard(&id);
    for uploads in [&place.uploads, &again] {
        let gone = uploads.put_chunk(&id, &Digest::of(JSON), JSON).unwrap_err();
        assert!(matches!(gone, DatasetError::NotFound { kind: "upload", .. }), "{gone}");
    }
}

#[test]
fn files_with_a_wrong_digest_or_size_leave_nothing() {
    let place = fixture();
    let csv = b"1\n2\n3\n4\n";
    let mut lying = announced_files(csv);
    lying[1].sha256 = Digest::of(b"other");
    let mut short = announced_files(csv);
    short[1].size += 1;
    for files in [lying, short, announced_files(b"1\nx\n")] {
        let csv: &[u8] = if files[1].size == 4 { b"1\nx\n" } else { csv };
        let begun = place.uploads.begin("d", files, |_| Ok(())).unwrap();
        send_chunks(&place, &begun.id, csv);
        let refused = place.uploads.commit("d", &begun.id, 0, |_, _| Ok(())).unwrap_err();
        assert!(
            matches!(
                refused,
                DatasetError::WrongDigest { .. } | DatasetError::WrongSize { .. } | DatasetError::BadValue { .. }
            ),
            "{refused}"
        );
        assert_eq!((place.entries_left("uploads"), place.entries_left("datasets")), (0, 0));
    }
}

#[test]
fn invalid_announcements_are_refused_before_anything_is_stored() {
    let place = fixture();
    let begin = |files: Vec<UploadFile>| place.uploads.begin("d", files, |_| Ok(())).unwrap_err();
    let long = "a".repeat(256);
    let deep = "a/".repeat(8) + "b";
    for path in ["", "/etc/x", "../x", "a/../x", "a//b", "a/", ".x", "a\\b", "c:x", "a\0", "a\nb", &long, &deep] {
        let refused = begin(vec![file(path, b"x", 1)]);
        assert!(matches!(refused, DatasetError::BadPath { .. }), "{path:?}: {refused}");
    }
    let twice = begin(vec![file("a", b"x", 1), file("a", b"y", 1)]);
    assert!(matches!(twice, DatasetError::BadPath { .. }), "{twice}");
    let inside = begin(vec![file("a/b", b"x", 1), file("a", b"y", 1)]);
    assert!(matches!(inside, DatasetError::BadPath { .. }), "{inside}");
    let huge = begin(vec![UploadFile { size: u64::MAX, ..file("a", b"x", 1) }]);
    assert!(matches!(huge, DatasetError::TooLarge { .. }), "{huge}");
    let no_chunks = begin(vec![UploadFile { size: 9 << 20, ..file("a", b"x", 1) }]);
    assert!(matches!(no_chunks, DatasetError::WrongSize { .. }), "{no_chunks}");
    let many = begin((0..=UPLOAD_FILES_MAX).map(|at| file(&at.to_string(), b"", 1)).collect());
    assert!(matches!(many, DatasetError::TooLarge { unit: "files", .. }), "{many}");
    let name = place.uploads.begin("../d", Vec::new(), |_| Ok(())).unwrap_err();
    assert!(matches!(name, DatasetError::BadName { .. }), "{name}");
    assert_eq!(place.entries_left("uploads"), 0);
}

#[test]
fn an_upload_that_would_fill_the_disk_is_refused() {
    let place = fixture();
    let uploads = UploadStore::new(place.directory.path().join("uploads"), place.datasets.clone())
        .with_free_bytes(|_| Ok(64 << 20));
    let refused = uploads.begin("d", announced_files(b"1\n"), |_| Ok(())).unwrap_err();
    assert!(matches!(refused, DatasetError::DiskFull { free, .. } if free == 64 << 20), "{refused}");
    assert_eq!(place.entries_left("uploads"), 0);
    assert!(crate::durable::free_bytes(place.directory.path()).unwrap() > 0);
}

#[test]
fn old_uploads_are_discarded() {
    let place = fixture();
    place.uploads.begin("d", announced_files(b"1\n"), |_| Ok(())).unwrap();
    assert_eq!(place.uploads.discard_older_than(1_000).unwrap(), 0);
    assert_eq!(place.uploads.discard_older_than(UnixMillis::MAX).unwrap(), 1);
    assert_eq!(place.entries_left("uploads"), 0);
}

/// Two servers with one bucket and one store of datasets.
#[test]
fn an_upload_is_continued_and_committed_by_another_server_with_the_same_bucket() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let objects = ObjectStorage::from_store(Arc::new(object_store::memory::InMemory::new()));
    let bucket = BlockingObjects::new(objects.clone(), runtime.handle().clone());
    let datasets = DatasetStore::new(directory.path().join("datasets"));
    let [a, b] = ["a", "b"].map(|server| {
        let uploads = directory.path().join(server);
        UploadStore::new(uploads, datasets.clone()).with_bucket(bucket.clone())
    });
    let csv = b"1\n2\n3\n4\n";
    let begun = a.begin("d", announced_files(csv), |_| Ok(())).unwrap();
    assert_eq!(begun.missing.len(), 3);
    a.put_chunk(&begun.id, &Digest::of(b"1\n2\n"), b"1\n2\n").unwrap();
    // The other server knows the announcement and what was sent. The quota counts only what is missing.
    let mut wanted = 0;
    let room = |bytes| {
        wanted = bytes;
        Ok(())
    };
    let again = b.begin("d", announced_files(csv), room).unwrap();
    assert_eq!((again.id, again.missing.len(), wanted), (begun.id, 2, JSON.len() as u64 + 4));
    let early = b.commit("d", &begun.id, 1, |_, _| Ok(())).unwrap_err();
    assert!(matches!(early, DatasetError::ChunksMissing { missing: 2, .. }), "{early}");
    b.put_chunk(&begun.id, &Digest::of(JSON), JSON).unwrap();
    let unknown = b.put_chunk(&begun.id, &Digest::of(b"x"), b"x").unwrap_err();
    assert!(matches!(unknown, DatasetError::NotFound { kind: "chunk", .. }), "{unknown}");
    a.put_chunk(&begun.id, &Digest::of(b"3\n4\n"), b"3\n4\n").unwrap();
    assert_eq!(b.missing(&begun.id).unwrap(), []);
    let info = b.commit("d", &begun.id, 1, |_, _| Ok(())).unwrap();
    assert_eq!((info.version, info.items), (1, 4));
    assert_eq!(
        a.commit("d", &begun.id, 2, |_, _| Ok(())).unwrap().version,
        1,
        "committing again gives the same version"
    );
    assert_eq!(a.begin("d", announced_files(csv), |_| Ok(())).unwrap().version, Some(1));
    assert!(runtime.block_on(objects.list("uploads")).unwrap().is_empty(), "nothing is left in the bucket");
    for server in ["a", "b"] {
        let left = std::fs::read_dir(directory.path().join(server)).unwrap().count();
        assert_eq!(left, 0, "nothing is left on {server}");
    }
    a.begin("e", announced_files(b"1\n"), |_| Ok(())).unwrap();
    assert_eq!(b.discard_older_than(1_000).unwrap(), 0);
    assert_eq!(b.discard_older_than(UnixMillis::MAX).unwrap(), 1);
    assert!(runtime.block_on(objects.list("uploads")).unwrap().is_empty());
}
