//! Parses the part of the ONNX format that cases need: the names of a model's inputs and outputs, and whole tensors.
//!
//! It is separate from the plugin's parser, so that the tests compare two implementations. Source: `onnx.proto3`.

use saggar_tensor::interp::float16;
use saggar_tensor::{DType, Descriptor, Shape};

/// A field of a message.
enum ProtobufField<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message, with their numbers.
fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, ProtobufField<'_>)>, String> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let field = match key & 7 {
            0 => ProtobufField::Number(varint(&mut bytes)?),
            1 => ProtobufField::Bytes(take_bytes(&mut bytes, 8)?),
            2 => {
                let length = varint(&mut bytes)?;
                ProtobufField::Bytes(take_bytes(&mut bytes, length as usize)?)
            }
            5 => ProtobufField::Bytes(take_bytes(&mut bytes, 4)?),
            wire => return Err(format!("a field of wire type {wire}")),
        };
        fields.push((key >> 3, field));
    }
    Ok(fields)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let Some((&byte, rest)) = bytes.split_first() else { return Err("the file ends in a number".to_owned()) };
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number of more than 64 bits".to_owned())
}

fn take_bytes<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], String> {
    let (field_bytes, rest) = bytes.split_at_checked(count).ok_or("the file ends in a field")?;
    *bytes = rest;
    Ok(field_bytes)
}

/// Appends the integers of a repeated field, which is packed or not.
fn numbers(field: &ProtobufField<'_>, into: &mut Vec<i64>) -> Result<(), String> {
    match field {
        ProtobufField::Number(number) => into.push(*number as i64),
        ProtobufField::Bytes(packed) => {
            let mut packed = *packed;
            while !packed.is_empty() {
                into.push(varint(&mut packed)? as i64);
            }
        }
    }
    Ok(())
}

/// Returns the names of a model's inputs without initializers, and of its outputs.
///
/// # Errors
/// Returns what violates the format.
pub(super) fn ports(model: &[u8]) -> Result<(Vec<String>, Vec<String>), String> {
    let [mut inputs, mut outputs, mut initializers] = [const { Vec::new() }; 3];
    for (_, graph) in fields(model)?.iter().filter(|(number, _)| *number == 7) {
        for (number, field) in fields(bytes(graph)?)? {
            match number {
                5 => initializers.push(text(&field, 8)?),
                11 => inputs.push(text(&field, 1)?),
                12 => outputs.push(text(&field, 1)?),
                _ => {}
            }
        }
    }
    inputs.retain(|name| !initializers.contains(name));
    Ok((inputs, outputs))
}

/// Returns the text in this field of a message.
fn text(message: &ProtobufField<'_>, number: u64) -> Result<String, String> {
    let found = fields(bytes(message)?)?.into_iter().find(|(found, _)| *found == number);
    let text = found.map(|(_, field)| bytes(&field).map(<[u8]>::to_vec)).transpose()?.unwrap_or_default();
    String::from_utf8(text).map_err(|error| error.to_string())
}

fn bytes<'a>(field: &ProtobufField<'a>) -> Result<&'a [u8], String> {
    match field {
        ProtobufField::Bytes(bytes) => Ok(bytes),
        ProtobufField::Number(_) => Err("a number where a message must be".to_owned()),
    }
}

/// Returns a tensor's descriptor and its dense little-endian bytes.
///
/// # Errors
/// Returns what violates the format, or an unsupported data type.
pub(super) fn tensor(file: &[u8]) -> Result<(Descriptor, Vec<u8>), String> {
    let (mut kind, mut dims, mut integers, mut floats, mut raw) = (0, Vec::new(), Vec::new(), Vec::new(), None);
    for (number, field) in fields(file)? {
        match (number, &field) {
            (1, _) => numbers(&field, &mut dims)?,
            (2, ProtobufField::Number(number)) => kind = *number,
            (4, ProtobufField::Bytes(bytes)) => floats.extend_from_slice(bytes),
            (5 | 7 | 11, _) => numbers(&field, &mut integers)?,
            (9, ProtobufField::Bytes(bytes)) => raw = Some(bytes.to_vec()),
            _ => {}
        }
    }
    let dtype = match kind {
        1 => DType::F32,
        2 | 9 => DType::U8,
        3 => DType::I8,
        6 => DType::I32,
        7 => DType::I64,
        10 => DType::F16,
        12 => DType::U32,
        13 => DType::U64,
        kind => return Err(format!("elements of type {kind}")),
    };
    let dims: Vec<usize> = dims.into_iter().map(|dim| dim as usize).collect();
    let shape = Shape::new(dims).map_err(|error| error.to_string())?;
    let descriptor = Descriptor::new(dtype, shape);
    let dense = match (raw, dtype) {
        (Some(raw), _) => raw,
        (None, DType::F32) => floats,
        (None, _) => integers.iter().flat_map(|number| number.to_le_bytes()[..dtype.bytes()].to_vec()).collect(),
    };
    if dense.len() == descriptor.bytes() {
        return Ok((descriptor, dense));
    }
    Err(format!("{descriptor} in {} bytes", dense.len()))
}

/// Returns the elements, for comparisons and options.
pub(super) fn elements(dtype: DType, dense: &[u8]) -> Vec<f64> {
    let number = |bytes: &[u8]| {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        match dtype {
            DType::F32 => f64::from(f32::from_bits(u64::from_le_bytes(wide) as u32)),
            DType::F16 => float16::from_bits(u64::from_le_bytes(wide) as u16),
            DType::I64 => i64::from_le_bytes(wide) as f64,
            DType::U64 | DType::U32 | DType::U8 => u64::from_le_bytes(wide) as f64,
            DType::I32 => f64::from(u64::from_le_bytes(wide) as i32),
            DType::I8 => f64::from(u64::from_le_bytes(wide) as i8),
        }
    };
    dense.chunks_exact(dtype.bytes()).map(number).collect()
}
