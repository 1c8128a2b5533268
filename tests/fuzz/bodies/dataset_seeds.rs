//! Generated files of the formats of datasets: the initial inputs of the fuzz targets.

use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

/// Returns the seeds of each fuzz target of datasets.
pub(crate) fn all() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    vec![
        ("dataset_csv", csv()),
        ("dataset_json_lines", json_lines()),
        ("dataset_parquet", parquet_files()),
        ("dataset_arrow", arrow_files()),
        ("dataset_npy", npy()),
        ("dataset_npz", npz()),
        ("dataset_webdataset", archives()),
        ("images", images()),
        ("dataset_description", descriptions()),
    ]
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn csv() -> Vec<Vec<u8>> {
    texts(&[
        "alcohol,ash,class\n14.2,2.4,1\n13.1,2.1,3\n12.0,2,2\n",
        "name;size;kind\n\"a;b\";1.5;x\nc;;y\n\"d\"\"e\";-3e2;x\n",
        "1,2,0\n3,4,1\n5,6,1\n",
        "label\tp0\tp1\n7\t0\t255\n0\t?\tNA\n1\t2\t3\n",
        "\u{feff}city,price\nOslo,1.5\nRom\u{e9},2.5\n",
    ])
}

fn json_lines() -> Vec<Vec<u8>> {
    texts(&[
        "{\"a\": 1, \"b\": 2.5, \"c\": true}\n{\"a\": -2, \"b\": null, \"c\": false}\n{\"a\": 3, \"b\": 1, \"c\": true}\n",
        "{\"x\": [[1, 2], [3, 4]], \"label\": \"cat\"}\n{\"x\": [[5, 6], [7, 8]], \"label\": \"dog\"}\n",
        "{\"text\": \"one \\u00e9\"}\n\n{\"text\": \"two\"}\n",
    ])
}

fn parquet_files() -> Vec<Vec<u8>> {
    let schema = "message m { required double x; required int64 label; required binary text (STRING); }";
    let schema = Arc::new(parse_message_type(schema).expect("a valid schema"));
    let options =
        [true, false].map(|dictionary| WriterProperties::builder().set_dictionary_enabled(dictionary).build());
    let file = |options: WriterProperties| {
        let mut writer =
            SerializedFileWriter::new(Vec::new(), Arc::clone(&schema), Arc::new(options)).expect("in memory");
        let mut group = writer.next_row_group().expect("in memory");
        let mut column = group.next_column().expect("in memory").expect("the first column");
        column.typed::<DoubleType>().write_batch(&[0.5, 1.5, -2.0], None, None).expect("in memory");
        column.close().expect("in memory");
        let mut column = group.next_column().expect("in memory").expect("the second column");
        column.typed::<Int64Type>().write_batch(&[0, 1, 1], None, None).expect("in memory");
        column.close().expect("in memory");
        let mut column = group.next_column().expect("in memory").expect("the third column");
        let values = ["one", "two", "one"].map(ByteArray::from);
        column.typed::<ByteArrayType>().write_batch(&values, None, None).expect("in memory");
        column.close().expect("in memory");
        group.close().expect("in memory");
        writer.into_inner().expect("in memory")
    };
    options.into_iter().map(file).collect()
}

/// Returns the files that the tests of datasets read, which pyarrow wrote.
fn arrow_files() -> Vec<Vec<u8>> {
    macro_rules! arrow_file {
        ($name:literal) => {
            include_bytes!(concat!("../../../host/store/src/dataset/tests/arrow_files/", $name)).to_vec()
        };
    }
    vec![
        arrow_file!("nulls.arrow"),
        arrow_file!("images.arrow"),
        arrow_file!("grown.arrow"),
        arrow_file!("replaced_stream.arrow"),
        arrow_file!("slices.arrow"),
        arrow_file!("types_stream.arrow"),
        arrow_file!("lz4.arrow"),
        arrow_file!("zstd_stream.arrow"),
    ]
}

/// Returns a `.npy` file with this header and data.
fn npy_file(header: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{header:<117}\n");
    let length = u16::try_from(header.len()).expect("a short header").to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

fn npy() -> Vec<Vec<u8>> {
    vec![
        npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", &[1; 24]),
        npy_file("{'descr': '>i8', 'fortran_order': True, 'shape': (2,), }", &[0; 16]),
        npy_file("{'descr': '|b1', 'fortran_order': False, 'shape': (3, 1, 2), }", &[1, 0, 1, 1, 0, 0]),
        npy_file("{'descr': '<U2', 'fortran_order': False, 'shape': (2,), }", &[97, 0, 0, 0, 98, 0, 0, 0].repeat(2)),
    ]
}

/// Returns an archive of these files, stored without compression.
fn zip_archive(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in files {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        let (size, length) = ((bytes.len() as u32).to_le_bytes(), (name.len() as u16).to_le_bytes());
        let fields = [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &crc.sum().to_le_bytes(), &size, &size, &length].concat();
        let offset = (archive.len() as u32).to_le_bytes();
        archive.extend([b"PK\x03\x04", &fields[..], &[0, 0], name.as_bytes(), bytes].concat());
        let rest = [&[0; 12][..], &offset, name.as_bytes()].concat();
        directory.extend([b"PK\x01\x02\x14\x00", &fields[..], &rest].concat());
    }
    let (count, begin) = ((files.len() as u16).to_le_bytes(), (archive.len() as u32).to_le_bytes());
    let size = (directory.len() as u32).to_le_bytes();
    archive.extend(directory);
    archive.extend([b"PK\x05\x06\x00\x00\x00\x00", &count[..], &count, &size, &begin, &[0, 0]].concat());
    archive
}

fn npz() -> Vec<Vec<u8>> {
    let arrays = npy();
    let pair = [("x_train.npy", arrays[0].clone()), ("y_train.npy", arrays[1].clone())];
    vec![zip_archive(&pair), zip_archive(&[("x.npy", arrays[2].clone())])]
}

fn png_file(width: u32, height: u32, color: png::ColorType, pixels: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(color);
    encoder.write_header().and_then(|mut writer| writer.write_image_data(pixels)).expect("in memory");
    file
}

fn images() -> Vec<Vec<u8>> {
    let mut webp = Vec::new();
    let encoder = image_webp::WebPEncoder::new(&mut webp);
    encoder.encode(&[10, 200, 30].repeat(12), 4, 3, image_webp::ColorType::Rgb8).expect("in memory");
    vec![
        png_file(4, 3, png::ColorType::Grayscale, &(0..12).collect::<Vec<u8>>()),
        png_file(2, 2, png::ColorType::Rgba, &[200; 16]),
        webp,
        grey_jpeg(),
    ]
}

/// Returns a JPEG of 8 x 8 grey pixels: quantization by 1, and one code of one bit for each table. Source: ITU-T T.81.
fn grey_jpeg() -> Vec<u8> {
    let mut file = vec![0xff, 0xd8];
    let mut add_segment = |marker: u8, content: &[u8]| {
        let length = u16::try_from(content.len() + 2).expect("a short segment");
        file.extend([&[0xff, marker][..], &length.to_be_bytes(), content].concat());
    };
    add_segment(0xdb, &[&[0][..], &[1; 64]].concat());
    add_segment(0xc0, &[8, 0, 8, 0, 8, 1, 1, 0x11, 0]);
    for table in [0, 0x10] {
        let mut codes = [0; 18];
        (codes[0], codes[1]) = (table, 1);
        add_segment(0xc4, &codes);
    }
    add_segment(0xda, &[1, 1, 0, 0, 63, 0]);
    file.extend([0b0011_1111, 0xff, 0xd9]);
    file
}

fn archives() -> Vec<Vec<u8>> {
    let archive = |entries: &[(&str, &[u8])]| {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            builder.append_data(&mut header, name, *bytes).expect("in memory");
        }
        builder.into_inner().expect("in memory")
    };
    let image = png_file(4, 3, png::ColorType::Grayscale, &[7; 12]);
    let long = format!("{}/1.txt", "d".repeat(120));
    vec![
        archive(&[("1.png", &image), ("1.cls", b"1"), ("2.png", &image), ("2.cls", b"0")]),
        archive(&[(&long, b"one"), ("2.txt", b"two"), ("2.json", b"{}")]),
    ]
}

fn descriptions() -> Vec<Vec<u8>> {
    texts(&[
        r#"{"format": "csv", "target": "b", "ignore": ["a"], "missing": "drop"}"#,
        r#"{"format": "csv", "file": "data.csv", "header": true, "delimiter": ",", "missing": "mean",
            "fields": [{"name": "x", "columns": ["a", "b"], "dtype": "float32"},
                       {"name": "label", "columns": [2, 3], "dtype": "uint8", "classes": ["x", "y"]}],
            "splits": {"train": 0.8, "test": 0.2}}"#,
        r#"{"format": "images", "resize": {"width": 8, "height": 8}}"#,
        r#"{"format": "parquet", "fields": [{"name": "x", "column": "a", "shape": [2]}], "description": "d"}"#,
        r#"{"format": "text", "parts": {"train": {"text": "data.csv"}}}"#,
        r#"{"format": "npy", "fields": [{"name": "x", "file": "x.npy"}], "splits": {"train": [0, 1]}}"#,
    ])
}
