//! Parses the schema of an Arrow file: which columns a dataset can have, and how their values are stored.
//!
//! A column is a number, bytes of a fixed length, a text, a class name from a dictionary, a list of numbers or an image.
//! Every other column is kept with the reason for refusing it, which is reported if the column is selected. Source:
//! Apache Arrow, `format/Schema.fbs` and `docs/source/format/Columnar.rst`.

use saggar_tensor::DType;

use super::super::table::{ColumnResult, SchemaColumn, ValueKind};
use super::flatbuffer::FlatTable;
use crate::limits::{ARROW_NAME_BYTES_MAX, ARROW_VALUE_BYTES_MAX, DATASET_NAMES_MAX};

mod types;

use types::{ArrowField, ArrowType, FieldParser};

/// The key of the metadata that the library `datasets` of Hugging Face writes.
const FEATURES_KEY: &str = "huggingface";

/// The metadata version from which unions have no validity bitmap.
pub(super) const METADATA_V5: i16 = 4;

/// The columns of a file.
#[derive(Debug)]
pub(super) struct ArrowSchema {
    pub(super) columns: Vec<ArrowColumn>,
    /// The text that the library `datasets` of Hugging Face adds, which describes the columns.
    pub(super) features: Option<String>,
}

/// A column of the schema.
#[derive(Debug)]
pub(super) struct ArrowColumn {
    pub(super) column: SchemaColumn,
    /// How its values are stored; `None` if they are not read.
    pub(super) storage: Option<ColumnStorage>,
    pub(super) counts: FieldCounts,
}

/// The number of nodes, buffers and view columns that a column has in a record batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FieldCounts {
    pub(super) nodes: usize,
    pub(super) buffers: usize,
    /// Each has any number of further buffers, which the batch states.
    pub(super) views: usize,
}

/// How the values of a column are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnStorage {
    /// One value in each row.
    Fixed(FixedType),
    /// Lists of values between two offsets.
    List(OffsetWidth, FixedType),
    /// Lists of this number of values.
    FixedList(usize, FixedType),
    Text(TextLayout),
    /// A structure whose member `bytes` is an image; before it come other members with these nodes and buffers.
    Image {
        nodes: usize,
        buffers: usize,
        layout: TextLayout,
    },
    /// Indices of a dictionary of texts.
    Dictionary {
        id: i64,
        index: FixedType,
        values: TextLayout,
    },
}

/// A type whose values all have one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FixedType {
    /// One bit.
    Bool,
    /// An integer of this number of bytes.
    Signed(usize),
    Unsigned(usize),
    /// A float of this number of bytes.
    Float(usize),
    /// This number of bytes.
    Bytes(usize),
}

impl FixedType {
    /// Returns the bytes of a value, as it is read.
    pub(super) fn bytes(self) -> usize {
        match self {
            FixedType::Bool => 1,
            FixedType::Signed(bytes)
            | FixedType::Unsigned(bytes)
            | FixedType::Float(bytes)
            | FixedType::Bytes(bytes) => bytes,
        }
    }

    /// Returns the type that a value is converted to.
    pub(super) fn kind(self) -> ValueKind {
        match self {
            FixedType::Bool => ValueKind::Number(DType::U8),
            FixedType::Signed(1) => ValueKind::Number(DType::I8),
            FixedType::Unsigned(1) => ValueKind::Number(DType::U8),
            // The next wider type, because 16-bit integers are not supported.
            FixedType::Signed(2 | 4) => ValueKind::Number(DType::I32),
            FixedType::Unsigned(2 | 4) => ValueKind::Number(DType::U32),
            FixedType::Signed(_) => ValueKind::Number(DType::I64),
            FixedType::Unsigned(_) => ValueKind::Number(DType::U64),
            FixedType::Float(2) => ValueKind::Number(DType::F16),
            // 64-bit floats are not supported. Reading numbers from text rounds to 32 bits as well.
            FixedType::Float(_) => ValueKind::Number(DType::F32),
            FixedType::Bytes(length) => ValueKind::Bytes(length),
        }
    }
}

/// The size of an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OffsetWidth {
    Four,
    Eight,
}

/// How texts or bytes of any length are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextLayout {
    /// Between two offsets of one buffer.
    Offsets(OffsetWidth),
    /// In views, which have short ones inside and refer to other buffers for the others.
    Views,
}

impl ArrowSchema {
    /// Parses the table `Schema` of a file with this metadata version.
    pub(super) fn parse(schema: FlatTable<'_>, version: i16) -> ColumnResult<ArrowSchema> {
        if schema.i16(0, 0)? != 0 {
            return Err("its numbers are big-endian; write it on a little-endian machine".to_owned());
        }
        let mut parser = FieldParser::default();
        let fields = schema.elements(1, 4)?;
        let mut columns = Vec::new();
        for at in 0..fields.len() {
            columns.push(arrow_column(&parser.field(fields.table(at)?, 0)?, version));
        }
        let metadata = schema.elements(2, 4)?;
        let mut features = None;
        for at in 0..metadata.len() {
            let entry = metadata.table(at)?;
            if entry.text(0)? == Some(FEATURES_KEY) {
                features = entry.text(1)?.map(str::to_owned);
            }
        }
        Ok(ArrowSchema { columns, features })
    }
}

fn arrow_column(field: &ArrowField, version: i16) -> ArrowColumn {
    let stored = storage(field);
    let kind = stored.clone().map(|(_, kind)| kind);
    let storage = stored.ok().map(|(storage, _)| storage);
    let is_list = matches!(storage, Some(ColumnStorage::List(..) | ColumnStorage::FixedList(..)));
    let column = SchemaColumn { name: field.name.clone(), kind, is_list, is_image_path: false };
    ArrowColumn { column, storage, counts: field.counts(version) }
}

/// Returns how the values of a column are stored and converted, or the reason why the column is not supported.
fn storage(field: &ArrowField) -> ColumnResult<(ColumnStorage, ValueKind)> {
    if let Some((id, index)) = field.dictionary {
        let values = match field.kind {
            ArrowType::Text(layout) => layout,
            ref other => return Err(format!("a dictionary of {}; save it without a dictionary", other.name())),
        };
        return Ok((ColumnStorage::Dictionary { id, index, values }, ValueKind::Class));
    }
    match &field.kind {
        ArrowType::Text(layout) => Ok((ColumnStorage::Text(*layout), ValueKind::Text)),
        ArrowType::List(width) => {
            let item = list_item(field)?;
            Ok((ColumnStorage::List(*width, item), item.kind()))
        }
        ArrowType::FixedList(length) => {
            let item = list_item(field)?;
            let length = usize::try_from(*length).map_err(|_| "lists of a length below zero".to_owned())?;
            Ok((ColumnStorage::FixedList(length, item), item.kind()))
        }
        ArrowType::Struct => image(field),
        ArrowType::Bytes(_) => Err("bytes of any length; make them strings or of fixed length".to_owned()),
        ArrowType::Null => Err("nulls alone; leave the column out".to_owned()),
        other => {
            let fixed = fixed_type(other)?;
            Ok((ColumnStorage::Fixed(fixed), fixed.kind()))
        }
    }
}

/// Returns the type of the numbers of a list.
fn list_item(field: &ArrowField) -> ColumnResult<FixedType> {
    let [item] = field.children.as_slice() else { return Err("a list without one type of values".to_owned()) };
    match &item.kind {
        _ if item.dictionary.is_some() => Err("a list of classes; save it as numbers".to_owned()),
        ArrowType::List(_) | ArrowType::FixedList(_) | ArrowType::Other { name: "list views", .. } => {
            Err("a list of lists; flatten it and give the shape in dataset.json".to_owned())
        }
        ArrowType::Text(_) | ArrowType::Bytes(_) | ArrowType::FixedBytes(_) => {
            Err("a list of strings or bytes; save it as numbers".to_owned())
        }
        other => fixed_type(other),
    }
}

fn fixed_type(kind: &ArrowType) -> ColumnResult<FixedType> {
    match kind {
        ArrowType::Fixed(fixed) => Ok(*fixed),
        ArrowType::FixedBytes(length) => match usize::try_from(*length) {
            Ok(bytes) if (1..=ARROW_VALUE_BYTES_MAX).contains(&bytes) => Ok(FixedType::Bytes(bytes)),
            Ok(_) | Err(_) => Err(format!("values of {length} bytes; 1 to {ARROW_VALUE_BYTES_MAX} are read")),
        },
        ArrowType::Struct => Err("a structure; make its members separate columns".to_owned()),
        ArrowType::Other { hint, .. } => Err(format!("{}; {hint}", kind.name())),
        other => Err(format!("{}; save them as numbers or strings", other.name())),
    }
}

/// Returns the storage of an image, as the library `datasets` of Hugging Face writes images: a structure of `bytes` and
/// `path`.
fn image(field: &ArrowField) -> ColumnResult<(ColumnStorage, ValueKind)> {
    let is_path =
        |member: &ArrowField| member.name == "path" && matches!(member.kind, ArrowType::Text(_) | ArrowType::Null);
    let no_dictionary = field.children.iter().all(|member| member.dictionary.is_none());
    let bytes = field.children.iter().position(|member| member.name == "bytes");
    if let (Some(at), [first, second]) = (bytes, field.children.as_slice())
        && let ArrowType::Bytes(layout) = field.children[at].kind
        && is_path(if at == 0 { second } else { first })
        && no_dictionary
    {
        let before = if at == 0 { FieldCounts::default() } else { first.counts(METADATA_V5) };
        if before.views == 0 {
            let (nodes, buffers) = (before.nodes, before.buffers);
            return Ok((ColumnStorage::Image { nodes, buffers, layout }, ValueKind::Image));
        }
    }
    fixed_type(&field.kind).map(|fixed| (ColumnStorage::Fixed(fixed), fixed.kind()))
}

/// Returns a name if it is not too long.
fn check_name(text: &str) -> ColumnResult<String> {
    if text.len() > ARROW_NAME_BYTES_MAX {
        let bytes = text.len();
        return Err(format!("a name in its schema has {bytes} bytes, and at most {ARROW_NAME_BYTES_MAX} are read"));
    }
    Ok(text.to_owned())
}

/// Returns the error of a schema with too many columns.
fn too_many_fields() -> String {
    format!("more than {DATASET_NAMES_MAX} columns")
}
