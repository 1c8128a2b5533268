//! Writes a window as a folder of `.npy` files with a description, from which datasets are read.
//!
//! Source: NumPy, `numpy.lib.format`, version 1.0.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use saggar_tensor::DType;
use serde::Serialize;

use super::window::RecordingWindow;

#[derive(Serialize)]
struct FolderDescription<'a> {
    format: &'static str,
    description: String,
    fields: Vec<FieldDescription<'a>>,
}

#[derive(Serialize)]
struct FieldDescription<'a> {
    name: &'a str,
    file: String,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    classes: &'a [String],
}

/// Writes the rows of a window to an empty folder.
pub(super) fn write_folder(folder: &Path, model: &str, window: &RecordingWindow) -> io::Result<()> {
    let mut described = Vec::new();
    for (at, field) in window.fields().iter().enumerate() {
        let file = format!("{at}.npy");
        let dims = std::iter::once(window.row_count()).chain(field.item.shape.dims().iter().copied());
        let mut writer = BufWriter::new(std::fs::File::create(folder.join(&file))?);
        writer.write_all(&header(field.item.dtype, dims))?;
        window.column(at).try_for_each(|bytes| writer.write_all(bytes))?;
        writer.flush()?;
        described.push(FieldDescription { name: &field.name, file, classes: &field.classes });
    }
    let description = format!("predictions of {model}, recorded");
    let description = FolderDescription { format: "npy", description, fields: described };
    let text = serde_json::to_vec(&description).map_err(io::Error::other)?;
    std::fs::write(folder.join("dataset.json"), text)
}

fn header(dtype: DType, dims: impl Iterator<Item = usize>) -> Vec<u8> {
    let kind = match dtype {
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::U32 => "<u4",
        DType::I32 => "<i4",
        DType::U64 => "<u8",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
    };
    let shape: String = dims.map(|dim| format!("{dim}, ")).collect();
    let mut text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    // Magic, version, length, text and the newline end at a multiple of 64.
    let used = 10 + text.len() + 1;
    text.extend(std::iter::repeat_n(' ', used.next_multiple_of(64) - used));
    text.push('\n');
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    [b"\x93NUMPY\x01\x00", &length.to_le_bytes()[..], text.as_bytes()].concat()
}
