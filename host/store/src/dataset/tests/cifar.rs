//! Import of CIFAR-10's binary records.

use super::*;

/// Returns a record whose byte at row, column, colour is `pixel(row, column, colour)`.
fn record(label: u8, pixel: impl Fn(u8, u8, u8) -> u8) -> Vec<u8> {
    let mut bytes = vec![label];
    for color in 0..3 {
        for row in 0..32 {
            bytes.extend((0..32).map(|column| pixel(row, column, color)));
        }
    }
    bytes
}

fn uniform_record(label: u8, value: u8) -> Vec<u8> {
    record(label, |_, _, _| value)
}

const NAMES: &str = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n";

#[test]
fn cifar_batches_become_columns_of_interleaved_pixels() {
    let first = [record(3, |row, column, color| row % 8 * 4 + column % 4 + color * 100), uniform_record(0, 7)].concat();
    let files: [(&str, &[u8]); 4] = [
        ("data_batch_1.bin", &first),
        ("data_batch_4.bin.gz", &gz(&uniform_record(9, 8))),
        ("test_batch.bin", &uniform_record(5, 9)),
        ("batches.meta.txt", NAMES.as_bytes()),
    ];
    let (_directory, datasets) = datasets();
    let info = datasets.ingest("cifar", folder_with_files(&files).path(), 0).unwrap();
    let cifar = datasets.open(&info).unwrap();
    let split = |name: &str, items| DatasetSplit { name: name.to_owned(), items };
    assert_eq!(cifar.splits(), [split("train", 0..3), split("test", 3..4)]);
    assert_eq!(cifar.field("image").unwrap().item.to_string(), "uint8[32, 32, 3]");
    assert_eq!(cifar.field("label").unwrap().item.to_string(), "uint8[]");
    assert_eq!(cifar.field("label").unwrap().classes[8], "ship");
    assert_eq!(cifar.read("label", &[0, 1, 2, 3]).unwrap(), [3, 0, 9, 5]);
    let image = cifar.read("image", &[0]).unwrap();
    // Rows 0 and 1, columns 0 and 1: the channels of a pixel are adjacent.
    assert_eq!(image[..6], [0, 100, 200, 1, 101, 201]);
    assert_eq!(image[96..102], [4, 104, 204, 5, 105, 205]);
    assert_eq!(cifar.read("image", &[2]).unwrap(), [8; 3072]);
}

#[test]
fn classes_without_names_are_numbered_and_the_description_is_kept() {
    let json = br#"{"format":"cifar10","description":"a few"}"#;
    let source = folder_with_files(&[
        ("dataset.json", json),
        ("data_batch_2.bin", &uniform_record(1, 0)),
        ("test_batch.bin.gz", &gz(&uniform_record(2, 0))),
    ]);
    let (_directory, datasets) = datasets();
    let info = datasets.ingest("cifar", source.path(), 0).unwrap();
    assert_eq!(
        datasets.open(&info).unwrap().field("label").unwrap().classes,
        "0123456789".split("").skip(1).take(10).collect::<Vec<_>>()
    );
    assert_eq!(DatasetManifest::read(&datasets.directory(&info).unwrap()).unwrap().description, "a few");
}

/// Checks the error of importing one training batch, one test batch and, if given, class names.
fn check_cifar(training: &[u8], names: Option<&[u8]>, expected: Expect) {
    let test = uniform_record(0, 0);
    let mut files: Vec<(&str, &[u8])> = vec![("data_batch_1.bin", training), ("test_batch.bin", &test)];
    files.extend(names.map(|names| ("batches.meta.txt", names)));
    check(&files, expected);
}

#[test]
fn broken_batches_are_refused_with_the_place() {
    let good = uniform_record(0, 0);
    check_cifar(
        &[good.as_slice(), &[1, 2, 3]].concat(),
        None,
        expect!["data_batch_1.bin: 3076 bytes (decompressed), expected a multiple of the record size, 3073 bytes"],
    );
    check_cifar(b"", None, expect!["data_batch_1.bin: no items"]);
    check_cifar(
        &[good.clone(), uniform_record(10, 0)].concat(),
        None,
        expect!["data_batch_1.bin: record 2: label 10, and there are 10 classes"],
    );
    let packed = gz(&good);
    check(
        &[("data_batch_1.bin.gz", &packed[..packed.len() - 3]), ("test_batch.bin", &good)],
        expect!["data_batch_1.bin.gz: byte 3073 (decompressed): the compressed file ends early"],
    );
    check(
        &[("data_batch_3.bin", &good)],
        expect!["test_batch.bin[.gz]: missing, and a dataset in CIFAR-10's form needs it"],
    );
    check(
        &[("test_batch.bin", &good)],
        expect!["data_batch_1.bin[.gz]: missing, and a dataset in CIFAR-10's form needs it"],
    );
}

#[test]
fn names_that_are_not_the_classes_are_refused() {
    let good = uniform_record(0, 0);
    check_cifar(&good, Some(b"cat\ndog\n"), expect!["batches.meta.txt: 2 class names, expected 10, one a line"]);
    check_cifar(&good, Some(b""), expect!["batches.meta.txt: 0 class names, expected 10, one a line"]);
    check_cifar(
        &good,
        Some(b"cat\n\xff"),
        expect!["batches.meta.txt: byte 4 (decompressed): class names are UTF-8, and this is not"],
    );
    check_cifar(&good, Some(&[b'x'; 70_000]), expect!["batches.meta.txt: more than 65536 bytes"]);
}
