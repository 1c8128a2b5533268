//! Random tables written as Arrow files in every form give the values that they were made of.

use proptest::prelude::*;

use super::arrow_writer::{
    BOOL, F32, F64, FlatbufferValue, LIST, Message, TEXT, WriterCompression, WrittenBatch, batch_message,
    dictionary_field, dictionary_message, field, file, int, schema, stream,
};
use super::*;

/// A row: values that can be null, and others.
#[derive(Clone, Debug)]
struct Row {
    number: Option<i16>,
    float: Option<f64>,
    text: Option<String>,
    class: Option<usize>,
    truth: bool,
    list: [f32; 2],
}

const CLASSES: [&str; 3] = ["red", "", "a longer name"];

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let float = prop::option::weighted(0.9, -1e6..1e6f64);
    let text = prop::option::weighted(0.9, "[a-zé]{0,9}");
    let class = prop::option::weighted(0.9, 0..CLASSES.len());
    let row = (prop::option::weighted(0.9, any::<i16>()), float, text, class, any::<bool>(), any::<[i16; 2]>());
    let row = row.prop_map(|(number, float, text, class, truth, list)| Row {
        number,
        float,
        text,
        class,
        truth,
        list: list.map(f32::from),
    });
    prop::collection::vec(row, 1..40)
}

/// Returns a bitmap of these bits.
fn bitmap(bits: impl Iterator<Item = bool>) -> Vec<u8> {
    let bits: Vec<bool> = bits.collect();
    bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit))).collect()
}

/// Returns the bitmap of values that are not null, which can be absent if none is, and the number of nulls.
fn validity<T>(values: &[Option<T>]) -> (Vec<u8>, i64) {
    let nulls = values.iter().filter(|value| value.is_none()).count() as i64;
    if nulls == 0 { (Vec::new(), 0) } else { (bitmap(values.iter().map(Option::is_some)), nulls) }
}

/// Returns offsets and data of texts. A null has content too, which is ignored.
fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> [Vec<u8>; 2] {
    let (mut offsets, mut data) = (0i32.to_le_bytes().to_vec(), Vec::new());
    for value in values {
        data.extend(value.unwrap_or("ignored\0").as_bytes());
        offsets.extend((data.len() as i32).to_le_bytes());
    }
    [offsets, data]
}

fn batch(rows: &[Row], compression: WriterCompression) -> WrittenBatch {
    let count = rows.len() as i64;
    let numbers: Vec<_> = rows.iter().map(|row| row.number).collect();
    let floats: Vec<_> = rows.iter().map(|row| row.float).collect();
    let words: Vec<_> = rows.iter().map(|row| row.text.as_deref()).collect();
    let classes: Vec<_> = rows.iter().map(|row| row.class).collect();
    let (number_bits, number_nulls) = validity(&numbers);
    let (float_bits, float_nulls) = validity(&floats);
    let (word_bits, word_nulls) = validity(&words);
    let (class_bits, class_nulls) = validity(&classes);
    let [offsets, data] = texts(words.into_iter());
    // The lists begin after values that no list has.
    let list_offsets = (0..=rows.len()).flat_map(|at| (3 + 2 * at as i32).to_le_bytes()).collect();
    let list_values = [9.0; 3].into_iter().chain(rows.iter().flat_map(|row| row.list));
    let buffers = [
        number_bits,
        numbers.iter().flat_map(|value| value.unwrap_or(7).to_le_bytes()).collect(),
        float_bits,
        floats.iter().flat_map(|value| value.unwrap_or(1e300).to_le_bytes()).collect(),
        word_bits,
        offsets,
        data,
        class_bits,
        classes.iter().flat_map(|class| (class.map_or(-1, |class| class as i16)).to_le_bytes()).collect(),
        Vec::new(),
        bitmap(rows.iter().map(|row| row.truth)),
        Vec::new(),
        list_offsets,
        Vec::new(),
        list_values.flat_map(f32::to_le_bytes).collect(),
    ];
    let nodes = vec![
        (count, number_nulls),
        (count, float_nulls),
        (count, word_nulls),
        (count, class_nulls),
        (count, 0),
        (count, 0),
        (2 * count + 3, 0),
    ];
    WrittenBatch::new(rows.len(), nodes, &buffers, compression)
}

fn table_schema() -> FlatbufferValue {
    let item = field("item", F32(), Vec::new());
    schema(vec![
        field("number", int(16), Vec::new()),
        field("float", F64(), Vec::new()),
        field("text", TEXT(), Vec::new()),
        dictionary_field("class", 4),
        field("truth", BOOL(), Vec::new()),
        field("list", LIST(), vec![item]),
    ])
}

/// Returns the messages of a table: the dictionary in two parts, then the rows in batches of `size`.
fn messages(rows: &[Row], size: usize, compression: WriterCompression) -> Vec<Message> {
    let part = |names: &[&str]| {
        let [offsets, data] = texts(names.iter().map(|name| Some(*name)));
        let nodes = vec![(names.len() as i64, 0)];
        WrittenBatch::new(names.len(), nodes, &[Vec::new(), offsets, data], compression)
    };
    let first = dictionary_message(4, &part(&CLASSES[..1]), false);
    let second = dictionary_message(4, &part(&CLASSES[1..]), true);
    let batches = rows.chunks(size).map(|rows| batch_message(&batch(rows, compression)));
    [first, second].into_iter().chain(batches).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_arrow_tables_are_read(
        rows in rows(),
        size in 1usize..20,
        is_stream in any::<bool>(),
        codec in prop::sample::select(vec![WriterCompression::Stored, WriterCompression::Lz4, WriterCompression::Zstd]),
    ) {
        let (schema, messages) = (table_schema(), messages(&rows, size, codec));
        let bytes = if is_stream { stream(&schema, &messages) } else { file(&schema, &messages) };
        let drop = br#"{"format": "arrow", "missing": "drop"}"#;
        let source = folder_with_files(&[("dataset.json", drop), ("d.arrow", &bytes)]);
        let (_directory, datasets) = datasets();
        let complete = |row: &&Row| {
            row.number.is_some() && row.float.is_some() && row.text.is_some() && row.class.is_some()
        };
        let complete: Vec<&Row> = rows.iter().filter(complete).collect();
        let info = match datasets.ingest("d", source.path(), 0) {
            Ok(info) => info,
            Err(error) => {
                prop_assert!(complete.is_empty() && error.to_string().contains("rows were dropped"), "{error}");
                return Ok(());
            }
        };
        prop_assert_eq!(info.items, complete.len() as u64);
        let data = datasets.open(&info).unwrap();
        let all = |value: &dyn Fn(&Row) -> Vec<u8>| complete.iter().flat_map(|row| value(row)).collect::<Vec<u8>>();
        prop_assert_eq!(
            data.column("number").unwrap(),
            all(&|row| i32::from(row.number.unwrap()).to_le_bytes().to_vec())
        );
        prop_assert_eq!(data.column("float").unwrap(), all(&|row| (row.float.unwrap() as f32).to_le_bytes().to_vec()));
        prop_assert_eq!(data.column("class").unwrap(), all(&|row| vec![row.class.unwrap() as u8]));
        prop_assert_eq!(&data.field("class").unwrap().classes, &CLASSES);
        prop_assert_eq!(data.column("truth").unwrap(), all(&|row| vec![u8::from(row.truth)]));
        prop_assert_eq!(
            data.column("list").unwrap(),
            all(&|row| row.list.iter().flat_map(|value| value.to_le_bytes()).collect())
        );
        let width = data.field("text").unwrap().item.shape.elements();
        let padded = all(&|row| {
            let mut text = row.text.clone().unwrap().into_bytes();
            text.resize(width, 0);
            text
        });
        prop_assert_eq!(data.column("text").unwrap(), padded);
    }
}
