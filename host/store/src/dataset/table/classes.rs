//! The class names of a column whose files have dictionaries of texts: names in the order of their first appearance.

use std::collections::HashMap;

use super::ColumnResult;
use crate::limits::{CLASS_NAME_BYTES_MAX, DATASET_NAMES_MAX, TABLE_DICTIONARY_BYTES_MAX};

/// Bytes of memory that a text takes in addition to its content, at most.
const TEXT_OVERHEAD_BYTES: usize = 64;

/// Returns the memory that a text takes.
pub(in super::super) fn text_memory_bytes(text: &str) -> usize {
    text.len() + TEXT_OVERHEAD_BYTES
}

/// The bytes of memory that remain for dictionaries, or for names of classes, over all columns.
pub(in super::super) struct DictionaryBudget {
    left: usize,
}

impl DictionaryBudget {
    pub(in super::super) fn new() -> DictionaryBudget {
        DictionaryBudget { left: TABLE_DICTIONARY_BYTES_MAX }
    }

    /// Counts bytes of memory before they are used.
    pub(in super::super) fn charge(&mut self, bytes: usize) -> ColumnResult<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            format!("dictionaries of more than {TABLE_DICTIONARY_BYTES_MAX} bytes together; save the column as strings")
        })?;
        Ok(())
    }

    /// Returns bytes that are no longer used.
    pub(in super::super) fn release(&mut self, bytes: usize) {
        self.left += bytes;
    }
}

/// The class names of a column.
#[derive(Debug, Default)]
pub(in super::super) struct ClassNames {
    pub(super) names: Vec<String>,
    by_name: HashMap<String, u32>,
    /// Whether a description has named all classes.
    is_complete: bool,
}

impl ClassNames {
    /// Returns the classes that a description names. Without any, every name of a file is a class.
    pub(super) fn described(names: &[String]) -> ClassNames {
        let by_name = names.iter().cloned().zip(0..).collect();
        ClassNames { names: names.to_vec(), by_name, is_complete: !names.is_empty() }
    }

    /// Returns the class of a name, which is added unless a description has named all classes.
    pub(in super::super) fn class(&mut self, name: &str, budget: &mut DictionaryBudget) -> ColumnResult<Option<u32>> {
        if let Some(class) = self.by_name.get(name) {
            return Ok(Some(*class));
        }
        if self.is_complete {
            return Ok(None);
        }
        if self.names.len() == DATASET_NAMES_MAX {
            return Err(format!("more than {DATASET_NAMES_MAX} classes; save the column as strings"));
        }
        if name.len() > CLASS_NAME_BYTES_MAX {
            let bytes = name.len();
            return Err(format!(
                "a class name of {bytes} bytes, and at most {CLASS_NAME_BYTES_MAX} are read; save the column as strings"
            ));
        }
        budget.charge(text_memory_bytes(name))?;
        let class = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), class);
        Ok(Some(class))
    }
}
