//! Parses the schema of a Parquet file: which columns a dataset can have, and the types of their values.
//!
//! A column is a number, bytes of a fixed length or a text, or a list of numbers, in any of the common encodings of
//! lists. Every other column, such as a structure, a map or a list of lists, is kept with the reason for refusing it,
//! which is reported if the column is selected.

use parquet::basic::Type as Physical;
use saggar_tensor::DType;

use super::super::table::{SchemaColumn, ValueKind};
use super::thrift::{CompactReader, ThriftResult};
use crate::limits::{DATASET_NAMES_MAX, PARQUET_NAME_BYTES_MAX, PARQUET_PAGE_BYTES_MAX};

/// Maximum nesting depth of groups.
const DEPTH_MAX: usize = 16;

/// A leaf column of the schema.
#[derive(Clone, Debug)]
pub(super) struct LeafColumn {
    /// The name of its field, or its path within one, and the type of its values.
    pub(super) column: SchemaColumn,
    pub(super) physical: Physical,
    /// Bytes of a fixed-length value, otherwise 0.
    pub(super) length: usize,
    /// The definition level of a value that is not null.
    pub(super) defined: i16,
    /// For a list, the minimum definition level at which it has elements.
    pub(super) list: Option<i16>,
}

impl LeafColumn {
    /// Returns whether the column is not a list.
    pub(super) fn is_flat(&self) -> bool {
        self.list.is_none() && self.column.kind.is_ok()
    }

    /// Returns the minimum bytes of a value in a file, if it is not in a dictionary.
    pub(super) fn encoded_bytes_min(&self) -> usize {
        match self.physical {
            Physical::BOOLEAN => 0,
            Physical::INT32 | Physical::FLOAT | Physical::BYTE_ARRAY => 4,
            Physical::INT64 | Physical::DOUBLE => 8,
            Physical::INT96 => 12,
            Physical::FIXED_LEN_BYTE_ARRAY => self.length,
        }
    }
}

/// `SchemaElement`: a node of the tree of fields, listed before its children.
#[derive(Debug, Default)]
pub(super) struct SchemaNode {
    name: String,
    physical: Option<i32>,
    length: i32,
    repetition: i32,
    children: usize,
    converted: Option<i32>,
    /// The kind of `LogicalType`.
    logical: Option<i16>,
    /// The bits of a logical integer, and whether it is signed.
    integer: (i8, bool),
}

const OPTIONAL: i32 = 1;
const REPEATED: i32 = 2;
const LIST_CONVERTED: i32 = 3;
const LIST_LOGICAL: i16 = 3;

impl SchemaNode {
    pub(super) fn read(reader: &mut CompactReader<'_>) -> ThriftResult<SchemaNode> {
        let mut node = SchemaNode::default();
        let mut name = None;
        reader.read_struct(|reader, field| {
            match field.id {
                1 => node.physical = Some(reader.i32(field)?),
                2 => node.length = reader.i32(field)?,
                3 => node.repetition = reader.i32(field)?,
                4 => name = Some(check_name(reader.text(field)?)?),
                5 => node.children = reader.count(field)? as usize,
                6 => node.converted = Some(reader.i32(field)?),
                10 => reader.read_nested_struct(field, |reader, field| {
                    node.logical = Some(field.id);
                    if field.id != INTEGER {
                        return Ok(false);
                    }
                    reader.read_nested_struct(field, |reader, field| {
                        match field.id {
                            1 => node.integer.0 = reader.i8(field)?,
                            2 => node.integer.1 = reader.bool(field)?,
                            _ => return Ok(false),
                        }
                        Ok(true)
                    })?;
                    Ok(true)
                })?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        node.name = name.ok_or("a field of its schema has no name")?;
        Ok(node)
    }

    fn is_list(&self) -> bool {
        self.logical == Some(LIST_LOGICAL) || self.converted == Some(LIST_CONVERTED)
    }
}

/// Returns a name if it is not too long: it is part of the names of all columns below it.
fn check_name(text: &str) -> ThriftResult<String> {
    if text.len() > PARQUET_NAME_BYTES_MAX {
        let bytes = text.len();
        return Err(format!("a name in its schema has {bytes} bytes, and at most {PARQUET_NAME_BYTES_MAX} are read"));
    }
    Ok(text.to_owned())
}

/// Returns the columns of a schema, whose nodes are listed in preorder, beginning with the root.
pub(super) fn leaf_columns(nodes: &[SchemaNode]) -> ThriftResult<Vec<LeafColumn>> {
    let Some((root, mut rest)) = nodes.split_first() else { return Err("it has no schema".to_owned()) };
    let mut leaves = Vec::new();
    for _ in 0..root.children {
        rest = collect_leaf_columns(rest, &mut Vec::new(), &mut leaves)?;
    }
    if !rest.is_empty() {
        return Err("its schema has fields that are in no group".to_owned());
    }
    Ok(leaves)
}

/// Adds the columns of the first node, which is within the groups `path`, and returns the nodes after it.
fn collect_leaf_columns<'a>(
    nodes: &'a [SchemaNode],
    path: &mut Vec<&'a SchemaNode>,
    leaves: &mut Vec<LeafColumn>,
) -> ThriftResult<&'a [SchemaNode]> {
    let Some((node, mut rest)) = nodes.split_first() else {
        return Err("its schema ends early".to_owned());
    };
    if path.len() == DEPTH_MAX {
        return Err(format!("its schema has groups more than {DEPTH_MAX} deep"));
    }
    path.push(node);
    if let Some(physical) = node.physical.filter(|_| node.children == 0) {
        if leaves.len() == DATASET_NAMES_MAX {
            return Err(format!("more than {DATASET_NAMES_MAX} columns"));
        }
        leaves.push(leaf_column(path, node, physical)?);
    }
    for _ in 0..node.children {
        rest = collect_leaf_columns(rest, path, leaves)?;
    }
    path.pop();
    Ok(rest)
}

fn leaf_column(path: &[&SchemaNode], node: &SchemaNode, physical: i32) -> ThriftResult<LeafColumn> {
    let physical = match physical {
        0 => Physical::BOOLEAN,
        1 => Physical::INT32,
        2 => Physical::INT64,
        3 => Physical::INT96,
        4 => Physical::FLOAT,
        5 => Physical::DOUBLE,
        6 => Physical::BYTE_ARRAY,
        7 => Physical::FIXED_LEN_BYTE_ARRAY,
        other => return Err(format!("column {} has the unknown type {other}", node.name)),
    };
    let length = match physical {
        Physical::FIXED_LEN_BYTE_ARRAY => usize::try_from(node.length).unwrap_or(0),
        _ => 0,
    };
    if physical == Physical::FIXED_LEN_BYTE_ARRAY && !(1..=PARQUET_PAGE_BYTES_MAX).contains(&length) {
        let claim = format!("values of {} bytes; 1 to {PARQUET_PAGE_BYTES_MAX} are read", node.length);
        return Err(format!("column {} has {claim}", node.name));
    }
    let levels =
        |nodes: &[&SchemaNode]| nodes.iter().filter(|it| [OPTIONAL, REPEATED].contains(&it.repetition)).count() as i16;
    let repeated = path.iter().position(|node| node.repetition == REPEATED);
    let image_member = image_member(path);
    let form = if image_member == Some(ImageMember::Bytes) { Ok(()) } else { check_nesting(path) };
    let names: Vec<_> = path.iter().map(|node| node.name.as_str()).collect();
    let name = if form.is_ok() { names[..1].concat() } else { names.join(".") };
    let kind = form.and_then(|()| match image_member {
        Some(ImageMember::Bytes) => Ok(ValueKind::Image),
        Some(ImageMember::Path) | None => value_kind(node, physical, length),
    });
    let kind = kind.and_then(|kind| match (kind, repeated) {
        (ValueKind::Text | ValueKind::Bytes(_), Some(_)) => {
            Err("a list of strings or bytes; save it as numbers".to_owned())
        }
        _ => Ok(kind),
    });
    let list = repeated.map(|at| levels(&path[..=at]));
    let is_image_path = image_member == Some(ImageMember::Path);
    let column = SchemaColumn { name, kind, is_list: list.is_some(), is_image_path };
    Ok(LeafColumn { column, physical, length, defined: levels(path), list })
}

/// A member of an image, as the library `datasets` of Hugging Face writes images: a structure of `bytes` and `path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageMember {
    /// The file.
    Bytes,
    /// The name that the file had.
    Path,
}

/// Returns which member of an image a column is, or `None` for other columns.
fn image_member(path: &[&SchemaNode]) -> Option<ImageMember> {
    let [image, member] = path else { return None };
    let is_plain = [image, member].iter().all(|node| node.repetition != REPEATED) && !image.is_list();
    // The physical type 6 is that of bytes of any length.
    if !is_plain || image.children != 2 || member.physical != Some(6) {
        return None;
    }
    match (member.name.as_str(), member.logical, member.converted) {
        ("bytes", None, None) => Some(ImageMember::Bytes),
        ("path", ..) => Some(ImageMember::Path),
        _ => None,
    }
}

/// Refuses everything except plain values and lists of them.
fn check_nesting(path: &[&SchemaNode]) -> ThriftResult<()> {
    let plain = |node: &SchemaNode| node.repetition != REPEATED;
    let good = match path {
        [_] => true,
        // The legacy lists of two levels, and the current ones of three.
        [list, item] => list.is_list() && plain(list) && !plain(item),
        [list, items, item] => {
            let alone = list.children == 1 && items.children == 1;
            alone && list.is_list() && plain(list) && !plain(items) && plain(item)
        }
        _ => false,
    };
    let lists = path.iter().filter(|node| !plain(node)).count();
    match (good, lists) {
        (true, _) => Ok(()),
        (false, 2..) => Err("a list of lists; flatten it and give the shape in dataset.json".to_owned()),
        (false, _) => Err("part of a structure or map; make it a separate column".to_owned()),
    }
}

/// The kinds of `LogicalType` that are supported.
const STRING: i16 = 1;
const ENUM: i16 = 4;
const DATE: i16 = 6;
const TIME: i16 = 7;
const TIMESTAMP: i16 = 8;
const INTEGER: i16 = 10;
const JSON: i16 = 12;
const FLOAT16: i16 = 15;

/// Returns the type of a node's values: from the logical type, otherwise the legacy converted type, otherwise the
/// physical type.
fn value_kind(node: &SchemaNode, physical: Physical, length: usize) -> ThriftResult<ValueKind> {
    let number = |dtype| Ok(ValueKind::Number(dtype));
    let integer = |bits, signed| match (bits, signed) {
        (8, true) => Ok(ValueKind::Number(DType::I8)),
        (8, false) => Ok(ValueKind::Number(DType::U8)),
        // The next wider type, because 16-bit integers are not supported.
        (16 | 32, true) => Ok(ValueKind::Number(DType::I32)),
        (16 | 32, false) => Ok(ValueKind::Number(DType::U32)),
        (64, true) => Ok(ValueKind::Number(DType::I64)),
        (64, false) => Ok(ValueKind::Number(DType::U64)),
        _ => Err(format!("integers of {bits} bits; save them with 8, 16, 32 or 64")),
    };
    match (physical, node.logical, node.converted) {
        (Physical::BOOLEAN, None, None) => number(DType::U8),
        // 64-bit floats are not supported. Reading numbers from text rounds to 32 bits as well.
        (Physical::FLOAT | Physical::DOUBLE, None, None) => number(DType::F32),
        (Physical::INT32, None, None) => number(DType::I32),
        (Physical::INT64, None, None) => number(DType::I64),
        (Physical::INT32, Some(INTEGER), _) if node.integer.0 <= 32 => integer(node.integer.0, node.integer.1),
        (Physical::INT64, Some(INTEGER), _) if node.integer.0 == 64 => integer(64, node.integer.1),
        // Days, or a number of the column's unit, since 1970 or midnight.
        (Physical::INT32, Some(DATE | TIME), _) | (Physical::INT32, None, Some(6 | 7)) => number(DType::I32),
        (Physical::INT64, Some(TIME | TIMESTAMP), _) | (Physical::INT64, None, Some(8..=10)) => number(DType::I64),
        (Physical::INT32, None, Some(unsigned @ 11..=13)) => integer(8 << (unsigned - 11), false),
        (Physical::INT32, None, Some(signed @ 15..=17)) => integer(8 << (signed - 15), true),
        (Physical::INT64, None, Some(14)) => integer(64, false),
        (Physical::INT64, None, Some(18)) => integer(64, true),
        (Physical::FIXED_LEN_BYTE_ARRAY, Some(FLOAT16), _) if length == 2 => number(DType::F16),
        (Physical::FIXED_LEN_BYTE_ARRAY, None, None) => Ok(ValueKind::Bytes(length)),
        (Physical::BYTE_ARRAY, Some(STRING | ENUM | JSON), _) | (Physical::BYTE_ARRAY, None, Some(0 | 4 | 19)) => {
            Ok(ValueKind::Text)
        }
        (Physical::BYTE_ARRAY, None, None) => {
            Err("bytes of any length; make them strings or of fixed length".to_owned())
        }
        _ => Err(format!("{}; save them as numbers or strings", type_name(node, physical))),
    }
}

/// Returns the name of a column's type, for messages.
fn type_name(node: &SchemaNode, physical: Physical) -> String {
    let name = match (node.logical, node.converted) {
        (Some(5), _) | (None, Some(5)) => "decimal numbers",
        (Some(14), _) => "UUIDs",
        (None, None) if physical == Physical::INT96 => "timestamps of 96 bits",
        (Some(13), _) | (None, Some(20)) => "BSON",
        _ => return format!("values of type {physical} with a meaning that is unknown here"),
    };
    name.to_owned()
}
