//! Resource limits for untrusted files: memory, disk space and quota are limited, and counted before they are used.

use std::cell::Cell;

use super::*;
use crate::error::StoreError;
use crate::limits::{CSV_LINE_BYTES_MAX, DESCRIPTION_BYTES_MAX, INGEST_EXPANSION_UNCHECKED_BYTES};

/// Returns the error of importing these files, and checks that nothing is left behind.
fn ingest_error(files: &[(&str, &[u8])]) -> DatasetError {
    let (directory, datasets) = datasets();
    let error = datasets.ingest("d", folder_with_files(files).path(), 0).unwrap_err();
    assert!(!directory.path().join("d").exists());
    error
}

#[test]
fn empty_lines_past_the_expansion_limit_are_refused() {
    let lines = vec![b'\n'; 70 << 20];
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&lines).unwrap();
    let file = encoder.finish().unwrap();
    assert!(file.len() * 1_000 < lines.len(), "{} bytes", file.len());
    let error = ingest_error(&[("x.txt.gz", &file)]);
    assert!(matches!(error, DatasetError::Expands { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("x.txt.gz: ") && text.contains("1000 times") && text.contains("uncompressed"), "{text}");
}

#[test]
fn padding_short_lines_to_one_long_line_is_limited() {
    let text = [vec![b'x'; 60_000], b"\ny".repeat(1 << 14)].concat();
    let error = ingest_error(&[("x.txt", &text)]);
    assert!(matches!(&error, DatasetError::Expands { what, .. } if what.starts_with("x.txt: line 1, ")), "{error}");
}

#[test]
fn runs_of_empty_lines_are_items() {
    let (_directory, datasets) = datasets();
    let text = b"\n\n\nab\n\r\n\n\n\nc\n\n".as_slice();
    let info = datasets.ingest("d", folder_with_files(&[("x.txt", text)]).path(), 0).unwrap();
    let dataset = datasets.open(&info).unwrap();
    assert_eq!(dataset.column("text").unwrap(), b"\0\0\0\0\0\0ab\0\0\0\0\0\0\0\0c\0\0\0");
    // Longer than any buffer, with lines across buffer boundaries.
    let long: Vec<u8> =
        (0..400_000u32).flat_map(|at| if at % 7 == 0 { b"abc\n".to_vec() } else { b"\n".to_vec() }).collect();
    let info = datasets.ingest("long", folder_with_files(&[("x.txt", &long)]).path(), 0).unwrap();
    let dataset = datasets.open(&info).unwrap();
    assert_eq!(dataset.len(None).unwrap(), 400_000);
    let items = dataset.column("text").unwrap().chunks(3);
    assert!(items.enumerate().all(|(at, item)| item == if at % 7 == 0 { b"abc" } else { b"\0\0\0" }));
}

#[test]
fn a_quoted_csv_field_over_many_lines_is_limited() {
    let json = br#"{"format":"csv","file":"x.csv","fields":[{"name":"a","columns":[0,1],"dtype":"uint8"}]}"#;
    let endless = [b"1\n\"".as_slice(), &vec![b'\n'; CSV_LINE_BYTES_MAX + (1 << 20)]].concat();
    let error = ingest_error(&[("dataset.json", json), ("x.csv", &endless)]);
    assert!(
        matches!(&error, DatasetError::TooLarge { what, .. } if what == "x.csv: the record after line 1"),
        "{error}"
    );
}

#[test]
fn descriptions_and_headers_are_bounded_before_they_are_read() {
    let long = vec![b' '; DESCRIPTION_BYTES_MAX as usize + 1];
    let error = ingest_error(&[("dataset.json", &long)]);
    assert!(matches!(&error, DatasetError::TooLarge { what, .. } if what == "dataset.json"), "{error}");
    let error = ingest_error(&[("x.safetensors", &[(90u64 << 20).to_le_bytes().as_slice(), b"{}"].concat())]);
    assert!(error.to_string().contains("its header would have 94371840 bytes"), "{error}");
}

#[test]
fn the_list_of_files_of_an_archive_is_bounded() {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    for at in 0..300 {
        zip.start_file(format!("{at}{}.npy", "x".repeat(60_000)), options).unwrap();
    }
    let file = zip.finish().unwrap().into_inner();
    let error = ingest_error(&[("x.npz", &file)]);
    assert!(error.to_string().contains("its list of files takes more than 16777216 bytes"), "{error}");
}

#[test]
fn the_quota_is_checked_before_columns_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let (uploads, datasets) = (directory.path().join("uploads"), DatasetStore::new(directory.path().join("datasets")));
    std::fs::create_dir(&uploads).unwrap();
    let uploads = upload::UploadStore::new(uploads, datasets.clone());
    let text = b"\n".repeat(3 << 20);
    let begin = || {
        let file = upload::UploadFile {
            path: "x.txt".to_owned(),
            size: text.len() as u64,
            sha256: Digest::of(&text),
            chunks: vec![Digest::of(&text)],
        };
        let begun = uploads.begin("d", vec![file], |_| Ok(())).unwrap();
        uploads.put_chunk(&begun.id, &Digest::of(&text), &text).unwrap();
        begun.id
    };
    let asked = Cell::new(0);
    let limited = |limit: u64| {
        move |going: u64, bytes: u64| {
            assert!(going >= 6 << 20, "chunks and files go: {going}");
            check_within(limit, bytes)
        }
    };
    fn check_within(limit: u64, bytes: u64) -> Result<(), StoreError> {
        let (used, wanted) = (0, bytes);
        if bytes <= limit { Ok(()) } else { Err(StoreError::QuotaExceeded { limit, used, wanted }) }
    }
    let error = uploads.commit("d", &begin(), 0, limited(1 << 10)).unwrap_err();
    assert!(matches!(error, DatasetError::Store(StoreError::QuotaExceeded { .. })), "{error}");
    assert!(datasets.list().unwrap().is_empty() && !directory.path().join("datasets/d").exists());
    // The chunks are kept: with enough quota, the same upload is imported.
    let counted = |_, bytes| {
        asked.set(asked.get() + bytes);
        Ok(())
    };
    let info = uploads.commit("d", &begin(), 0, counted).unwrap();
    assert_eq!((info.items, info.bytes), (3 << 20, 3 << 20));
    assert!(asked.get() >= info.bytes, "{} bytes were asked for", asked.get());
    assert!(INGEST_EXPANSION_UNCHECKED_BYTES > info.bytes);
}

#[test]
fn staging_files_of_a_killed_process_are_removed_by_the_next_version() {
    let (directory, datasets) = datasets();
    let dead = directory.path().join("d/.staged-0123");
    std::fs::create_dir_all(&dead).unwrap();
    std::fs::write(dead.join(".column-0"), "x").unwrap();
    let busy = directory.path().join("d/.staged-4567");
    std::fs::create_dir_all(&busy).unwrap();
    let lock = std::fs::File::open(&busy).unwrap();
    lock.lock().unwrap();
    datasets.ingest("d", folder_with_files(&[("x.txt", b"a\n".as_slice())]).path(), 0).unwrap();
    assert!(!dead.exists() && busy.exists());
}
