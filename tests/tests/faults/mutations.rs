//! A short form of fuzzing: runs the fuzz targets' bodies on generated seeds and on thousands of mutations of them.
//!
//! Every run tries the same inputs. `make fuzz` continues from there, guided by code coverage, for any duration.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

#[path = "../../fuzz/bodies/bundle.rs"]
mod bundle;
#[path = "../../fuzz/bodies/compile.rs"]
mod compile;
#[path = "../../fuzz/bodies/dataset_files.rs"]
mod dataset_files;
#[path = "../../fuzz/bodies/dataset_seeds.rs"]
mod dataset_seeds;
#[path = "../../fuzz/bodies/infer_message.rs"]
mod infer_message;
#[path = "../../fuzz/bodies/predictions.rs"]
mod predictions;
#[path = "../../fuzz/bodies/safetensors.rs"]
mod safetensors;
#[path = "../../fuzz/bodies/tangles.rs"]
mod tangles;
#[path = "../../fuzz/bodies/verify.rs"]
mod verify;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ::safetensors::tensor::{Dtype, TensorView, serialize};
use saggar_store::models::bundle::ModelBundle;
use saggar_store::models::{ModelProvenance, ModelPublication};
use saggar_store::{ModelRegistry, SavedVariable, VariableKind};
use saggar_tensor::text::{parse, print};
use saggar_tensor::{DType, Descriptor, Shape};
use saggar_testgen::{CaseRng, high_fan_in_graph, primitive_cases, random_graph};

/// Mutated texts that are parsed and verified.
const TEXTS: usize = 20_000;
/// Mutated texts whose graphs are compiled, if they are still valid.
const PROGRAMS: usize = 8_000;
/// Generated graphs with many simultaneous reads.
const TANGLES: u64 = 200;
/// Mutated files of weights.
const FILES: usize = 20_000;
/// Mutated files of each format of datasets. Each is imported into a directory.
const DATASET_FILES: usize = 1_500;
/// Mutated bodies of prediction requests.
const BODIES: usize = 20_000;
/// Maximum changes to one seed.
const CHANGES_MAX: usize = 4;
/// Numbers, names and shapes that are edge cases for parsers.
const WORDS: [&str; 12] =
    ["0", "-1", "18446744073709551615", "2147483648", "1e39", "nan", "[", "]", ",", " ", "\n", "\u{fffd}"];

/// Returns a number below `end`.
fn random_below(random: &mut CaseRng, end: usize) -> usize {
    (random.float(0.0, end as f64) as usize).min(end.saturating_sub(1))
}

/// Returns a seed with a few changes: bytes replaced, words inserted, ranges removed, duplicated, or copied from
/// another seed.
fn mutate_seed(random: &mut CaseRng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[random_below(random, seeds.len())].clone();
    for _ in 0..=random_below(random, CHANGES_MAX) {
        let at = random_below(random, bytes.len() + 1);
        let end = (at + random_below(random, 24)).min(bytes.len());
        let with = match random_below(random, 5) {
            0 => vec![random_below(random, 256) as u8],
            1 => WORDS[random_below(random, WORDS.len())].as_bytes().to_vec(),
            2 => Vec::new(),
            3 => bytes[at..end].repeat(2),
            _ => {
                let other = &seeds[random_below(random, seeds.len())];
                let from = random_below(random, other.len());
                other[from..(from + 24).min(other.len())].to_vec()
            }
        };
        bytes.splice(at..end, with);
    }
    bytes
}

/// Runs a body and prints the input if it panics, so that it can be added as a test.
fn assert_no_panic(what: &str, input: &[u8], body: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        panic!("{what} panics on {:?}", String::from_utf8_lossy(input));
    }
}

/// Returns graphs as texts.
fn graph_texts() -> Vec<Vec<u8>> {
    let graphs = (0..60).map(random_graph).chain((0..20).map(high_fan_in_graph));
    primitive_cases(1).into_iter().chain(graphs).map(|case| print(case.builder.graph()).into_bytes()).collect()
}

#[test]
fn mutated_graph_texts_are_parsed_or_refused() {
    let (seeds, random) = (graph_texts(), &mut CaseRng::new(1));
    let mut graphs = 0;
    let inputs = seeds.iter().cloned().chain((0..TEXTS).map(|_| mutate_seed(random, &seeds))).collect::<Vec<_>>();
    for input in inputs {
        let Ok(text) = std::str::from_utf8(&input) else { continue };
        assert_no_panic("verify", &input, || verify::check(text));
        graphs += usize::from(parse(text).is_ok());
    }
    assert!(graphs > seeds.len(), "only {graphs} texts are graphs: no mutation reaches what follows the parser");
}

#[test]
fn verified_graphs_compile_to_equivalent_programs() {
    let (seeds, random) = (graph_texts(), &mut CaseRng::new(2));
    let inputs = seeds.iter().cloned().chain((0..PROGRAMS).map(|_| mutate_seed(random, &seeds))).collect::<Vec<_>>();
    for input in inputs {
        let Ok(text) = std::str::from_utf8(&input) else { continue };
        assert_no_panic("compile", &input, || compile::check(text));
    }
    for seed in 0..TANGLES {
        assert_no_panic("tangles", &seed.to_le_bytes(), || tangles::check(seed));
    }
}

/// Returns bundles: without weights, and with weights, metrics and a card.
fn bundle_files() -> Vec<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let models = ModelRegistry::new(directory.path());
    let kernel = SavedVariable {
        name: "kernel".to_owned(),
        kind: VariableKind::Statistic,
        descriptor: Descriptor::new(DType::F32, Shape::new([2, 3]).unwrap()),
        bytes: vec![7; 24].into(),
    };
    let plain = ModelPublication {
        model: "net",
        plugin: b"\0asm",
        variables: &[],
        config: "{}",
        inputs: Default::default(),
        source_job: "",
        created_ms: 1,
        metrics: BTreeMap::new(),
        card: None,
        provenance: ModelProvenance::default(),
    };
    let (variables, metrics) = ([kernel], BTreeMap::from([("loss".to_owned(), 0.5)]));
    let full = ModelPublication { variables: &variables, metrics, card: Some("# Card"), ..plain.clone() };
    let export = |it: &ModelPublication<'_>| {
        let files = saggar_store::models::verify(&models.publish(it).unwrap().dir).unwrap();
        let mut bytes = Vec::new();
        files.to_bundle("net").unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    };
    vec![export(&plain), export(&full)]
}

#[test]
fn mutated_bundles_are_refused_or_stored_unchanged() {
    let (seeds, random) = (bundle_files(), &mut CaseRng::new(6));
    let inputs = seeds.iter().cloned().chain((0..FILES).map(|_| mutate_seed(random, &seeds))).collect::<Vec<_>>();
    let mut accepted = 0;
    for input in inputs {
        accepted += usize::from(ModelBundle::read(&input.clone().into()).is_ok());
        assert_no_panic("bundle", &input, || bundle::check(&input));
    }
    assert!(accepted >= seeds.len(), "the seeds themselves are bundles");
}

#[test]
fn mutated_weight_files_are_read_or_refused() {
    let file = |tensors: &[(&str, Dtype, &[usize])]| {
        let bytes: Vec<Vec<u8>> = tensors
            .iter()
            .map(|(_, dtype, shape)| vec![7; shape.iter().product::<usize>() * dtype.bitsize() / 8])
            .collect();
        let views: BTreeMap<&str, TensorView<'_>> = tensors
            .iter()
            .zip(&bytes)
            .map(|((name, dtype, shape), bytes)| (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap()))
            .collect();
        serialize(views, None).unwrap()
    };
    let seeds = [
        file(&[]),
        file(&[("weight", Dtype::F32, &[3, 2])]),
        file(&[("a", Dtype::F16, &[2, 0]), ("b", Dtype::I64, &[]), ("c", Dtype::U8, &[5])]),
    ];
    let random = &mut CaseRng::new(3);
    let inputs = seeds.iter().cloned().chain((0..FILES).map(|_| mutate_seed(random, &seeds))).collect::<Vec<_>>();
    for input in inputs {
        assert_no_panic("safetensors", &input, || safetensors::check(&input));
    }
}

#[test]
fn mutated_dataset_files_are_imported_or_refused() {
    for (number, (target, seeds)) in dataset_seeds::all().into_iter().enumerate() {
        let body = match target {
            "dataset_csv" => dataset_files::check_csv,
            "dataset_json_lines" => dataset_files::check_json_lines,
            "dataset_parquet" => dataset_files::check_parquet,
            "dataset_arrow" => dataset_files::check_arrow,
            "dataset_npy" => dataset_files::check_npy,
            "dataset_npz" => dataset_files::check_npz,
            "dataset_webdataset" => dataset_files::check_webdataset,
            "images" => dataset_files::check_image,
            "dataset_description" => dataset_files::check_description,
            other => panic!("{other} has no body"),
        };
        let random = &mut CaseRng::new(10 + number as u64);
        let mut datasets = 0;
        let inputs = seeds.iter().cloned().chain((0..DATASET_FILES).map(|_| mutate_seed(random, &seeds)));
        for input in inputs.collect::<Vec<_>>() {
            assert_no_panic(target, &input, || datasets += usize::from(body(&input)));
        }
        assert!(datasets > 0, "{target}: no input is a dataset");
    }
}

#[test]
fn mutated_prediction_bodies_are_decoded_or_refused() {
    let seeds = [
        "[[1, 2.5], [-3e0, 0.125]]",
        "[[255, 0], [true, false], [\"cat\", 1]]",
        "[\"a\", \"\\u00e9\", [98, 0]]",
        "[[18446744073709551615, -9223372036854775808], [65504, NaN]]",
        r#"{"x": [3, 4], "scale": 2}"#,
        r#"{"input": {"x": [[1, 2]]}, "model": "m@1", "webhook": null}"#,
        r#"{"id": "1", "parameters": {"timeout": 5}, "outputs": [{"name": "y", "parameters": {"binary_data": true}}],
            "inputs": [{"data": [1, [2]], "name": "x", "shape": [1, 2], "datatype": "FP32"}]}"#,
        r#"{"inputs": [{"name": "x", "shape": [2], "datatype": "BYTES", "data": ["a", ["b"]]},
            {"name": "scale", "shape": [2], "datatype": "FP32", "data": [Infinity, 1]}]}"#,
        r#"{"signature_name": "serving_default", "instances": [{"x": [1, 2], "scale": 1e39}, {"x": [3, 4], "scale": 0}]}"#,
        r#"{"inputs": {"x": ["a", {"b64": "aGk="}]}}"#,
        r#"{"context": {"scale": 3}, "examples": [{"x": [1, 2]}, {"x": [[3], [4]]}]}"#,
    ]
    .map(|seed| seed.as_bytes().to_vec());
    let random = &mut CaseRng::new(4);
    let inputs = seeds.iter().cloned().chain((0..BODIES).map(|_| mutate_seed(random, &seeds))).collect::<Vec<_>>();
    for input in inputs {
        let Ok(text) = std::str::from_utf8(&input) else { continue };
        assert_no_panic("predictions", &input, || predictions::check(text));
    }
}

#[test]
fn mutated_infer_messages_are_decoded_or_refused() {
    // The model `m`, an input `x` of shape [1, 2] (or [1]), and its contents: each begins with its field's key and length.
    let input = |datatype: &str, shape: &[u8], contents: &[u8]| {
        let field = |key: u8, content: &[u8]| [&[key, content.len() as u8], content].concat();
        let contents = if contents.is_empty() { Vec::new() } else { field(0x2a, contents) };
        let tensor = [field(0x0a, b"x"), field(0x12, datatype.as_bytes()), field(0x1a, shape), contents].concat();
        [field(0x0a, b"m"), field(0x2a, &tensor)].concat()
    };
    let raw = |message: Vec<u8>, bytes: &[u8]| [&message, &[0x3a, bytes.len() as u8][..], bytes].concat();
    let seeds = [
        input("FP32", &[1, 2], b"\x32\x08\0\0\x80\x3f\0\0\0\x40"),
        input("INT8", &[1, 2], b"\x12\x0b\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        input("INT64", &[2, 2], b"\x1a\x04\x01\x02\x03\x04"),
        input("UINT64", &[1, 2], b"\x28\x01\x28\x02"),
        input("BOOL", &[1, 2], b"\x0a\x02\x01\0"),
        input("BYTES", &[1], b"\x42\x02hi"),
        raw(input("FP16", &[1, 2], b""), b"\0\x3c\0\x40"),
        raw(input("BYTES", &[2], b""), b"\x01\0\0\0a\0\0\0\0"),
    ];
    let random = &mut CaseRng::new(5);
    let inputs = seeds.iter().cloned().chain((0..BODIES).map(|_| mutate_seed(random, &seeds))).collect::<Vec<_>>();
    for input in inputs {
        assert_no_panic("infer_message", &input, || infer_message::check(&input));
    }
}
