//! Export and re-import of versions, their removal, and import of job outputs.

use std::fs::File;
use std::io::Read;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::*;
use crate::state_dir::StateDir;

/// Writes the files of a version into a folder.
fn export_to_folder(datasets: &DatasetStore, name: &str, version: u64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let export = datasets.export(name, version).unwrap();
    for file in export.files() {
        let mut out = Vec::new();
        export.write(file, &mut out).unwrap();
        assert_eq!(out.len() as u64, file.bytes, "{}", file.name);
        std::fs::write(folder.path().join(&file.name), out).unwrap();
    }
    folder
}

/// Generates datasets of any form that `dataset.json` and arrays can describe.
fn any_dataset() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    let field = (0..DType::ALL.len(), prop::collection::vec(1usize..4, 0..3), any::<bool>(), any::<u64>());
    (1usize..9, prop::collection::vec(field, 1..4), 0usize..9, "[a-z \"ä]{0,9}").prop_map(
        |(items, fields, cut, description)| {
            let mut files = Vec::new();
            let mut texts = Vec::new();
            for (at, (dtype, dims, classes, seed)) in fields.into_iter().enumerate() {
                let dtype = DType::ALL[dtype];
                let item = Descriptor::new(dtype, Shape::new(dims).unwrap());
                let is_label = classes && !dtype.is_float();
                // Little-endian labels of two classes, or any bytes for other fields.
                let byte = |n: usize| match is_label {
                    true if n.is_multiple_of(dtype.bytes()) => (seed >> (n % 64) & 1) as u8,
                    true => 0,
                    false => (seed.wrapping_mul(n as u64 + 1) >> 32) as u8,
                };
                let data: Vec<u8> = (0..items * item.bytes()).map(byte).collect();
                let classes = if is_label { r#"["no","ja \"é"]"# } else { "[]" };
                texts.push(format!(r#"{{"name":"f {at}/ü","file":"{at}.npy","classes":{classes}}}"#));
                files.push((format!("{at}.npy"), [npy::encode_header(items as u64, &item), data].concat()));
            }
            let (cut, fields) = (cut.min(items), texts.join(","));
            let description = serde_json::to_string(&description).unwrap();
            let splits = format!(r#"{{"train":[0,{cut}],"a \"b":[{cut},{items}]}}"#);
            let json =
                format!(r#"{{"format":"npy","fields":[{fields}],"splits":{splits},"description":{description}}}"#);
            files.push(("dataset.json".to_owned(), json.into_bytes()));
            files
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_exported_dataset_is_ingested_with_the_same_digest(files in any_dataset()) {
        let (_directory, datasets) = datasets();
        let named: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        let first = datasets.ingest("a", folder_with_files(&named).path(), 0).unwrap();
        let again = datasets.ingest("b", export_to_folder(&datasets, "a", 1).path(), 0).unwrap();
        prop_assert_eq!(again.digest, first.digest);
        prop_assert_eq!(again.fields, first.fields);
    }
}

#[test]
fn datasets_of_other_formats_export_and_ingest_with_the_same_digest() {
    let (_directory, datasets) = datasets();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits");
    let first = datasets.ingest("digits", &source, 0).unwrap();
    let again = datasets.ingest("digits", export_to_folder(&datasets, "digits", 1).path(), 0).unwrap();
    assert_eq!(again, first, "the same content is the same version");
}

#[test]
fn a_tar_export_contains_every_file() {
    let (_directory, datasets) = datasets();
    datasets.ingest("d", folder_with_files(&[("a.txt", b"one\nthree\n")]).path(), 5_000).unwrap();
    let export = datasets.export("d", 1).unwrap();
    let (files, bytes) = (export.files().to_vec(), export.tar_bytes());
    let mut tar = Vec::new();
    export.into_tar().read_to_end(&mut tar).unwrap();
    assert_eq!(tar.len() as u64, bytes);
    let unpacked = tempfile::tempdir().unwrap();
    let mut archive = tar::Archive::new(tar.as_slice());
    for (entry, file) in archive.entries().unwrap().zip(files) {
        let mut entry = entry.unwrap();
        assert_eq!((entry.path().unwrap().to_str(), entry.size()), (Some(&*file.name), file.bytes));
        entry.unpack(unpacked.path().join(&file.name)).unwrap();
    }
    assert_eq!(datasets.ingest("e", unpacked.path(), 0).unwrap().digest, datasets.info("d", 1).unwrap().digest);
    assert!(matches!(datasets.export("d", 2), Err(DatasetError::NotFound { .. })));
}

#[test]
fn a_removed_version_stays_readable_while_open_and_its_number_is_not_reused() {
    let (directory, datasets) = datasets();
    let file = |text: &[u8]| folder_with_files(&[("a.txt", text)]);
    let first = datasets.ingest("d", file(b"one\n").path(), 0).unwrap();
    let second = datasets.ingest("d", file(b"two\n").path(), 0).unwrap();
    let (open, export) = (datasets.open(&second).unwrap(), datasets.export("d", 2).unwrap());
    datasets.remove("d", 2).unwrap();
    assert!(matches!(datasets.remove("d", 2), Err(DatasetError::NotFound { .. })));
    assert!(matches!(datasets.open(&second), Err(DatasetError::NotFound { .. })));
    assert_eq!((open.column("text").unwrap(), datasets.resolve("d").unwrap()), (&b"two"[..], first));
    let mut tar = Vec::new();
    export.into_tar().read_to_end(&mut tar).unwrap();
    assert!(tar.windows(3).any(|it| it == b"two"));
    assert_eq!(datasets.ingest("d", file(b"two\n").path(), 0).unwrap().version, 3);
    datasets.remove("d", 3).unwrap();
    datasets.remove("d", 1).unwrap();
    assert!(datasets.list().unwrap().is_empty() && !directory.path().join("d").exists());
    assert_eq!(datasets.ingest("d", file(b"two\n").path(), 0).unwrap().version, 4);
    for name in ["../x", "", "x"] {
        assert!(datasets.remove(name, 1).is_err(), "{name}");
    }
}

#[test]
fn a_view_of_consecutive_items_is_not_copied() {
    let (_directory, datasets) = datasets();
    let info = datasets.ingest("d", folder_with_files(&[("a.txt", b"a\nbb\nc\n")]).path(), 0).unwrap();
    let data = datasets.open(&info).unwrap();
    for items in [&[0, 1, 2][..], &[1, 2], &[2], &[], &[2, 1], &[0, 2], &[1, 1]] {
        assert_eq!(*data.view("text", items).unwrap(), *data.read("text", items).unwrap(), "{items:?}");
    }
    assert!(matches!(data.view("text", &[1, 2]).unwrap(), Cow::Borrowed(_)));
    assert!(matches!(data.view("text", &[2, 0]).unwrap(), Cow::Owned(_)));
    for items in [&[3][..], &[2, 3], &[u64::MAX], &[u64::MAX, 0]] {
        assert!(matches!(data.view("text", items), Err(DatasetError::Unknown { .. })), "{items:?}");
    }
}

#[test]
fn the_output_of_a_job_is_ingested_as_a_dataset() {
    let directory = tempfile::tempdir().unwrap();
    let home = StateDir::open(directory.path()).unwrap();
    let datasets = DatasetStore::new(home.datasets());
    let take = |path: Option<&str>| datasets.ingest_output("d", &home, "j", path, 0, |_| Ok(()));
    let refused = take(None).unwrap_err().to_string();
    expect!["there is no output of the job: it wrote nothing"].assert_eq(&refused);
    home.job_files().write_output("j", "preds/a.txt", b"one\ntwo\n").unwrap();
    home.job_files().write_output("j", "notes.md", b"x").unwrap();
    let info = take(Some("preds")).unwrap();
    assert_eq!((info.version, info.items), (1, 2));
    assert_eq!(take(Some("preds/a.txt")).unwrap(), info, "a folder and the only file in it");
    assert!(matches!(take(None), Err(DatasetError::UnknownFormat { .. })));
    for bad in ["../j", "/etc", "preds/..", ".x"] {
        assert!(matches!(take(Some(bad)), Err(DatasetError::BadPath { .. })), "{bad}");
    }
    for absent in ["other", "preds/b", "preds/a.txt/c"] {
        assert!(matches!(take(Some(absent)), Err(DatasetError::NotFound { .. })), "{absent}");
    }
}

#[test]
fn mounted_outputs_are_cached_by_their_digest() {
    let directory = tempfile::tempdir().unwrap();
    let home = StateDir::open(directory.path()).unwrap();
    home.job_files().write_output("j", "a.txt", b"one\ntwo\n").unwrap();
    home.job_files().write_output("k", "deep/a.txt", b"one\ntwo\n").unwrap();
    let first = ColumnarDataset::from_output(&home, "j", None).unwrap();
    let second = ColumnarDataset::from_output(&home, "k", Some("deep/a.txt")).unwrap();
    assert_eq!((first.digest(), first.column("text").unwrap()), (second.digest(), &b"onetwo"[..]));
    let cached_copies = || std::fs::read_dir(home.cache().join("datasets")).unwrap().map(|it| it.unwrap().path());
    assert_eq!(cached_copies().count(), 1, "one copy, and nothing half-made");
    let column = cached_copies().next().unwrap().join("text.bin");
    // A damaged copy is replaced. Open datasets keep their bytes, because the replacement is a new file.
    std::fs::remove_file(&column).unwrap();
    std::fs::write(&column, b"onetwX").unwrap();
    let third = ColumnarDataset::from_output(&home, "j", None).unwrap();
    assert_eq!((third.column("text").unwrap(), first.column("text").unwrap()), (&b"onetwo"[..], &b"onetwo"[..]));
    assert_eq!(cached_copies().count(), 1);
    home.job_files().write_output("j", "a.txt", b"one\n").unwrap();
    assert_ne!(ColumnarDataset::from_output(&home, "j", None).unwrap().digest(), first.digest());
    assert_eq!(first.column("text").unwrap(), b"onetwo");
}

#[test]
fn the_output_cache_evicts_the_least_recently_used() {
    use super::super::output::evict_outputs;
    let directory = tempfile::tempdir().unwrap();
    let home = StateDir::open(directory.path()).unwrap();
    let cache_dir = home.cache().join("datasets");
    let now = SystemTime::now();
    let dated = |path: &Path, seconds| {
        File::open(path).unwrap().set_modified(now - Duration::from_secs(seconds)).unwrap();
    };
    let mut open = Vec::new();
    for (at, job) in ["a", "b", "c"].into_iter().enumerate() {
        home.job_files().write_output(job, "a.txt", format!("{job}\n").as_bytes()).unwrap();
        let dataset = ColumnarDataset::from_output(&home, job, None).unwrap();
        dated(&cache_dir.join(dataset.digest().hex()), 1000 - at as u64);
        open.push(dataset);
    }
    // Using the oldest again makes the second one the oldest.
    ColumnarDataset::from_output(&home, "a", None).unwrap();
    evict_outputs(&cache_dir, now, 2);
    let is_cached = |at: usize| cache_dir.join(open[at].digest().hex()).is_dir();
    assert_eq!([is_cached(0), is_cached(1), is_cached(2)], [true, false, true]);
    assert_eq!(open[1].column("text").unwrap(), b"b", "what is open is read on");
    assert_eq!(ColumnarDataset::from_output(&home, "b", None).unwrap().digest(), open[1].digest());
    // Unfinished directories: an abandoned one, a new one, and one whose only file is new.
    for (name, seconds, file_seconds) in [(".tmp-old", 4000, 4000), (".tmp-new", 10, 10), (".tmp-slow", 4000, 10)] {
        let staging = cache_dir.join(name);
        std::fs::create_dir(&staging).unwrap();
        std::fs::write(staging.join("x.bin"), "x").unwrap();
        dated(&staging.join("x.bin"), file_seconds);
        dated(&staging, seconds);
    }
    ColumnarDataset::from_output(&home, "c", None).unwrap();
    let there = [".tmp-old", ".tmp-new", ".tmp-slow"].map(|name| cache_dir.join(name).exists());
    assert_eq!(there, [false, true, true]);
    assert_eq!(std::fs::read_dir(&cache_dir).unwrap().count(), 5, "and the datasets stay");
}

#[test]
fn a_forward_clock_jump_does_not_remove_the_staging_of_a_live_writer() {
    use super::super::output::evict_outputs;
    let directory = tempfile::tempdir().unwrap();
    let home = StateDir::open(directory.path()).unwrap();
    home.job_files().write_output("j", "a.txt", b"one\ntwo\n").unwrap();
    let cache_dir = home.cache().join("datasets");
    let tomorrow = SystemTime::now() + Duration::from_secs(24 * 3600);
    let staged = || std::fs::read_dir(&cache_dir).unwrap().count();
    let looks = std::cell::Cell::new(0);
    // The quota is checked while the file is in a staging directory.
    let room = |_| {
        evict_outputs(&cache_dir, tomorrow, 9);
        assert_eq!(staged(), 1, "it is being read");
        looks.set(looks.get() + 1);
        Ok(())
    };
    let dataset =
        DatasetStore::new(home.datasets()).ingest_output("lines", &home, "j", Some("a.txt"), 0, room).unwrap();
    assert_eq!((dataset.items, staged()), (2, 0));
    assert!(looks.get() > 0);
    // A directory whose writer has ended is removed.
    std::fs::create_dir(cache_dir.join(".tmp-left")).unwrap();
    evict_outputs(&cache_dir, SystemTime::now(), 9);
    assert_eq!(staged(), 1, "it may have been made just now");
    evict_outputs(&cache_dir, tomorrow, 9);
    assert_eq!(staged(), 0);
}
