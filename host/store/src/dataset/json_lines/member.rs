//! The type and the values of a member of JSON objects.

use std::collections::BTreeSet;

use saggar_tensor::{DType, Descriptor, Shape};
use serde_json::Value;

use super::super::description::{ColumnField, MissingPolicy};
use super::object_reader::JsonObject;
use crate::error::DatasetError;
use crate::limits::{CLASS_NAME_BYTES_MAX, JSON_DEPTH_MAX, TABLE_CLASSES_MAX, TEXT_LINE_BYTES_MAX};

/// The type of a member's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberType {
    /// `int64`.
    Integer,
    /// `float32`.
    Float,
    /// `uint8`: 1 for true, 0 for false.
    Truth,
    /// Classes, or `uint8[longest]` in UTF-8.
    Text,
}

impl MemberType {
    fn name(self) -> &'static str {
        match self {
            MemberType::Integer | MemberType::Float => "a number",
            MemberType::Truth => "true or false",
            MemberType::Text => "a text",
        }
    }
}

/// The lengths of nested lists.
#[derive(Default)]
struct ListShape {
    dims: Vec<usize>,
    /// How deep the numbers are, once one was found.
    leaf_depth: Option<usize>,
}

/// What a member's values are, over all objects.
pub(super) struct MemberProfile {
    pub(super) key: String,
    /// The names of the classes of texts.
    pub(super) classes: Vec<String>,
    described_shape: Option<Vec<usize>>,
    kind: Option<MemberType>,
    /// The lengths of its lists; empty for single values.
    dims: Option<Vec<usize>>,
    /// Bytes of the longest text.
    longest: usize,
    /// The different texts, while they can be classes.
    texts: Option<BTreeSet<String>>,
    /// The sum and number of the values that are trained on, for the mean.
    sum: f64,
    count: u64,
    missing: u64,
}

impl MemberProfile {
    /// Returns the profile of a member before its first value. Its texts are only collected if they can be classes.
    pub(super) fn new(key: &str, can_be_classes: bool) -> MemberProfile {
        MemberProfile {
            key: key.to_owned(),
            classes: Vec::new(),
            described_shape: None,
            kind: None,
            dims: None,
            longest: 0,
            texts: can_be_classes.then(BTreeSet::new),
            sum: 0.0,
            count: 0,
            missing: 0,
        }
    }

    /// Returns the profile of a described field.
    pub(super) fn described(field: &ColumnField) -> MemberProfile {
        let mut profile = MemberProfile::new(field.column(), false);
        profile.classes.clone_from(&field.classes);
        profile.described_shape.clone_from(&field.shape);
        profile
    }

    /// Adds the value of an object; `counts` if the item is trained on.
    pub(super) fn add(
        &mut self,
        object: &JsonObject,
        missing: MissingPolicy,
        counts: bool,
    ) -> Result<(), DatasetError> {
        let Some(value) = object.value(&self.key) else {
            self.missing += 1;
            if missing == MissingPolicy::Refuse {
                return Err(object.error(format!(
                    "member `{}` has no value; push with `--missing drop` to leave such items out, or with `--missing \
                     mean` to use the mean",
                    self.key
                )));
            }
            return Ok(());
        };
        let mut shape = ListShape::default();
        self.add_value(object, value, 0, &mut shape, counts)?;
        let dims = shape.dims;
        match &self.dims {
            Some(expected) if *expected != dims => Err(object.error(format!(
                "member `{}` has the shape {dims:?}, and before {expected:?}; pad or cut lists to one length",
                self.key
            ))),
            Some(_) => Ok(()),
            None => {
                self.dims = Some(dims);
                Ok(())
            }
        }
    }

    /// Adds a value or the elements of a list `depth` levels deep, whose lengths are added to `shape`.
    fn add_value(
        &mut self,
        object: &JsonObject,
        value: &Value,
        depth: usize,
        shape: &mut ListShape,
        counts: bool,
    ) -> Result<(), DatasetError> {
        let wrong = |reason: String| Err(object.error(reason));
        let found = match value {
            Value::Array(list) => {
                if depth == JSON_DEPTH_MAX {
                    return wrong(format!("member `{}` has lists more than {JSON_DEPTH_MAX} deep", self.key));
                }
                if list.is_empty() {
                    return wrong(format!("member `{}` has an empty list; lists have numbers in them", self.key));
                }
                if shape.leaf_depth == Some(depth) {
                    return wrong(format!("member `{}` has lists and numbers in one list", self.key));
                }
                match shape.dims.get(depth) {
                    Some(length) if *length != list.len() => {
                        return wrong(format!("member `{}` has lists of {length} and {}", self.key, list.len()));
                    }
                    Some(_) => {}
                    None => shape.dims.push(list.len()),
                }
                for value in list {
                    self.add_value(object, value, depth + 1, shape, counts)?;
                }
                return Ok(());
            }
            Value::Number(number) if number.is_i64() => MemberType::Integer,
            Value::Number(_) => MemberType::Float,
            Value::Bool(_) => MemberType::Truth,
            Value::String(text) if depth == 0 => {
                self.add_text(object, text)?;
                MemberType::Text
            }
            Value::String(_) => return wrong(format!("member `{}` has a list of texts; write one text", self.key)),
            Value::Null => return wrong(format!("member `{}` has a null in a list", self.key)),
            Value::Object(_) => {
                return wrong(format!("member `{}` is an object; write its members beside the others", self.key));
            }
        };
        if *shape.leaf_depth.get_or_insert(depth) != depth || shape.dims.len() != depth {
            return wrong(format!("member `{}` has lists and numbers in one list", self.key));
        }
        if let Some(number) = value.as_f64().filter(|_| counts) {
            self.sum += number;
            self.count += 1;
        }
        self.kind = match (self.kind, found) {
            (None, found) => Some(found),
            (Some(MemberType::Integer), MemberType::Float) => Some(MemberType::Float),
            (Some(MemberType::Float), MemberType::Integer) => Some(MemberType::Float),
            (Some(known), found) if known == found => Some(known),
            (Some(known), found) => {
                return wrong(format!("member `{}` is {}, and before {}", self.key, found.name(), known.name()));
            }
        };
        Ok(())
    }

    fn add_text(&mut self, object: &JsonObject, text: &str) -> Result<(), DatasetError> {
        if text.len() > TEXT_LINE_BYTES_MAX {
            let key = &self.key;
            return Err(object.error(format!("member `{key}` has more than {TEXT_LINE_BYTES_MAX} bytes; break it up")));
        }
        if text.contains('\0') {
            return Err(object.error(format!("member `{}` has a zero byte, which marks the end of a text", self.key)));
        }
        self.longest = self.longest.max(text.len());
        if let Some(texts) = &mut self.texts
            && !texts.contains(text)
        {
            texts.insert(text.to_owned());
            if texts.len() > TABLE_CLASSES_MAX || text.len() > CLASS_NAME_BYTES_MAX {
                self.texts = None;
            }
        }
        Ok(())
    }

    /// Decides about the type after all of `rows` objects.
    pub(super) fn finish(&mut self, rows: u64, missing: MissingPolicy) -> Result<(), DatasetError> {
        let wrong = |reason: String| Err(DatasetError::Malformed { file: format!("member `{}`", self.key), reason });
        let Some(kind) = self.kind else {
            return wrong("no object has a value of it; name the members to read in dataset.json".to_owned());
        };
        let texts = self.texts.take().unwrap_or_default();
        if kind == MemberType::Text && self.classes.is_empty() && !texts.is_empty() && texts.len() as u64 <= rows / 2 {
            self.classes = texts.into_iter().collect();
        }
        let is_number = matches!(kind, MemberType::Integer | MemberType::Float);
        if missing == MissingPolicy::Mean && self.missing > 0 && (!is_number || self.count == 0) {
            return wrong("it has no mean; push with `--missing drop`".to_owned());
        }
        let elements: usize = self.dims.iter().flatten().product();
        if let Some(shape) = &self.described_shape
            && shape.iter().product::<usize>() != elements
        {
            return wrong(format!("shape {shape:?} does not have its {elements} elements"));
        }
        Ok(())
    }

    /// Returns the descriptor of an item.
    pub(super) fn item(&self) -> Result<Descriptor, DatasetError> {
        let kind = self.kind.unwrap_or(MemberType::Float);
        if kind == MemberType::Text && self.classes.is_empty() {
            return super::item_descriptor(kind, vec![self.longest.max(1)], &self.key);
        }
        if kind == MemberType::Text {
            let dtype = if self.classes.len() <= 256 { DType::U8 } else { DType::U32 };
            return Ok(Descriptor::new(dtype, Shape::scalar()));
        }
        let dims = self.described_shape.clone().or_else(|| self.dims.clone()).unwrap_or_default();
        super::item_descriptor(kind, dims, &self.key)
    }

    /// Returns a note if values were replaced by the mean.
    pub(super) fn note(&self, field: &str) -> Option<String> {
        let (missing, mean) = (self.missing, self.mean());
        (missing > 0 && self.count > 0 && mean.is_finite())
            .then(|| format!("field {field}: {missing} missing values; the mean of the others is {mean}"))
    }

    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// Appends the value of an object, or the mean if it has none.
    pub(super) fn append(&self, object: &JsonObject, data: &mut Vec<u8>) -> Result<(), DatasetError> {
        let Some(value) = object.value(&self.key) else {
            let elements: usize = self.dims.iter().flatten().product();
            for _ in 0..elements {
                match self.kind {
                    Some(MemberType::Integer) => data.extend_from_slice(&(self.mean().round() as i64).to_le_bytes()),
                    _ => data.extend_from_slice(&(self.mean() as f32).to_le_bytes()),
                }
            }
            return Ok(());
        };
        self.append_value(object, value, data)
    }

    fn append_value(&self, object: &JsonObject, value: &Value, data: &mut Vec<u8>) -> Result<(), DatasetError> {
        match (self.kind, value) {
            (_, Value::Array(list)) => list.iter().try_for_each(|value| self.append_value(object, value, data)),
            (Some(MemberType::Integer), Value::Number(number)) => {
                let number = number.as_i64().ok_or_else(|| object.error(format!("{number} is not an int64")))?;
                self.check_class(object, number)?;
                data.extend_from_slice(&number.to_le_bytes());
                Ok(())
            }
            (Some(MemberType::Float), Value::Number(number)) => {
                let rounded = number.as_f64().map(|number| number as f32).filter(|number| number.is_finite());
                let rounded = rounded.ok_or_else(|| object.error(format!("{number} is too large for float32")))?;
                data.extend_from_slice(&rounded.to_le_bytes());
                Ok(())
            }
            (Some(MemberType::Truth), Value::Bool(value)) => {
                data.push(u8::from(*value));
                Ok(())
            }
            (Some(MemberType::Text), Value::String(text)) => self.append_text(object, text, data),
            _ => Err(object.error(format!("member `{}` changed while it was read; send it again", self.key))),
        }
    }

    fn append_text(&self, object: &JsonObject, text: &str, data: &mut Vec<u8>) -> Result<(), DatasetError> {
        if self.classes.is_empty() {
            data.extend_from_slice(text.as_bytes());
            data.resize(self.longest.max(1).max(text.len()), 0);
            return Ok(());
        }
        let class = self.classes.iter().position(|class| class == text);
        let class = class.ok_or_else(|| object.error(format!("`{text}` is not a class of member `{}`", self.key)))?;
        let bytes = if self.classes.len() <= 256 { 1 } else { size_of::<u32>() };
        data.extend_from_slice(&(class as u64).to_le_bytes()[..bytes]);
        Ok(())
    }

    /// Refuses a class number without a name.
    fn check_class(&self, object: &JsonObject, number: i64) -> Result<(), DatasetError> {
        let classes = self.classes.len();
        if classes == 0 || usize::try_from(number).is_ok_and(|number| number < classes) {
            return Ok(());
        }
        Err(object.error(format!("{number} in member `{}` is not a class from 0 to {}", self.key, classes - 1)))
    }
}
