//! Import of WebDataset archives.

use super::*;

fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        builder.append_data(&mut header, name, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

fn png(width: u32, height: u32, pixels: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let encoder = png::Encoder::new(&mut file, width, height);
    encoder.write_header().unwrap().write_image_data(pixels).unwrap();
    file
}

#[test]
fn entries_with_one_name_become_an_item() {
    let (first, second) = (png(2, 1, &[1, 2]), png(2, 1, &[3, 4]));
    let long = format!("{}/0002", "d".repeat(150));
    let tar = archive(&[
        ("0001.PNG", &first),
        ("0001.cls", b"7\n"),
        ("0001.txt", b"one"),
        ("0001.json", b"{}"),
        (&format!("{long}.cls"), b"0"),
        (&format!("{long}.txt"), b"three"),
        (&format!("{long}.png"), &second),
        (".hidden", b"x"),
    ]);
    let (info, data) = ingest_open(&[("shard-000000.tar", &tar)]);
    assert_eq!(field_lines(&info), ["image uint8[1, 2, 1] []", "label uint32[] []", "text uint8[5] []"]);
    assert_eq!(data.column("image").unwrap(), [1, 2, 3, 4]);
    assert_eq!(data.column("label").unwrap()[..4], 7_u32.to_le_bytes());
    assert_eq!(data.column("text").unwrap(), b"one\0\0three");
    assert_eq!((info.splits[0].name.as_str(), info.items), ("train", 2));
    assert_eq!(info.notes, ["entries are left out that end in: json"]);
    let json = br#"{"format": "webdataset", "resize": {"width": 1, "height": 1}, "classes": ["a", "b", "c", "d", "e", "f", "g", "h"]}"#;
    let files =
        [("dataset.json", &json[..]), ("train-0.tar", &tar), ("train-1.tar.gz", &gz(&tar)), ("val-0.tar", &tar)];
    let (info, data) = ingest_open(&files);
    assert_eq!(field_lines(&info)[..2], ["image uint8[1, 1, 3] []", "label uint32[] [a b c d e f g h]"]);
    assert_eq!(data.read("image", &[0]).unwrap(), [2, 2, 2]);
    let splits: Vec<_> = info.splits.iter().map(|split| (split.name.as_str(), split.items.clone())).collect();
    assert_eq!(splits, [("train", 0..4), ("val", 4..6)]);
}

#[test]
fn broken_archives_are_refused_with_the_item() {
    let image = png(2, 1, &[1, 2]);
    let refused = |entries: &[(&str, &[u8])], expected: Expect| check(&[("a.tar", &archive(entries))], expected);
    refused(&[("1.cls", b"x")], expect!["a.tar/1: `x` is not a class number"]);
    refused(&[("1.cls", b"-1")], expect!["a.tar/1: `-1` is not a class number"]);
    refused(&[("1.png", b"GIF89a")], expect!["a.tar/1: not a PNG, JPEG or WebP image, by its first bytes"]);
    refused(
        &[("1.png", &image), ("2.png", &png(1, 1, &[1]))],
        expect![
            "a.tar/2: an image of [1, 1, 1] (height, width, channels), and the first has [1, 2, 1]; `--resize WIDTHxHEIGHT` converts all to one size"
        ],
    );
    refused(
        &[("1.png", &image), ("1.cls", b"1"), ("2.png", &image)],
        expect!["a.tar/2: it has image, and the first item has image, label"],
    );
    refused(&[("1.png", &image), ("1.jpg", &image)], expect!["a.tar/1: it has two entries for the field image: 1.jpg"]);
    refused(&[("1.txt", b"a\0b")], expect!["a.tar/1: its text is not UTF-8 without zero bytes"]);
    refused(&[("1.txt", &[b'a'; 70_000])], expect!["a.tar/1.txt: more than 65536 bytes"]);
    refused(&[("1.json", b"{}")], expect!["a.tar: no items"]);
    let whole = archive(&[("1.txt", &[b'a'; 2000])]);
    check(&[("a.tar", &whole[..1500])], expect!["a.tar/1: the archive ends within 1.txt"]);
    check(&[("a.tar", b"not an archive")], expect!["a.tar: the archive cannot be read: failed to read entire block"]);
    let classes = br#"{"format": "webdataset", "classes": ["a"]}"#;
    check(
        &[("dataset.json", classes), ("a.tar", &archive(&[("1.cls", b"1")]))],
        expect!["dataset.json: label 1 has no name: `classes` has 1"],
    );
}

#[test]
fn a_long_name_is_bounded() {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::GNULongName);
    header.set_size(1 << 20);
    header.set_cksum();
    let tar = [header.as_bytes(), &vec![b'a'; 1 << 20][..]].concat();
    check(&[("a.tar", &tar)], expect!["a.tar: more than 65536 bytes"]);
}
