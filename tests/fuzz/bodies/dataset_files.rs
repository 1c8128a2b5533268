//! Checks that any files are refused as a dataset, or give columns that match their descriptors.

use std::path::PathBuf;

use saggar_store::DatasetStore;

/// Returns a new directory, in memory if the system has such a file system: an import syncs its files.
fn scratch_directory() -> tempfile::TempDir {
    let memory = PathBuf::from("/dev/shm");
    let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
    tempfile::tempdir_in(parent).expect("a temporary directory can be made")
}

/// Imports a folder with these files. Returns whether it is a dataset.
///
/// # Panics
/// If the size of a column does not match its descriptor, a split does not lie among the items, or an import that fails
/// leaves something behind.
pub(crate) fn check(files: &[(&str, &[u8])]) -> bool {
    let (folder, home) = (scratch_directory(), scratch_directory());
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a file in the folder")).expect("the directory is writable");
        std::fs::write(path, bytes).expect("the directory is writable");
    }
    let datasets = DatasetStore::new(home.path());
    let Ok(info) = datasets.ingest("d", folder.path(), 0) else {
        let left = std::fs::read_dir(home.path()).expect("the directory is readable");
        let left: Vec<_> = left.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
        assert!(left.is_empty() || left == [".locks"], "{left:?}");
        return false;
    };
    let data = datasets.open(&info).expect("a version that was just stored");
    for field in data.fields() {
        let column = data.column(&field.name).expect("a field of the dataset");
        assert_eq!(column.len() as u64, info.items * field.item.bytes() as u64, "{}", field.name);
    }
    for split in data.splits() {
        assert!(split.items.start <= split.items.end && split.items.end <= info.items, "{}", split.name);
    }
    true
}

/// Imports a CSV file, as it is and with missing values filled.
pub(crate) fn check_csv(file: &[u8]) -> bool {
    let keys = br#"{"format": "csv", "missing": "mean", "splits": {"train": 0.7, "test": 0.3}}"#;
    let filled = check(&[("data.csv", file), ("dataset.json", keys)]);
    check(&[("data.csv", file)]) || filled
}

/// Imports a file of JSON lines, as it is and with missing values filled.
pub(crate) fn check_json_lines(file: &[u8]) -> bool {
    let keys = br#"{"format": "jsonlines", "missing": "mean", "splits": {"train": 0.7, "test": 0.3}}"#;
    let filled = check(&[("data.jsonl", file), ("dataset.json", keys)]);
    check(&[("data.jsonl", file)]) || filled
}

/// Imports a Parquet file.
pub(crate) fn check_parquet(file: &[u8]) -> bool {
    check(&[("data.parquet", file)])
}

/// Imports an Arrow file, as it is and with rows that have nulls left out.
pub(crate) fn check_arrow(file: &[u8]) -> bool {
    let keys = br#"{"format": "arrow", "missing": "drop", "splits": {"train": 0.7, "test": 0.3}}"#;
    let dropped = check(&[("data.arrow", file), ("dataset.json", keys)]);
    check(&[("data.arrow", file)]) || dropped
}

/// Imports an array.
pub(crate) fn check_npy(file: &[u8]) -> bool {
    check(&[("x.npy", file)])
}

/// Imports an archive of arrays.
pub(crate) fn check_npz(file: &[u8]) -> bool {
    check(&[("data.npz", file)])
}

/// Imports a WebDataset archive.
pub(crate) fn check_webdataset(file: &[u8]) -> bool {
    check(&[("data.tar", file)])
}

/// Imports an image, converted to another size.
pub(crate) fn check_image(file: &[u8]) -> bool {
    let keys = br#"{"format": "images", "resize": {"width": 5, "height": 3}}"#;
    check(&[("a/1.png", file), ("dataset.json", keys)])
}

/// Imports a small table with a description.
pub(crate) fn check_description(text: &[u8]) -> bool {
    check(&[("data.csv", b"a,b,c\n1,2,x\n3,,y\n5,6.5,x\n"), ("dataset.json", text)])
}
