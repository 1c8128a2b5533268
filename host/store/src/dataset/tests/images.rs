//! Import of folders of images.

use super::*;

/// 4 x 2 pixels of about (200, 30, 40), written by another program.
const RGB_JPEG: &str = "ffd8ffe000104a46494600010100000100010000ffdb0043000302020302020303030304030304050805050404050a070706080c0a0c0c0b0a\
0b0b0d0e12100d0e110e0b0b1016101113141515150c0f171816141812141514ffdb00430103040405040509050509140d0b0d141414141414141414\
1414141414141414141414141414141414141414141414141414141414141414141414141414141414141414ffc00011080002000403012200021101\
031101ffc4001500010100000000000000000000000000000007ffc40014100100000000000000000000000000000000ffc400150101010000000000\
0000000000000000000708ffc40014110100000000000000000000000000000000ffda000c03010002110311003f0082003f5c0fffd9";

/// 4 x 2 pixels of about 90, in one channel.
const GRAY_JPEG: &str = "ffd8ffe000104a46494600010100000100010000ffdb0043000302020302020303030304030304050805050404050a070706080c0a0c0c0b0a\
0b0b0d0e12100d0e110e0b0b1016101113141515150c0f171816141812141514ffc0000b080002000401011100ffc400140001000000000000000000\
00000000000007ffc40014100100000000000000000000000000000000ffda0008010100003f001a7fffd9";

fn jpeg(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn png(width: u32, height: u32, color: png::ColorType, data: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(color);
    encoder.write_header().unwrap().write_image_data(data).unwrap();
    file
}

fn gray(pixels: [u8; 4]) -> Vec<u8> {
    png(2, 2, png::ColorType::Grayscale, &pixels)
}

fn tree(files: &[(&str, &[u8])]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = directory.path().join(name);
        let is_folder = name.ends_with('/');
        std::fs::create_dir_all(if is_folder { &path } else { path.parent().unwrap() }).unwrap();
        if !is_folder {
            std::fs::write(path, bytes).unwrap();
        }
    }
    directory
}

fn ingest_files(files: &[(&str, &[u8])]) -> ColumnarDataset {
    let (_directory, datasets) = datasets();
    datasets.open(&datasets.ingest("images", tree(files).path(), 0).unwrap()).unwrap()
}

fn check_tree(files: &[(&str, &[u8])], expected: Expect) {
    let source = tree(files);
    let error = datasets().1.ingest("images", source.path(), 0).unwrap_err();
    expected.assert_eq(&error.to_string().replace(&*source.path().file_name().unwrap().to_string_lossy(), "FOLDER"));
}

#[test]
fn class_folders_become_labels() {
    let data = ingest_files(&[
        ("dog/b.PNG", &gray([5, 6, 7, 8])),
        ("dog/a.png", &gray([1, 2, 3, 4])),
        ("cat/.hidden", b"x"),
        ("cat/z.png", &gray([9, 9, 9, 9])),
        ("README.md", b"x"),
    ]);
    assert_eq!(data.fields()[0].item.to_string(), "uint8[2, 2, 1]");
    assert_eq!(data.column("image").unwrap(), [9, 9, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(
        (data.column("label").unwrap(), &data.fields()[1].classes[..]),
        (&[0, 1, 1][..], &["cat".to_owned(), "dog".to_owned()][..])
    );
    assert_eq!(data.len(Some("train")).unwrap(), 3);
}

#[test]
fn folders_of_class_folders_become_splits() {
    let image = gray([1, 2, 3, 4]);
    let data = ingest_files(&[("train/b/1.png", &image), ("train/a/1.png", &image), ("test/b/1.png", &gray([0; 4]))]);
    assert_eq!((data.len(Some("train")).unwrap(), data.len(Some("test")).unwrap()), (2, 1));
    // The test split comes first in name order and lacks the first class.
    assert_eq!(data.column("label").unwrap(), [1, 0, 1]);
}

#[test]
fn image_formats_are_detected_from_content() {
    let blue = png(4, 2, png::ColorType::Rgb, &[0, 0, 255].repeat(8));
    let data = ingest_files(&[("a/1.jpg", &jpeg(RGB_JPEG)), ("a/2.jpeg", &blue)]);
    assert_eq!(data.fields()[0].item.to_string(), "uint8[2, 4, 3]");
    let near = |found: &[u8], expected: [u8; 3]| found.iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 4);
    let image = data.read("image", &[0]).unwrap();
    assert!(image.chunks(3).all(|pixel| near(pixel, [200, 30, 40])), "{image:?}");
    assert_eq!(data.read("image", &[1]).unwrap(), [0, 0, 255].repeat(8));
    let data = ingest_files(&[("a/1.jpg", &jpeg(GRAY_JPEG))]);
    assert_eq!(data.fields()[0].item.to_string(), "uint8[2, 4, 1]");
    assert!(data.column("image").unwrap().iter().all(|pixel| pixel.abs_diff(90) <= 2));
}

#[test]
fn images_of_unequal_shape_and_invalid_files_are_refused() {
    let image = gray([1, 2, 3, 4]);
    let color = png(2, 2, png::ColorType::Rgb, &[0; 12]);
    check_tree(
        &[("a/1.png", &image), ("b/1.png", &color)],
        expect![
            "b/1.png has items uint8[2, 2, 3], and a/1.png has uint8[2, 2, 1]; `--resize WIDTHxHEIGHT` converts all to one size"
        ],
    );
    check_tree(
        &[("a/1.png", &image), ("a/2.png", &png(1, 2, png::ColorType::Grayscale, &[0; 2]))],
        expect![
            "a/2.png has items uint8[2, 1, 1], and a/1.png has uint8[2, 2, 1]; `--resize WIDTHxHEIGHT` converts all to one size"
        ],
    );
    check_tree(&[("a/1.png", &image[..image.len() - 20])], expect!["a/1.png: a damaged PNG: unexpected end of file"]);
    check_tree(&[("a/1.png", &image[..4])], expect!["a/1.png: not a PNG, JPEG or WebP image, by its first bytes"]);
    check_tree(&[("a/1.png", b"")], expect!["a/1.png: not a PNG, JPEG or WebP image, by its first bytes"]);
    check_tree(&[("a/1.jpg", &jpeg(RGB_JPEG)[..200])], expect!["a/1.jpg: a damaged JPEG: it ends early"]);
    check_tree(&[("a/1.jpg", b"GIF89a...")], expect!["a/1.jpg: not a PNG, JPEG or WebP image, by its first bytes"]);
    check_tree(
        &[("a/1.png", &image), ("a/notes.txt", b"x")],
        expect!["a/notes.txt: no image; the folder of a class holds files in png, jpg, jpeg, webp only"],
    );
    check_tree(&[("a/1.png", &image), ("b/", b"")], expect!["b: no items"]);
    check_tree(
        &[("a/1.png", &image), ("a/b/1.png", &image)],
        expect![
            "a/1.png: a file beside folders of classes; a contains folders, so this folder is a split, in which files must be in a folder per class"
        ],
    );
    check_tree(
        &[("a/1.png", &image), ("b/c/1.png", &image)],
        expect![
            "a/1.png: a file beside folders of classes; b contains folders, so this folder is a split, in which files must be in a folder per class"
        ],
    );
    check_tree(
        &[("1.png", &image)],
        expect![
            "FOLDER: no dataset found; expected dataset.json, files NAME.npy, NAME.npz, NAME.safetensors, NAME.parquet, NAME.arrow, NAME.feather, NAME.jsonl or NAME.tar, one file NAME.csv[.gz], folders of PNG, JPEG and WebP images named as their classes, text files NAME.txt[.gz], the MNIST files train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz] and the same with t10k-, or the CIFAR-10 files data_batch_1.bin[.gz] to data_batch_5.bin[.gz] and test_batch.bin[.gz]"
        ],
    );
    let mut wide = image.clone();
    // The width in the first chunk, and the chunk's checksum.
    wide[16..20].copy_from_slice(&0x7fff_ffffu32.to_be_bytes());
    check_tree(
        &[("a/1.png", &wide)],
        expect![
            "a/1.png: a damaged PNG: CRC error: expected 0x57dd52f8 have 0x3c91eaf while decoding ChunkType { type: IHDR, critical: true, private: false, reserved: false, safecopy: false } chunk."
        ],
    );
    wide[16..20].copy_from_slice(&20_000u32.to_be_bytes());
    let sum = crc(&wide[12..29]).to_be_bytes();
    wide[29..33].copy_from_slice(&sum);
    check_tree(
        &[("a/1.png", &wide)],
        expect!["a/1.png: 2 x 20000 pixels; 1 to 16384 a side and 25165824 bytes in all are read"],
    );
}

fn ingest_resized(files: &[(&str, &[u8])]) -> (DatasetInfo, ColumnarDataset) {
    let json = br#"{"format":"images","resize":{"width":4,"height":2}}"#;
    let files = [files, &[("dataset.json", &json[..])]].concat();
    let (_directory, datasets) = datasets();
    let info = datasets.ingest("images", tree(&files).path(), 0).unwrap();
    let data = datasets.open(&info).unwrap();
    (info, data)
}

#[test]
fn images_of_several_sizes_and_formats_are_converted_to_one() {
    let small = gray([0, 100, 200, 40]);
    let (info, data) =
        ingest_resized(&[("a/1.png", &small), ("b/2.png", &png(4, 2, png::ColorType::Grayscale, &[7; 8]))]);
    assert_eq!(data.fields()[0].item.to_string(), "uint8[2, 4, 1]");
    assert_eq!(data.read("image", &[0]).unwrap(), [0, 25, 75, 100, 200, 160, 80, 40]);
    assert_eq!(data.read("image", &[1]).unwrap(), [7; 8]);
    assert_eq!(info.notes, ["1 of 2 images were converted to 4 x 2 pixels in grey"]);
    let mut webp = Vec::new();
    let encoder = image_webp::WebPEncoder::new(&mut webp);
    encoder.encode(&[0, 0, 200].repeat(6), 3, 2, image_webp::ColorType::Rgb8).unwrap();
    let (info, data) = ingest_resized(&[("a/1.png", &small), ("a/2.webp", &webp), ("b/1.jpg", &jpeg(RGB_JPEG))]);
    assert_eq!(data.fields()[0].item.to_string(), "uint8[2, 4, 3]");
    assert_eq!(data.read("image", &[0]).unwrap()[..6], [0, 0, 0, 25, 25, 25]);
    assert_eq!(data.read("image", &[1]).unwrap(), [0, 0, 200].repeat(8));
    assert_eq!(info.notes, ["2 of 3 images were converted to 4 x 2 pixels in RGB"]);
    let huge = br#"{"format":"images","resize":{"width":100000,"height":2}}"#;
    check_tree(
        &[("a/1.png", &small), ("dataset.json", huge)],
        expect!["dataset.json: resize: 100000 x 2 pixels; 1 to 16384 a side and 25165824 bytes in all are stored"],
    );
    let text = br#"{"format":"images","resize":"4x2"}"#;
    check_tree(
        &[("a/1.png", &small), ("dataset.json", text)],
        expect![[r#"dataset.json: invalid type: string "4x2", expected struct ImageSize"#]],
    );
}

/// Returns the checksum of a PNG's chunk. Source: RFC 2083, 15.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}
