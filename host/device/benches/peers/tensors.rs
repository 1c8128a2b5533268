//! Files of named tensors: the safetensors format, as far as `tensors.py` writes it. A tensor is read when it
//! is asked for.
//!
//! Source: <https://huggingface.co/docs/safetensors>, "Format".

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use saggar_tensor::{DType, Descriptor, Shape};
use serde_json::Value;

/// An open file.
#[derive(Debug)]
pub(crate) struct Tensors {
    file: File,
    /// What each tensor is, and where it begins.
    places: BTreeMap<String, (Descriptor, u64)>,
}

impl Tensors {
    /// # Errors
    /// There is no such file, or it is of another format.
    pub(crate) fn open(path: &Path) -> Result<Tensors, String> {
        let wrong = |reason: String| format!("{}: {reason}", path.display());
        let mut file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(|error| wrong(error.to_string()))?;
        let length = u64::from_le_bytes(length);
        let mut header = Vec::new();
        (&mut file).take(length).read_to_end(&mut header).map_err(|error| wrong(error.to_string()))?;
        let header: BTreeMap<String, Value> =
            serde_json::from_slice(&header).map_err(|error| wrong(error.to_string()))?;
        let mut places = BTreeMap::new();
        for (name, it) in header {
            let place = place(&it, 8 + length).ok_or_else(|| wrong(format!("{name} is {it}")))?;
            places.insert(name, place);
        }
        Ok(Tensors { file, places })
    }

    /// What a tensor is, if it is there.
    pub(crate) fn descriptor(&self, name: &str) -> Option<&Descriptor> {
        self.places.get(name).map(|(descriptor, _)| descriptor)
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

fn place(it: &Value, data: u64) -> Option<(Descriptor, u64)> {
    let dtype = match it["dtype"].as_str()? {
        "F32" => DType::F32,
        "I32" => DType::I32,
        _ => return None,
    };
    let dims: Option<Vec<usize>> = it["shape"].as_array()?.iter().map(|dim| dim.as_u64()?.try_into().ok()).collect();
    Some((Descriptor::new(dtype, Shape::new(dims?).ok()?), data + it["data_offsets"][0].as_u64()?))
}

/// The numbers of a `float32` tensor's bytes.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Refuses what differs from `theirs` by more than `tolerance` of its largest number.
///
/// # Errors
/// By how much they differ.
pub(crate) fn agree(ours: &[f32], theirs: &[f32], tolerance: f32) -> Result<(), String> {
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
