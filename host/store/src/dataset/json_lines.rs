//! Imports JSON lines: an object on each line, whose members become fields.
//!
//! Members are numbers, truth values, texts, or lists of numbers of one shape. Texts of a few different values become
//! classes, and other texts are padded to the longest. A file is a split by its name, as for Parquet. Every file is read
//! twice: to find the types, and to write the values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use saggar_tensor::{DType, Descriptor, Shape};

use super::description::{
    DEFAULT_SPLIT, JsonLinesDescription, MissingPolicy, SplitAssigner, check_field_names, parse_shares,
};
use super::draft::{DatasetDraft, DraftColumn};
use super::manifest::SplitRange;
use super::source::list_files;
use super::split::{files_by_split, reorder_by_split};
use super::staging::{ColumnWriter, StagingArea};
use crate::error::DatasetError;
use crate::limits::{DATASET_NAMES_MAX, JSON_CLASS_MEMBERS_MAX};

mod member;
mod object_reader;

use member::{MemberProfile, MemberType};
use object_reader::{JsonObject, ObjectReader};

/// The endings of such files.
const ENDINGS: [&str; 2] = ["jsonl", "ndjson"];

/// Returns whether the folder contains such files.
pub(super) fn detect(folder: &Path) -> Result<bool, DatasetError> {
    Ok(!list_json_files(folder)?.is_empty())
}

/// Returns the folder's files by name, in order.
fn list_json_files(folder: &Path) -> Result<BTreeMap<String, PathBuf>, DatasetError> {
    let mut files = BTreeMap::new();
    for ending in ENDINGS {
        files.extend(list_files(folder, ending)?);
    }
    Ok(files)
}

/// Reads the folder's files: the members that the description names, or all members.
///
/// # Errors
/// Returns `BadText` with the line for a value that its field cannot contain; `MissingFile`; `Empty`; errors that name a
/// key of the description.
pub(super) fn read(
    staging: &StagingArea<'_>,
    folder: &Path,
    description: &JsonLinesDescription,
) -> Result<DatasetDraft, DatasetError> {
    let parts = files_by_split(list_json_files(folder)?, "NAME.jsonl")?;
    let shares = if description.splits.is_empty() { Vec::new() } else { parse_shares(&description.splits)? };
    let source = JsonSource { parts, shares, missing: description.missing };
    let members = source.profile(description)?;
    check_field_names(members.keys().map(String::as_str))?;
    let mut draft = source.write(staging, &members)?;
    if !source.shares.is_empty() {
        draft.splits = reorder_by_split(staging, &mut draft.columns, &source.shares, draft.items)?;
    }
    Ok(DatasetDraft { description: description.description.clone(), ..draft })
}

/// The members by the names of their fields.
type Members = BTreeMap<String, MemberProfile>;

/// The files, and how their objects are used.
struct JsonSource {
    parts: BTreeMap<String, Vec<PathBuf>>,
    /// The shares of splits; empty if files are splits.
    shares: Vec<(String, u64)>,
    missing: MissingPolicy,
}

impl JsonSource {
    /// Reads all objects, and returns the types of their members.
    fn profile(&self, description: &JsonLinesDescription) -> Result<Members, DatasetError> {
        let mut members = Members::new();
        for field in &description.fields {
            members.insert(field.name.clone(), MemberProfile::described(field));
        }
        let is_whole = members.is_empty();
        let mut dealer = SplitAssigner::new(self.shares.iter().map(|(_, share)| *share));
        let train = self.shares.iter().position(|(name, _)| name == DEFAULT_SPLIT);
        let mut rows = 0;
        for (part, paths) in &self.parts {
            for path in paths {
                let mut reader = ObjectReader::open(path)?;
                while let Some(object) = reader.next_object()? {
                    if is_whole {
                        add_new_members(&mut members, &object, rows)?;
                    }
                    rows += 1;
                    // Means are taken of the items that are trained on.
                    let counts = match (self.shares.is_empty(), train) {
                        (true, _) => part == DEFAULT_SPLIT || !self.parts.contains_key(DEFAULT_SPLIT),
                        (false, train) => {
                            let split = dealer.next_split();
                            train.is_none_or(|train| train == split)
                        }
                    };
                    for member in members.values_mut() {
                        member.add(&object, self.missing, counts)?;
                    }
                }
            }
        }
        if rows == 0 {
            let file = self.parts.values().flatten().next().and_then(|path| path.file_name());
            return Err(DatasetError::Empty { file: file.unwrap_or_default().to_string_lossy().into_owned() });
        }
        for member in members.values_mut() {
            member.finish(rows, self.missing)?;
        }
        Ok(members)
    }

    /// Writes the values of all objects that are not left out.
    fn write(&self, staging: &StagingArea<'_>, members: &Members) -> Result<DatasetDraft, DatasetError> {
        let items = members.values().map(MemberProfile::item).collect::<Result<Vec<_>, _>>()?;
        let item_bytes = items.iter().fold(0u64, |sum, item| sum.saturating_add(item.bytes() as u64));
        let mut columns: Vec<ColumnWriter<'_>> =
            members.values().map(|_| staging.writer(members.len())).collect::<Result<_, _>>()?;
        let (mut splits, mut count): (Vec<SplitRange>, u64) = (Vec::new(), 0);
        let (mut dropped, mut first_dropped) = (0u64, None);
        let mut value = Vec::new();
        for (part, paths) in &self.parts {
            let begin = count;
            for path in paths {
                let mut reader = ObjectReader::open(path)?;
                while let Some(object) = reader.next_object()? {
                    let is_missing = members.values().any(|member| object.value(&member.key).is_none());
                    if is_missing && self.missing == MissingPolicy::Drop {
                        dropped += 1;
                        first_dropped.get_or_insert_with(|| object.place());
                        continue;
                    }
                    count += 1;
                    staging.check_size(&object.file, count.checked_mul(item_bytes))?;
                    for (member, column) in members.values().zip(&mut columns) {
                        value.clear();
                        member.append(&object, &mut value)?;
                        column.push(&value)?;
                    }
                }
            }
            splits.push((part.clone(), begin, count));
        }
        let mut notes: Vec<String> = members.iter().filter_map(|(name, member)| member.note(name)).collect();
        if let Some(first) = first_dropped {
            let total = dropped + count;
            notes.insert(0, format!("{dropped} of {total} items were dropped: values are missing (first in {first})"));
        }
        if count == 0 {
            let file = "the JSON lines".to_owned();
            return Err(DatasetError::Malformed { file, reason: format!("no items: {}", notes.join("; ")) });
        }
        let drafts = members.iter().zip(items).zip(columns).map(|(((name, member), item), column)| {
            let (name, classes, data) = (name.clone(), member.classes.clone(), column.finish()?);
            Ok(DraftColumn { name, item, classes, data })
        });
        let columns = drafts.collect::<Result<Vec<_>, DatasetError>>()?;
        Ok(DatasetDraft { columns, splits, items: count, description: String::new(), notes })
    }
}

/// Adds members that no earlier object had. They were missing in all of these.
fn add_new_members(members: &mut Members, object: &JsonObject, rows: u64) -> Result<(), DatasetError> {
    for key in object.members.keys() {
        if members.contains_key(key) {
            continue;
        }
        if members.len() == DATASET_NAMES_MAX {
            let what = format!("{}: line {}", object.file, object.line);
            return Err(DatasetError::TooLarge { what, max: DATASET_NAMES_MAX as u64, unit: "members" });
        }
        if rows > 0 {
            let reason = format!("no object before it has a member `{key}`; write null where there is no value");
            return Err(object.error(reason));
        }
        let can_be_classes = members.len() < JSON_CLASS_MEMBERS_MAX;
        members.insert(key.clone(), MemberProfile::new(key, can_be_classes));
    }
    Ok(())
}

/// Returns the descriptor of a member's items.
fn item_descriptor(kind: MemberType, dims: Vec<usize>, name: &str) -> Result<Descriptor, DatasetError> {
    let wrong = |reason: String| DatasetError::Description { reason: format!("field {name}: {reason}") };
    let dtype = match kind {
        MemberType::Integer => DType::I64,
        MemberType::Float => DType::F32,
        MemberType::Truth | MemberType::Text => DType::U8,
    };
    Ok(Descriptor::new(dtype, Shape::new(dims).map_err(|error| wrong(error.to_string()))?))
}
