//! Models with external data, in an archive as the host sends it.

use crate::interpreter::TestWeightStore;
use crate::test_models::small_network;
use onnx::import::import;
use onnx::proto::{ModelProto, StringStringEntryProto, TensorProto};
use prost::Message;
use saggar_plugin::Params;

/// Returns an archive member: a header of 512 bytes, the content, and zeros up to the next block. Source: POSIX ustar.
fn tar_entry(name: &str, size: &str, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[124..124 + size.len()].copy_from_slice(size.as_bytes());
    block[156] = b'0';
    block[257..263].copy_from_slice(b"ustar\0");
    block.extend_from_slice(content);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

fn tar_archive(model: &ModelProto, name: &str, content: &[u8]) -> Vec<u8> {
    let model = model.encode_to_vec();
    let size = |bytes: &[u8]| format!("{:011o}", bytes.len());
    let mut archive = tar_entry("model", &size(&model), &model);
    archive.extend(tar_entry(name, &size(content), content));
    archive.extend([0; 1024]);
    archive
}

fn set_external_location(tensor: &mut TensorProto, entries: &[(&str, &str)]) {
    tensor.raw_data = Vec::new();
    tensor.float_data = Vec::new();
    tensor.data_location = 1;
    let pair =
        |(key, value): &(&str, &str)| StringStringEntryProto { key: (*key).to_owned(), value: (*value).to_owned() };
    tensor.external_data = entries.iter().map(pair).collect();
}

/// Returns the network with the 72 bytes of its convolution's filter in `w.data`, after four other bytes.
fn model_with_external_filter(entries: &[(&str, &str)]) -> (ModelProto, Vec<u8>) {
    let mut model = small_network();
    let graph = model.graph.as_mut().expect("a network has a graph");
    let filter = graph.initializer.iter_mut().find(|tensor| tensor.name == "filter").expect("it has a filter");
    let elements: Vec<u8> = filter.float_data.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(elements.len(), 72);
    set_external_location(filter, entries);
    (model, [&[0; 4], &elements[..]].concat())
}

fn import_result(file: &[u8]) -> Result<(String, Vec<Vec<u8>>), String> {
    let mut variables = TestWeightStore::default();
    let config = import(file, &Params::new(), &mut variables).map_err(|error| error.to_string())?;
    let mut bytes: Vec<_> = variables.0.iter().map(|(name, value)| (name.clone(), value.to_bytes())).collect();
    bytes.sort();
    Ok((config.to_string(), bytes.into_iter().map(|(_, bytes)| bytes).collect()))
}

#[test]
fn external_tensors_give_the_same_import_as_inline_ones() {
    let (model, data) = model_with_external_filter(&[("location", "w.data"), ("offset", "4"), ("length", "72")]);
    let whole = import_result(&small_network().encode_to_vec());
    assert!(whole.is_ok(), "{whole:?}");
    assert_eq!(import_result(&tar_archive(&model, "w.data", &data)), whole);
    // Without a length, the elements extend to the end of the file.
    let (model, data) = model_with_external_filter(&[("location", "w.data"), ("offset", "4")]);
    assert_eq!(import_result(&tar_archive(&model, "w.data", &data)), whole);
}

#[test]
fn missing_or_short_external_files_are_named() {
    let refused = |entries: &[(&str, &str)], name: &str, expected: &str| {
        let (model, data) = model_with_external_filter(entries);
        let message = import_result(&tar_archive(&model, name, &data)).expect_err("it is refused");
        assert_eq!(message, format!("initializer `filter`: the model is not valid: {expected}"));
    };
    let location = ("location", "w.data");
    refused(&[location], "other.data", "its elements are in the file `w.data`, which was not sent");
    refused(
        &[location, ("offset", "8"), ("length", "72")],
        "w.data",
        "its elements are bytes 8 to 80 of `w.data`, which has 76 bytes",
    );
    refused(&[location, ("length", "8")], "w.data", "shape [2, 1, 3, 3] takes 72 bytes of elements, not 8");
    let far = u64::MAX.to_string();
    let end = format!("its elements are bytes {far} to {far} of `w.data`, which has 76 bytes");
    refused(&[location, ("offset", &far), ("length", "1")], "w.data", &end);
    refused(&[location, ("offset", "-4")], "w.data", "external_data `offset` must be a number of bytes, not `-4`");
    let (alone, _) = model_with_external_filter(&[location]);
    let message = import_result(&alone.encode_to_vec()).expect_err("it is refused");
    assert!(message.ends_with("its elements are in the file `w.data`, which was not sent"), "{message}");
}

#[test]
fn damaged_archives_are_refused() {
    let (model, data) = model_with_external_filter(&[("location", "w.data"), ("offset", "4")]);
    let whole = tar_archive(&model, "w.data", &data);
    for length in (263..whole.len()).step_by(97) {
        let _ = import_result(&whole[..length]);
    }
    for size in ["77777777777", "no number!!", "-1"] {
        let message = import_result(&tar_entry("model", size, b"x")).expect_err("it is refused");
        assert_eq!(message, "not an ONNX file: the archive of the model's files is damaged", "{size}");
    }
}
