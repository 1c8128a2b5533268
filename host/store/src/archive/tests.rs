use std::io::Cursor;

use expect_test::{Expect, expect};
use flate2::Compression;
use flate2::write::GzEncoder;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns an archive with entries of these types and any names.
fn tar(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, kind, content) in entries {
        let mut header = ::tar::Header::new_ustar();
        // Set as bytes, because `set_path` refuses the invalid names that these tests need.
        header.as_ustar_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o777);
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

const FILE: tar::EntryType = ::tar::EntryType::Regular;

fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// Unpacks into `DIR/into`, with at most 1000 bytes, and checks that nothing else is in `DIR` afterwards.
fn unpack_into_temp_dir(name: &str, bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, DatasetError> {
    let directory = tempfile::tempdir().unwrap();
    let (path, into) = (directory.path().join("archive"), directory.path().join("into"));
    fs::write(&path, bytes).unwrap();
    fs::create_dir(&into).unwrap();
    let written = ArchiveFormat::from_file_name(name).unwrap().unpack(&path, name, &into, 1000);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "{name} wrote beside its folder");
    let mut found = Vec::new();
    let mut left = vec![into.clone()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            assert!(!path.is_symlink(), "{}", path.display());
            if path.is_dir() {
                left.push(path);
            } else {
                let name = path.strip_prefix(&into).unwrap().to_str().unwrap().to_owned();
                found.push((name, fs::read(path).unwrap()));
            }
        }
    }
    found.sort();
    let bytes: usize = found.iter().map(|(_, bytes)| bytes.len()).sum();
    written.map(|written| {
        assert_eq!(written, bytes as u64);
        found
    })
}

fn check(name: &str, bytes: &[u8], expected: Expect) {
    expected.assert_eq(&unpack_into_temp_dir(name, bytes).unwrap_err().to_string());
}

#[test]
fn every_archive_format_is_unpacked_into_files() {
    let expected = vec![("a.txt".to_owned(), b"one".to_vec()), ("b/c.txt".to_owned(), b"two".to_vec())];
    let folder = ::tar::EntryType::Directory;
    let plain = tar(&[
        ("./", folder, b""),
        ("./a.txt", FILE, b"one"),
        ("./.DS_Store", FILE, b"x"),
        ("b/", folder, b""),
        ("b/c.txt", FILE, b"two"),
        ("b/._c.txt", FILE, b"x"),
    ]);
    assert_eq!(unpack_into_temp_dir("d.tar", &plain).unwrap(), expected);
    assert_eq!(unpack_into_temp_dir("d.tar.gz", &gz(&plain)).unwrap(), expected);
    assert_eq!(unpack_into_temp_dir("D.TGZ", &gz(&plain)).unwrap(), expected);
    assert_eq!(unpack_into_temp_dir("d.zip", &zip(&[("a.txt", b"one"), ("b/c.txt", b"two")])).unwrap(), expected);
    assert_eq!(unpack_into_temp_dir("a.txt.gz", &gz(b"one")).unwrap(), expected[..1]);
    for name in ["x.npz", "x.csv", "gz", ""] {
        assert_eq!(ArchiveFormat::from_file_name(name), None, "{name}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of archives")]
fn entries_outside_the_target_folder_are_refused() {
    check(
        "d.tar",
        &tar(&[("../x", FILE, b"x")]),
        expect![[
            r#"`d.tar/../x` cannot be a path: relative, parts without `..`, `\`, control characters or a leading dot, and no file inside another"#
        ]],
    );
    check(
        "d.tar",
        &tar(&[("a/../../x", FILE, b"x")]),
        expect![[
            r#"`d.tar/a/../../x` cannot be a path: relative, parts without `..`, `\`, control characters or a leading dot, and no file inside another"#
        ]],
    );
    check(
        "d.tar",
        &tar(&[("/tmp/x", FILE, b"x")]),
        expect![[
            r#"`d.tar//tmp/x` cannot be a path: relative, parts without `..`, `\`, control characters or a leading dot, and no file inside another"#
        ]],
    );
    check(
        "d.tar",
        &tar(&[("a\\x", FILE, b"x")]),
        expect![[
            r#"`d.tar/a\x` cannot be a path: relative, parts without `..`, `\`, control characters or a leading dot, and no file inside another"#
        ]],
    );
    check(
        "d.tar",
        &tar(&[("a", ::tar::EntryType::Symlink, b""), ("a/x", FILE, b"x")]),
        expect!["d.tar/a: a link or a device; only plain files are unpacked"],
    );
    check(
        "d.tar",
        &tar(&[("a", ::tar::EntryType::Link, b"")]),
        expect!["d.tar/a: a link or a device; only plain files are unpacked"],
    );
    check(
        "d.tar",
        &tar(&[("a", ::tar::EntryType::Fifo, b"")]),
        expect!["d.tar/a: a link or a device; only plain files are unpacked"],
    );
    check(
        "d.zip",
        &zip(&[("../x", b"x")]),
        expect![[
            r#"`d.zip/../x` cannot be a path: relative, parts without `..`, `\`, control characters or a leading dot, and no file inside another"#
        ]],
    );
    check(
        "d.zip",
        &zip(&[("/x", b"x")]),
        expect![[
            r#"`d.zip//x` cannot be a path: relative, parts without `..`, `\`, control characters or a leading dot, and no file inside another"#
        ]],
    );
    let mut link = ZipWriter::new(Cursor::new(Vec::new()));
    link.add_symlink("a", "/etc", SimpleFileOptions::default()).unwrap();
    check(
        "d.zip",
        &link.finish().unwrap().into_inner(),
        expect!["d.zip/a: a link or a device; only plain files are unpacked"],
    );
    check(
        "...gz",
        &gz(b"x"),
        expect![[
            r#"`...gz/..` cannot be a path: relative, parts without `..`, `\`, control characters or a leading dot, and no file inside another"#
        ]],
    );
}

#[test]
fn archives_with_false_sizes_or_truncated_data_are_refused() {
    check("d.tar", &tar(&[("a", FILE, b"x"), ("a", FILE, b"y")]), expect!["d.tar/a: the archive contains it twice"]);
    check("d.tar", &tar(&[("a", FILE, &[0; 2000])])[..1024], expect!["d.tar: unexpected EOF during skip"]);
    check(
        "d.tar",
        &tar(&[("a", FILE, &[0; 900]), ("b", FILE, &[0; 101])]),
        expect!["d.tar: more than 1000 bytes unpacked"],
    );
    check("d.tar.gz", &gz(&tar(&[("a", FILE, &[7; 300])]))[..40], expect!["d.tar.gz: the archive ends early"]);
    check("d.tar", b"no archive at all, only words", expect!["d.tar: failed to read entire block"]);
    check(
        "d.zip",
        b"no archive at all, only words",
        expect!["d.zip: not a ZIP archive: invalid Zip archive: Could not find EOCD"],
    );
    check("d.zip", &zip(&[("a", &[0; 1001])]), expect!["d.zip: more than 1000 bytes unpacked"]);
    check("a.gz", &gz(&[0; 1 << 20]), expect!["a.gz: more than 1000 bytes unpacked"]);
    check("a.gz", b"no gzip", expect!["a.gz/a: the archive ends early"]);
}

#[test]
fn long_entry_names_are_read_up_to_the_header_limit() {
    let (long, link, pax) = (::tar::EntryType::GNULongName, ::tar::EntryType::GNULongLink, ::tar::EntryType::XHeader);
    let deep = format!("{}/b.txt", "a".repeat(150));
    let record = |key: &str, value: &str| {
        let rest = format!(" {key}={value}\n");
        let digits = (rest.len() + 3).to_string().len();
        format!("{}{rest}", rest.len() + digits).into_bytes()
    };
    for whole in [
        tar(&[("././@LongLink", long, deep.as_bytes()), ("short", FILE, b"x")]),
        tar(&[("x", pax, &record("path", &deep)), ("short", FILE, b"x")]),
        tar(&[("x", link, b"nowhere"), ("x", pax, &record("path", &deep)), ("short", FILE, b"x")]),
    ] {
        assert_eq!(unpack_into_temp_dir("d.tar", &whole).unwrap(), [(deep.clone(), b"x".to_vec())]);
    }
    let sized = tar(&[("x", pax, &record("size", "3")), ("a", FILE, b"xyz")]);
    assert_eq!(unpack_into_temp_dir("d.tar", &sized).unwrap(), [("a".to_owned(), b"xyz".to_vec())]);
    for kind in [long, link, pax] {
        check(
            "d.tar.gz",
            &gz(&tar(&[("x", kind, &vec![0; 1 << 20]), ("a", FILE, b"x")])),
            expect!["d.tar.gz: names and attributes of an entry take more than 262144 bytes"],
        );
    }
    // The bytes of a skipped entry do not count as header bytes of the next one.
    let plain = tar(&[(".hidden", FILE, &vec![0; 1 << 20]), ("a", FILE, b"x")]);
    assert_eq!(unpack_into_temp_dir("d.tar", &plain).unwrap(), [("a".to_owned(), b"x".to_vec())]);
}

#[test]
fn a_single_nested_folder_is_the_dataset_root() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir_all(path("a/b/cat")).unwrap();
    fs::write(path("a/b/cat/1.PNG"), "").unwrap();
    assert_eq!(innermost_folder(directory.path()), path("a/b"));
    fs::write(path("a/x.npy"), "").unwrap();
    assert_eq!(innermost_folder(directory.path()), path("a"));
    fs::write(path("notes.md"), "").unwrap();
    assert_eq!(innermost_folder(directory.path()), directory.path());
}
