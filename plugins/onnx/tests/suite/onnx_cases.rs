//! The ONNX project's own test cases, from the folders in `ONNX_CASES`. Each case is a model with inputs and outputs.
//!
//! The folders are separated by a colon and have the layout of `onnx/backend/test/data` of the Python package `onnx`.
//! Each model is imported, and the graph of its configuration is built and run. The outputs are compared with those of
//! the case.
#![allow(clippy::print_stdout, reason = "how many cases passed is what the run is for")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::interpreter::{InterpreterBackend, TestWeightStore};
use onnx::elem::ElementType;
use onnx::error::{Error, OnnxErrorKind};
use onnx::import::{build, import, restore};
use onnx::model::OnnxModel;
use onnx::proto::TensorProto;
use onnx::tensor::{self, ElementLocation};
use prost::Message;
use saggar_plugin::{Json, Params};
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::{DType, Descriptor, Shape};

/// A tensor of a case.
struct OnnxCaseTensor {
    elem: ElementType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

enum CaseOutcome {
    Passed,
    /// The case passed with some inputs fixed as constants.
    PassedFixed,
    Unsupported(String),
    Wrong(String),
    /// The case has values that are not supported tensors.
    Skipped,
}

fn read_case_tensor(path: &Path) -> Result<OnnxCaseTensor, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let tensor = TensorProto::decode(&*bytes).map_err(|error| error.to_string())?;
    let stored = tensor::read_tensor(&tensor, false).map_err(|error| error.to_string())?;
    match stored.place {
        ElementLocation::Bytes(bytes) => {
            Ok(OnnxCaseTensor { elem: stored.elem, shape: stored.shape, bytes: bytes.into_owned() })
        }
        ElementLocation::Variable(_) => Err("a variable".to_owned()),
    }
}

impl OnnxCaseTensor {
    fn value(&self) -> InterpTensor {
        let dtype = match self.elem {
            ElementType::Float32 => DType::F32,
            ElementType::Float16 => DType::F16,
            ElementType::Int64 => DType::I64,
            ElementType::Uint64 => DType::U64,
            ElementType::Int32 => DType::I32,
            ElementType::Uint32 => DType::U32,
            ElementType::Int8 => DType::I8,
            ElementType::Uint8 | ElementType::Bool => DType::U8,
            ElementType::Float64 => panic!("float64 is no type of the host"),
        };
        let shape = Shape::new(self.shape.clone()).expect("cases are small");
        InterpTensor::from_bytes(Descriptor::new(dtype, shape), &self.bytes).expect("reading has checked the length")
    }

    fn json(&self) -> Json {
        fn nested(shape: &[usize], numbers: &mut impl Iterator<Item = f64>) -> Json {
            match shape {
                [] => Json::Number(numbers.next().expect("there are as many as the shape says")),
                [n, rest @ ..] => Json::Array((0..*n).map(|_| nested(rest, numbers)).collect()),
            }
        }
        nested(&self.shape, &mut self.value().to_f64_numbers().into_iter())
    }

    /// Returns the first difference between the value and the expected tensor.
    fn difference(&self, value: &InterpTensor) -> Option<String> {
        if value.descriptor().shape.dims() != self.shape {
            return Some(format!("shape {} is not {:?}", value.descriptor().shape, self.shape));
        }
        let expected = self.value();
        if expected.descriptor().dtype != value.descriptor().dtype {
            return Some(format!("type {} is not {:?}", value.descriptor().dtype, self.elem));
        }
        let (rtol, atol) = if self.elem == ElementType::Float16 { (1e-2, 1e-3) } else { (1e-3, 1e-7) };
        for (i, (&got, &want)) in value.to_f64_numbers().iter().zip(&expected.to_f64_numbers()).enumerate() {
            let close =
                got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= atol + rtol * want.abs();
            if !close {
                return Some(format!("element {i} is {got} and not {want}"));
            }
        }
        None
    }
}

/// Reads the inputs or outputs of one data set, in order.
fn read_case_tensors(folder: &Path, what: &str, count: usize) -> Result<Vec<OnnxCaseTensor>, String> {
    (0..count).map(|i| read_case_tensor(&folder.join(format!("{what}_{i}.pb")))).collect()
}

fn check_case(case: &Path) -> CaseOutcome {
    let Ok(file) = fs::read(case.join("model.onnx")) else { return CaseOutcome::Skipped };
    let model = match OnnxModel::parse(&file, false) {
        Ok(model) => model,
        Err(error) => return CaseOutcome::Unsupported(error.to_string()),
    };
    let graph = model.graph();
    let free: Vec<String> = graph
        .input
        .iter()
        .filter(|input| graph.initializer.iter().all(|tensor| tensor.name != input.name))
        .map(|input| input.name.clone())
        .collect();
    let outputs: Vec<String> = graph.output.iter().map(|output| output.name.clone()).collect();
    let mut fixed_any = false;
    for set in 0.. {
        let folder = case.join(format!("test_data_set_{set}"));
        if !folder.exists() {
            return match (set, fixed_any) {
                (0, _) => CaseOutcome::Skipped,
                (_, true) => CaseOutcome::PassedFixed,
                (_, false) => CaseOutcome::Passed,
            };
        }
        let (inputs, expected) = match (
            read_case_tensors(&folder, "input", free.len()),
            read_case_tensors(&folder, "output", outputs.len()),
        ) {
            (Ok(inputs), Ok(expected)) => (inputs, expected),
            (Err(error), _) | (_, Err(error)) => return CaseOutcome::Unsupported(format!("data: {error}")),
        };
        if inputs.iter().chain(&expected).any(|given| given.elem == ElementType::Float64) {
            return CaseOutcome::Unsupported("data: elements of type float64".to_owned());
        }
        match run_case(&file, &free, inputs, &expected) {
            Ok(fixed) => fixed_any |= fixed,
            Err(outcome) => return outcome,
        }
        let again = read_case_tensors(&folder, "input", free.len()).unwrap_or_default();
        if let Err(outcome) = run_with_fixed_inputs(&file, &free, again, &expected) {
            return outcome;
        }
    }
    CaseOutcome::Passed
}

/// Imports the model with every input fixed, so that the importer folds all that it can, and compares again.
fn run_with_fixed_inputs(
    file: &[u8],
    names: &[String],
    inputs: Vec<OnnxCaseTensor>,
    expected: &[OnnxCaseTensor],
) -> Result<(), CaseOutcome> {
    let finite = |given: &OnnxCaseTensor| given.value().to_f64_numbers().iter().all(|number| number.is_finite());
    let few = |given: &OnnxCaseTensor| given.shape.iter().product::<usize>() <= 1024;
    if !inputs.iter().all(|given| finite(given) && few(given)) {
        return Ok(());
    }
    let inputs: BTreeMap<String, OnnxCaseTensor> = names.iter().cloned().zip(inputs).collect();
    let mut variables = TestWeightStore::default();
    match import(file, &options(&inputs, names), &mut variables) {
        Ok(config) => run(&config, &variables, &inputs, expected),
        Err(error) => Err(CaseOutcome::Wrong(format!("with inputs fixed: {error}"))),
    }
}

/// Imports the model, at first with no input fixed, and runs it. Returns whether inputs had to be fixed.
fn run_case(
    file: &[u8],
    names: &[String],
    inputs: Vec<OnnxCaseTensor>,
    expected: &[OnnxCaseTensor],
) -> Result<bool, CaseOutcome> {
    let inputs: BTreeMap<String, OnnxCaseTensor> = names.iter().cloned().zip(inputs).collect();
    let mut fixed: Vec<String> = Vec::new();
    loop {
        let mut variables = TestWeightStore::default();
        match import(file, &options(&inputs, &fixed), &mut variables) {
            Ok(config) => {
                run(&config, &variables, &inputs, expected)?;
                return Ok(!fixed.is_empty());
            }
            Err(error) => match fix_next_input(&error, &inputs, &mut fixed) {
                true => {}
                false => return Err(CaseOutcome::Unsupported(error.to_string())),
            },
        }
    }
}

/// Fixes the input that must be known. If the value is computed, fixes all integer inputs.
fn fix_next_input(error: &Error, inputs: &BTreeMap<String, OnnxCaseTensor>, fixed: &mut Vec<String>) -> bool {
    let OnnxErrorKind::NotKnown { name, .. } = &error.fault else { return false };
    let before = fixed.len();
    if inputs.contains_key(name) && !fixed.contains(name) {
        fixed.push(name.clone());
        return true;
    }
    for (name, given) in inputs {
        let few = given.shape.iter().product::<usize>() <= 64;
        if !given.elem.is_float() && few && !fixed.contains(name) {
            fixed.push(name.clone());
        }
    }
    fixed.len() > before
}

fn options(inputs: &BTreeMap<String, OnnxCaseTensor>, fixed: &[String]) -> Params {
    let shapes = inputs.iter().filter(|(name, _)| !fixed.contains(name)).map(|(name, given)| {
        (name.clone(), Json::Array(given.shape.iter().map(|&dim| Json::Number(dim as f64)).collect()))
    });
    let constants = fixed.iter().map(|name| (name.clone(), inputs[name].json()));
    Params::new().with("shapes", Json::Object(shapes.collect())).with("constants", Json::Object(constants.collect()))
}

fn run(
    config: &Params,
    variables: &TestWeightStore,
    inputs: &BTreeMap<String, OnnxCaseTensor>,
    expected: &[OnnxCaseTensor],
) -> Result<(), CaseOutcome> {
    let wrong = |error: Error| CaseOutcome::Wrong(error.to_string());
    let config = Params::parse(&config.to_string()).map_err(|error| CaseOutcome::Wrong(error.to_string()))?;
    let (model, plan) = restore(&config).map_err(wrong)?;
    let mut backend = InterpreterBackend::default();
    let batch = plan.batch.first().copied();
    let outputs = build(&model, &plan.inputs, batch, &mut backend).map_err(wrong)?.outputs;
    for (port, (_, operand)) in plan.outputs.iter().zip(&outputs) {
        assert_eq!(port.shape(batch), *operand.shape, "{}", port.name);
    }
    let values: BTreeMap<String, InterpTensor> =
        inputs.iter().map(|(name, given)| (name.clone(), given.value())).collect();
    let results = backend.run(&outputs, &values, &variables.0).map_err(wrong)?;
    for ((name, _), (value, want)) in outputs.iter().zip(results.iter().zip(expected)) {
        if let Some(difference) = want.difference(value) {
            return Err(CaseOutcome::Wrong(format!("output `{name}`: {difference}")));
        }
    }
    Ok(())
}

/// Returns the words of a message that the case is counted under: the unsupported operator or type.
fn unsupported_reason(message: &str) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    for marker in ["operator", "type"] {
        if let Some(i) = words.iter().position(|word| *word == marker)
            && let Some(word) = words.get(i + 1)
        {
            return format!("{marker} {word}");
        }
    }
    message.chars().take(150).collect()
}

/// Returns whether a case only has types that every device supports.
fn has_common_types_only(case: &Path) -> bool {
    let Ok(file) = fs::read(case.join("model.onnx")) else { return false };
    let Ok(model) = onnx::proto::ModelProto::decode(&*file) else { return false };
    let Some(graph) = model.graph else { return false };
    let of_ports =
        graph.input.iter().chain(&graph.output).map(|port| {
            port.r#type.as_ref().and_then(|of| of.tensor_type.as_ref()).map_or(0, |tensor| tensor.elem_type)
        });
    of_ports.chain(graph.initializer.iter().map(|tensor| tensor.data_type)).all(|number| [1, 6, 7, 9].contains(&number))
}

#[derive(Default)]
struct CaseTally {
    passed: usize,
    fixed: usize,
    unsupported: usize,
    wrong: usize,
    skipped: usize,
}

#[test]
fn the_onnx_backend_test_cases_pass() {
    let Some(folders) = std::env::var_os("ONNX_CASES") else {
        println!("SKIP: ONNX_CASES names no folder");
        return;
    };
    let wrong: usize = std::env::split_paths(&folders).map(|folder| check_folder(&folder)).sum();
    assert_eq!(wrong, 0);
}

/// Runs the cases of a folder, prints how many passed, and returns how many were wrong.
fn check_folder(root: &Path) -> usize {
    println!("{}", root.display());
    let only = std::env::var("ONNX_ONLY").unwrap_or_default();
    let mut cases: Vec<PathBuf> = ["node", "simple", "pytorch-converted", "pytorch-operator"]
        .iter()
        .filter_map(|kind| fs::read_dir(root.join(kind)).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().contains(&only))
        .collect();
    cases.sort();
    assert!(!cases.is_empty() || !only.is_empty(), "{} holds no cases", root.display());
    let mut tallies = [CaseTally::default(), CaseTally::default()];
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for case in &cases {
        let name = case.file_name().expect("a case is a folder").to_string_lossy().into_owned();
        let tally = &mut tallies[usize::from(!has_common_types_only(case))];
        match check_case(case) {
            CaseOutcome::Passed => tally.passed += 1,
            CaseOutcome::PassedFixed => {
                tally.passed += 1;
                tally.fixed += 1;
            }
            CaseOutcome::Unsupported(message) => {
                tally.unsupported += 1;
                if !only.is_empty() || std::env::var_os("ONNX_VERBOSE").is_some() {
                    println!("unsupported {name}: {message}");
                }
                *reasons.entry(unsupported_reason(&message)).or_default() += 1;
            }
            CaseOutcome::Wrong(message) => {
                tally.wrong += 1;
                println!("WRONG {name}: {message}");
            }
            CaseOutcome::Skipped => tally.skipped += 1,
        }
    }
    let mut sorted: Vec<_> = reasons.into_iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    sorted.iter().for_each(|(reason, count)| println!("{count:5} {reason}"));
    for (kind, t) in ["float32, int32, int64, bool", "other types"].iter().zip(&tallies) {
        println!(
            "{kind}: {} passed ({} with inputs fixed), {} unsupported, {} wrong, {} skipped",
            t.passed, t.fixed, t.unsupported, t.wrong, t.skipped
        );
    }
    tallies[0].wrong + tallies[1].wrong
}
