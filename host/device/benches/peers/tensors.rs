//! Files of named tensors: the safetensors format, as far as `tensors.py` writes it. A tensor is read when it
//! is asked for.
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
    /// What each tensor is, and where it begins.
    places: BTreeMap<String, (Descriptor, u64)>,
    /// Numbers that shapes do not tell.
    numbers: Json,
}

impl SafetensorsFile {
    /// # Errors
    /// There is no such file, or it is of another format.
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

    /// What a tensor is, if it is there.
    pub(crate) fn descriptor(&self, name: &str) -> Option<&Descriptor> {
        self.places.get(name).map(|(descriptor, _)| descriptor)
    }

    /// All numbers of a tensor.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub(crate) fn all_numbers(&self, name: &str) -> Result<Vec<f32>, String> {
        let bytes = self.bytes(name)?.ok_or_else(|| format!("no {name}"))?;
        to_floats(&self.places[name].0, &bytes)
    }

    /// A number of the network, as the modules' `metadata` has it.
    pub(crate) fn metadata_number(&self, name: &str) -> usize {
        let number = self.numbers[name].as_str().and_then(|text| text.parse().ok());
        number.unwrap_or_else(|| panic!("the peer writes {name}"))
    }

    /// How many modules of a list there are.
    pub(crate) fn module_count(&self, list: &str) -> usize {
        let number = |name: &String| name.strip_prefix(list)?.strip_prefix('.')?.split('.').next()?.parse().ok();
        self.places.keys().filter_map(number).max().map_or(0, |last: usize| last + 1)
    }

    /// A tensor's bytes, if it is there.
    ///
    /// # Errors
    /// It cannot be read.
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

/// The numbers of a `float32` tensor's bytes.
pub(crate) fn float32_from_bytes(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The numbers of a tensor's bytes, of any type.
///
/// # Errors
/// The bytes are not the tensor's.
pub(crate) fn to_floats(descriptor: &Descriptor, bytes: &[u8]) -> Result<Vec<f32>, String> {
    if descriptor.dtype == DType::F32 {
        return Ok(float32_from_bytes(bytes));
    }
    let value = InterpTensor::from_bytes(descriptor.clone(), bytes).map_err(|error| error.to_string())?;
    Ok(value.to_f64_numbers().into_iter().map(|number| number as f32).collect())
}

/// Refuses what differs from `theirs` by more than `tolerance` of its largest number.
///
/// # Errors
/// By how much they differ.
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
    Err(format!("the results differ: by {error:e} where the largest number is {largest:e}"))
}
