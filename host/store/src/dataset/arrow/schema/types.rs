//! Parses the fields of a schema with their types, each with the fields inside it.

use super::super::super::table::ColumnResult;
use super::super::flatbuffer::FlatTable;
use super::{FieldCounts, FixedType, METADATA_V5, OffsetWidth, TextLayout, check_name, too_many_fields};
use crate::limits::DATASET_NAMES_MAX;

/// Maximum nesting depth of fields.
const DEPTH_MAX: usize = 16;

/// A field and those inside it.
#[derive(Debug)]
pub(super) struct ArrowField {
    pub(super) name: String,
    pub(super) kind: ArrowType,
    /// The dictionary that its values are in, and the type of the indices.
    pub(super) dictionary: Option<(i64, FixedType)>,
    pub(super) children: Vec<ArrowField>,
}

/// The type of a field.
#[derive(Debug)]
pub(super) enum ArrowType {
    Null,
    /// Numbers: also dates, times and durations, in the unit of the column.
    Fixed(FixedType),
    FixedBytes(i32),
    Text(TextLayout),
    Bytes(TextLayout),
    List(OffsetWidth),
    FixedList(i32),
    Struct,
    /// Types that are not read, with the buffers of a field and what to do.
    Other {
        name: &'static str,
        buffers: usize,
        hint: &'static str,
    },
}

impl ArrowType {
    /// Returns the name of the values, for messages.
    pub(super) fn name(&self) -> &'static str {
        match self {
            ArrowType::Null => "nulls",
            ArrowType::Fixed(_) => "numbers",
            ArrowType::FixedBytes(_) | ArrowType::Bytes(_) => "bytes",
            ArrowType::Text(_) => "strings",
            ArrowType::List(_) | ArrowType::FixedList(_) => "lists",
            ArrowType::Struct => "structures",
            ArrowType::Other { name, .. } => name,
        }
    }
}

impl ArrowField {
    /// Returns the numbers of nodes and buffers of the field in a record batch.
    pub(super) fn counts(&self, version: i16) -> FieldCounts {
        let (buffers, views) = match (&self.kind, self.dictionary) {
            (_, Some(_)) | (ArrowType::Fixed(_) | ArrowType::FixedBytes(_) | ArrowType::List(_), None) => (2, 0),
            (ArrowType::Null, None) => (0, 0),
            (ArrowType::Text(TextLayout::Offsets(_)) | ArrowType::Bytes(TextLayout::Offsets(_)), None) => (3, 0),
            (ArrowType::Text(TextLayout::Views) | ArrowType::Bytes(TextLayout::Views), None) => (2, 1),
            (ArrowType::FixedList(_) | ArrowType::Struct, None) => (1, 0),
            (ArrowType::Other { name: UNIONS, buffers, .. }, None) if version < METADATA_V5 => (buffers + 1, 0),
            (ArrowType::Other { buffers, .. }, None) => (*buffers, 0),
        };
        let mut counts = FieldCounts { nodes: 1, buffers, views };
        // The fields inside a dictionary are in its batches.
        for child in self.children.iter().filter(|_| self.dictionary.is_none()) {
            let inner = child.counts(version);
            counts.nodes += inner.nodes;
            counts.buffers += inner.buffers;
            counts.views += inner.views;
        }
        counts
    }
}

const UNIONS: &str = "unions";

/// Parses fields, and limits their number over the whole schema.
#[derive(Default)]
pub(super) struct FieldParser {
    fields: usize,
}

impl FieldParser {
    /// Parses the table `Field`, which is inside `depth` others.
    pub(super) fn field(&mut self, field: FlatTable<'_>, depth: usize) -> ColumnResult<ArrowField> {
        if depth == DEPTH_MAX {
            return Err(format!("its schema has fields more than {DEPTH_MAX} deep"));
        }
        if self.fields == DATASET_NAMES_MAX {
            return Err(too_many_fields());
        }
        self.fields += 1;
        let name = check_name(field.text(0)?.unwrap_or_default())?;
        let kind = match field.table(3)? {
            Some(table) => arrow_type(field.u8(2, 0)?, table)?,
            None => return Err(format!("column {name} has no type")),
        };
        let dictionary = match field.table(4)? {
            Some(dictionary) => Some((dictionary.i64(0, 0)?, index_type(dictionary.table(1)?)?)),
            None => None,
        };
        let inner = field.elements(5, 4)?;
        let mut children = Vec::new();
        for at in 0..inner.len() {
            children.push(self.field(inner.table(at)?, depth + 1)?);
        }
        Ok(ArrowField { name, kind, dictionary, children })
    }
}

/// Returns the type of a dictionary's indices, from the table `Int`.
fn index_type(table: Option<FlatTable<'_>>) -> ColumnResult<FixedType> {
    table.map_or(Ok(FixedType::Signed(4)), integer)
}

fn integer(table: FlatTable<'_>) -> ColumnResult<FixedType> {
    let bytes = match table.i32(0, 0)? {
        8 => 1,
        16 => 2,
        32 => 4,
        64 => 8,
        bits => return Err(format!("its schema has integers of {bits} bits, which Arrow does not have")),
    };
    Ok(if table.bool(1)? { FixedType::Signed(bytes) } else { FixedType::Unsigned(bytes) })
}

/// Returns a type from its number in the union `Type` and its table.
fn arrow_type(number: u8, table: FlatTable<'_>) -> ColumnResult<ArrowType> {
    use OffsetWidth::{Eight, Four};
    use TextLayout::{Offsets, Views};
    const NUMBERS: &str = "save them as numbers or strings";
    let signed = |bytes| Ok(ArrowType::Fixed(FixedType::Signed(bytes)));
    let other = |name, buffers, hint| Ok(ArrowType::Other { name, buffers, hint });
    match number {
        1 => Ok(ArrowType::Null),
        2 => Ok(ArrowType::Fixed(integer(table)?)),
        3 => match table.i16(0, 0)? {
            precision @ 0..=2 => Ok(ArrowType::Fixed(FixedType::Float(2 << precision))),
            precision => Err(format!("its schema has floats of precision {precision}, which Arrow does not have")),
        },
        4 => Ok(ArrowType::Bytes(Offsets(Four))),
        5 => Ok(ArrowType::Text(Offsets(Four))),
        6 => Ok(ArrowType::Fixed(FixedType::Bool)),
        7 => other("decimal numbers", 2, NUMBERS),
        // Days in 32 bits, or milliseconds in 64.
        8 => signed(if table.i16(0, 1)? == 0 { 4 } else { 8 }),
        9 => signed(if table.i32(1, 32)? == 32 { 4 } else { 8 }),
        10 | 18 => signed(8),
        11 => other("calendar intervals", 2, NUMBERS),
        12 => Ok(ArrowType::List(Four)),
        13 => Ok(ArrowType::Struct),
        14 => other(UNIONS, if table.i16(0, 0)? == 0 { 1 } else { 2 }, "make each type a separate column"),
        15 => Ok(ArrowType::FixedBytes(table.i32(0, 0)?)),
        16 => Ok(ArrowType::FixedList(table.i32(0, 0)?)),
        17 => other("maps", 2, "make each key a separate column"),
        19 => Ok(ArrowType::Bytes(Offsets(Eight))),
        20 => Ok(ArrowType::Text(Offsets(Eight))),
        21 => Ok(ArrowType::List(Eight)),
        22 => other("run-end encoded values", 0, "save them without the encoding"),
        23 => Ok(ArrowType::Bytes(Views)),
        24 => Ok(ArrowType::Text(Views)),
        25 | 26 => other("list views", 3, "save them as lists"),
        number => Err(format!("its schema has values of Arrow's type {number}, which is unknown here")),
    }
}
