//! Reads a folder of ONNX cases: each case is a folder with a model and data sets of inputs and outputs.

use std::fs;
use std::path::{Path, PathBuf};

use saggar_tensor::{DType, Descriptor};
use serde_json::{Value, json};

use super::proto;

/// A tensor of a data set.
#[derive(Clone, Debug)]
pub(super) struct ConformanceTensor {
    pub(super) name: String,
    pub(super) descriptor: Descriptor,
    pub(super) bytes: Vec<u8>,
}

impl ConformanceTensor {
    /// Returns the elements as nested arrays.
    pub(super) fn json(&self) -> Value {
        let mut numbers = proto::elements(self.descriptor.dtype, &self.bytes).into_iter();
        nested_json(self.descriptor.shape.dims(), self.descriptor.dtype, &mut numbers)
    }

    /// Returns the first difference of a result, or `None` if it is within the tolerance of the ONNX project's test
    /// runner.
    pub(super) fn difference_from(&self, descriptor: &Descriptor, bytes: &[u8]) -> Option<String> {
        if self.descriptor != *descriptor {
            return Some(format!("{descriptor} is not {}", self.descriptor));
        }
        let (rtol, atol) = if descriptor.dtype == DType::F16 { (1e-2, 1e-3) } else { (1e-3, 1e-7) };
        let near = |got: f64, want: f64| {
            got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= atol + rtol * want.abs()
        };
        let (got, want) = (proto::elements(descriptor.dtype, bytes), proto::elements(descriptor.dtype, &self.bytes));
        let at = got.iter().zip(&want).position(|(&got, &want)| !near(got, want))?;
        Some(format!("element {at} is {} and not {}", got[at], want[at]))
    }
}

fn nested_json(dims: &[usize], dtype: DType, numbers: &mut impl Iterator<Item = f64>) -> Value {
    match dims {
        [] if dtype.is_float() => json!(numbers.next()),
        [] => json!(numbers.next().map(|number| number as i64)),
        [count, inner @ ..] => Value::Array((0..*count).map(|_| nested_json(inner, dtype, numbers)).collect()),
    }
}

/// A model with its inputs and expected outputs, once for each data set.
#[derive(Clone, Debug)]
pub(super) struct OnnxCase {
    pub(super) model: Vec<u8>,
    pub(super) sets: Vec<(Vec<ConformanceTensor>, Vec<ConformanceTensor>)>,
}

/// Returns the folders of cases whose path contains `only`, sorted.
///
/// # Errors
/// Returns an error if no case is found.
pub(super) fn case_folders(root: &Path, only: &str) -> Result<Vec<PathBuf>, String> {
    let mut folders: Vec<PathBuf> = ["node", "simple", "pytorch-converted", "pytorch-operator"]
        .iter()
        .filter_map(|kind| fs::read_dir(root.join(kind)).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("test_data_set_0").is_dir() && path.to_string_lossy().contains(only))
        .collect();
    folders.sort();
    if folders.is_empty() { Err(format!("{} holds no cases", root.display())) } else { Ok(folders) }
}

/// Reads a case.
///
/// # Errors
/// Returns why the host cannot run it: unsupported data types, or sequences instead of tensors.
pub(super) fn read(folder: &Path) -> Result<OnnxCase, String> {
    let model = fs::read(folder.join("model.onnx")).map_err(|error| error.to_string())?;
    let (inputs, outputs) = proto::ports(&model)?;
    let mut sets = Vec::new();
    for at in 0.. {
        let set = folder.join(format!("test_data_set_{at}"));
        if !set.is_dir() {
            break;
        }
        sets.push((tensors(&set, "input", &inputs)?, tensors(&set, "output", &outputs)?));
    }
    Ok(OnnxCase { model, sets })
}

fn tensors(set: &Path, what: &str, names: &[String]) -> Result<Vec<ConformanceTensor>, String> {
    let read = |(at, name): (usize, &String)| {
        let file = fs::read(set.join(format!("{what}_{at}.pb"))).map_err(|error| error.to_string())?;
        let (descriptor, bytes) =
            proto::tensor(&file).map_err(|error| format!("data that is no tensor of the host: {error}"))?;
        Ok(ConformanceTensor { name: name.clone(), descriptor, bytes })
    };
    names.iter().enumerate().map(read).collect()
}
