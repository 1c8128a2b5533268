//! Files of named tensors in the safetensors format, as far as `tensors.py` writes it. A tensor is read when it is
//! requested.
//!
//! Source: <https://huggingface.co/docs/safetensors>, "Format".

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use saggar_tensor::interp::InterpTensor;
use saggar_tensor::{DType, Descriptor, Shape};
use serde_json::Value as Json;

/// An open file.
#[derive(Debug)]
pub(crate) struct SafetensorsFile {
    file: File,
    /// Descriptor and byte offset of each tensor.
    places: BTreeMap<String, (Descriptor, u64)>,
    /// Numbers that cannot be derived from shapes.
    numbers: Json,
}

impl SafetensorsFile {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// Returns an error if the file does not exist or has another format.
    pub(crate) fn open(path: &Path) -> Result<SafetensorsFile, String> {
        let wrong = |reason: String| format!("{}: {reason}", path.display());
        let mut file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(|error| wrong(error.to_string()))?;
        let length = u64::from_le_bytes(length);
        let mut header = Vec::new();
        (&mut file).take(length).read_to_end(&mut header).map_err(|error| wrong(error.to_string()))?;
        let mut header: BTreeMap<String, Json> =
            serde_json::from_slice(&header).map_err(|error| wrong(error.to_string()))?;
        let numbers = header.remove("__metadata__").unwrap_or_default();
        let mut places = BTreeMap::new();
        for (name, it) in header {
            let place = parse_entry(&it, 8 + length).ok_or_else(|| wrong(format!("{name} is {it}")))?;
            places.insert(name, place);
        }
        Ok(SafetensorsFile { file, places, numbers })
    }

    /// Returns the descriptor of a tensor, or `None` if the file lacks it.
    pub(crate) fn descriptor(&self, name: &str) -> Option<&Descriptor> {
        self.places.get(name).map(|(descriptor, _)| descriptor)
    }

    /// Returns all numbers of a tensor.
    ///
    /// # Errors
    /// Returns an error if the file lacks the tensor or cannot be read.
    pub(crate) fn all_numbers(&self, name: &str) -> Result<Vec<f32>, String> {
        let bytes = self.bytes(name)?.ok_or_else(|| format!("no {name}"))?;
        to_floats(&self.places[name].0, &bytes)
    }

    /// Returns a number of the network from the file's metadata, where the Python modules' `metadata` stores it.
    pub(crate) fn metadata_number(&self, name: &str) -> usize {
        let number = self.numbers[name].as_str().and_then(|text| text.parse().ok());
        number.unwrap_or_else(|| panic!("the peer writes {name}"))
    }

    /// Returns the number of modules in a list.
    pub(crate) fn module_count(&self, list: &str) -> usize {
        let number = |name: &String| name.strip_prefix(list)?.strip_prefix('.')?.split('.').next()?.parse().ok();
        self.places.keys().filter_map(number).max().map_or(0, |last: usize| last + 1)
    }

    /// Returns a tensor's bytes, or `None` if the file lacks it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub(crate) fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let Some((descriptor, begin)) = self.places.get(name) else { return Ok(None) };
        let mut bytes = vec![0; descriptor.bytes()];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(*begin)).map_err(|error| error.to_string())?;
        file.read_exact(&mut bytes).map_err(|error| format!("{name}: {error}"))?;
        Ok(Some(bytes))
    }
}

fn parse_entry(it: &Json, data: u64) -> Option<(Descriptor, u64)> {
    let dtype = match it["dtype"].as_str()? {
        "F32" => DType::F32,
        "F16" => DType::F16,
        "I32" => DType::I32,
        _ => return None,
    };
    let dims: Option<Vec<usize>> = it["shape"].as_array()?.iter().map(|dim| dim.as_u64()?.try_into().ok()).collect();
    Some((Descriptor::new(dtype, Shape::new(dims?).ok()?), data + it["data_offsets"][0].as_u64()?))
}

/// Returns the numbers in the bytes of a `float32` tensor.
pub(crate) fn float32_from_bytes(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Returns the numbers in the bytes of a tensor of any type.
///
/// # Errors
/// Returns an error if the bytes do not fit the descriptor.
pub(crate) fn to_floats(descriptor: &Descriptor, bytes: &[u8]) -> Result<Vec<f32>, String> {
    if descriptor.dtype == DType::F32 {
        return Ok(float32_from_bytes(bytes));
    }
    let value = InterpTensor::from_bytes(descriptor.clone(), bytes).map_err(|error| error.to_string())?;
    Ok(value.to_f64_numbers().into_iter().map(|number| number as f32).collect())
}

/// Checks that `ours` differs from `theirs` by at most `tolerance` times its largest number.
///
/// # Errors
/// Returns the difference.
pub(crate) fn check_close(ours: &[f32], theirs: &[f32], tolerance: f32) -> Result<(), String> {
    if ours.len() != theirs.len() {
        return Err(format!("{} numbers instead of {}", ours.len(), theirs.len()));
    }
    let largest = theirs.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let error = ours.iter().zip(theirs).fold(0.0_f32, |error, (a, b)| error.max((a - b).abs()));
    let finite = ours.iter().chain(theirs).all(|x| x.is_finite());
    if finite && error <= tolerance * largest {
        return Ok(());
    }
    Err(format!("the results differ by {error:e}; the largest number is {largest:e}"))
}
