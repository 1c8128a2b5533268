//! Dictionaries of texts, whose indices become class indices.

use std::collections::BTreeMap;

use super::super::table::{ColumnResult, DictionaryBudget, TableColumn, text_memory_bytes};
use super::ImportBudgets;
use super::batch::{BatchParts, RecordBatch};
use super::buffers::DecodeBudget;
use super::flatbuffer::FlatTable;
use super::schema::{ArrowColumn, ColumnStorage, FieldCounts, FixedType, TextLayout};
use super::texts::TextReader;
use super::values::{BatchColumn, FixedReader};
use crate::limits::{CLASS_NAME_BYTES_MAX, DATASET_NAMES_MAX};

/// Indices that are read at once.
const PIECE_INDICES: u64 = 1 << 14;

/// The dictionaries of a file.
pub(super) struct DictionaryStore {
    /// Those of the columns that are read, by their number.
    by_id: BTreeMap<i64, TextDictionary>,
    /// For each field the classes of its dictionary.
    classes: Vec<DictionaryClasses>,
    budget: DictionaryBudget,
}

/// A dictionary as read so far.
struct TextDictionary {
    layout: TextLayout,
    /// How often it was replaced; 0 before it was read.
    generation: u64,
    /// Its texts; `None` is null.
    values: Vec<Option<String>>,
}

impl TextDictionary {
    /// Removes all values. Returns the memory that they took.
    fn clear(&mut self) -> usize {
        let bytes = self.values.iter().map(|value| text_memory_bytes(value.as_deref().unwrap_or_default())).sum();
        self.values.clear();
        bytes
    }
}

/// The classes of a dictionary's values in a column.
#[derive(Default)]
struct DictionaryClasses {
    generation: u64,
    classes: Vec<ValueClass>,
}

#[derive(Clone, Copy)]
enum ValueClass {
    Class(u32),
    Null,
    /// A text that is not among the described classes.
    Unknown,
}

impl DictionaryStore {
    /// Returns the dictionaries that the columns of the fields need, before they are read.
    pub(super) fn new<'a>(columns: impl Iterator<Item = &'a ArrowColumn>) -> DictionaryStore {
        let (mut by_id, mut classes) = (BTreeMap::new(), Vec::new());
        for column in columns {
            classes.push(DictionaryClasses::default());
            if let Some(ColumnStorage::Dictionary { id, values, .. }) = column.storage {
                by_id.insert(id, TextDictionary { layout: values, generation: 0, values: Vec::new() });
            }
        }
        DictionaryStore { by_id, classes, budget: DictionaryBudget::new() }
    }

    /// Returns the batch of a dictionary that is needed, from the table `DictionaryBatch`.
    pub(super) fn needed_batch<'t>(&self, table: FlatTable<'t>) -> ColumnResult<Option<FlatTable<'t>>> {
        if !self.by_id.contains_key(&table.i64(0, 0)?) {
            return Ok(None);
        }
        table.table(1)?.ok_or_else(|| "a dictionary without values".to_owned()).map(Some)
    }

    /// Reads the values of a dictionary. In a stream, a later batch of a dictionary replaces it.
    pub(super) fn read(
        &mut self,
        table: FlatTable<'_>,
        batch: &RecordBatch<'_>,
        is_stream: bool,
        budget: &mut DecodeBudget,
    ) -> ColumnResult<()> {
        let id = table.i64(0, 0)?;
        let Some(dictionary) = self.by_id.get_mut(&id) else { return Ok(()) };
        let is_delta = table.bool(2)?;
        match (is_delta, dictionary.generation) {
            (true, 0) => return Err("it begins with an addition".to_owned()),
            (false, before) if before > 0 && !is_stream => {
                return Err(
                    "it is replaced by another, which the file format does not allow; write a stream".to_owned()
                );
            }
            (true, _) => {}
            (false, _) => {
                dictionary.generation += 1;
                self.budget.release(dictionary.clear());
            }
        }
        let counts = match dictionary.layout {
            TextLayout::Offsets(_) => FieldCounts { nodes: 1, buffers: 3, views: 0 },
            TextLayout::Views => FieldCounts { nodes: 1, buffers: 2, views: 1 },
        };
        batch.columns([counts].into_iter())?;
        if batch.rows == 0 {
            return Ok(());
        }
        let mut texts = TextReader::open(batch, BatchParts::default(), dictionary.layout, budget)?;
        for _ in 0..batch.rows {
            let at = dictionary.values.len();
            if at == DATASET_NAMES_MAX {
                return Err(format!("more than {DATASET_NAMES_MAX} values; save the column as strings"));
            }
            let too_long =
                || format!("value {at} has more than {CLASS_NAME_BYTES_MAX} bytes; save the column as strings");
            let text = match texts.next_text(CLASS_NAME_BYTES_MAX, too_long)? {
                Some(text) => Some(std::str::from_utf8(text).map_err(|_| format!("value {at} is not valid UTF-8"))?),
                None => None,
            };
            self.budget.charge(text_memory_bytes(text.unwrap_or_default()))?;
            dictionary.values.push(text.map(str::to_owned));
        }
        Ok(())
    }
}

impl DictionaryClasses {
    /// Adds classes for the values that are new since the last record batch.
    fn update(
        &mut self,
        dictionary: &TextDictionary,
        column: &mut TableColumn<'_>,
        budget: &mut DictionaryBudget,
        name_budget: &mut DictionaryBudget,
    ) -> ColumnResult<()> {
        if self.generation != dictionary.generation {
            budget.release(self.classes.len() * size_of::<ValueClass>());
            (self.generation, self.classes) = (dictionary.generation, Vec::new());
        }
        for value in &dictionary.values[self.classes.len().min(dictionary.values.len())..] {
            let class = match value {
                None => ValueClass::Null,
                Some(name) => column.classes.class(name, name_budget)?.map_or(ValueClass::Unknown, ValueClass::Class),
            };
            budget.charge(size_of::<ValueClass>())?;
            self.classes.push(class);
        }
        Ok(())
    }
}

impl BatchColumn<'_, '_> {
    /// Appends the class index of each row. `id` and `index` are the dictionary and the type of the indices.
    pub(super) fn append_classes(
        &self,
        (id, index): (i64, FixedType),
        dictionaries: &mut DictionaryStore,
        column: &mut TableColumn<'_>,
        budgets: &mut ImportBudgets,
    ) -> ColumnResult<()> {
        let DictionaryStore { by_id, classes, budget } = dictionaries;
        let dictionary = by_id.get(&id).filter(|dictionary| dictionary.generation > 0);
        let dictionary = dictionary.ok_or("its dictionary does not come before it")?;
        let known = classes.get_mut(self.field).ok_or("it has no dictionary")?;
        known.update(dictionary, column, budget, &mut budgets.class_names)?;
        let budget = &mut budgets.decode;
        let (batch, BatchParts { node, buffer, .. }) = (self.batch, self.parts);
        let mut valid = batch.validity(node, buffer, budget)?;
        let mut indices = FixedReader::new(index, batch.buffer(buffer + 1, budget)?);
        let (mut raw, mut bits, mut classes) = (Vec::new(), Vec::new(), Vec::new());
        let mut done = 0;
        while done < batch.rows {
            let count = (batch.rows - done).min(PIECE_INDICES);
            indices.fill(count as usize, &mut raw)?;
            if let Some(valid) = &mut valid {
                valid.fill(count as usize, &mut bits)?;
            }
            classes.clear();
            for (at, index) in raw.chunks_exact(index.bytes()).enumerate() {
                let row = self.row(done + at as u64);
                let class = match bits.get(at) {
                    Some(0) => ValueClass::Null,
                    _ => known.class(index, row)?,
                };
                let class = match class {
                    ValueClass::Class(class) => class,
                    ValueClass::Null => {
                        column.add_null(row, self.earlier)?;
                        0
                    }
                    ValueClass::Unknown => {
                        return Err(format!("row {row}: a text that is not among the classes of dataset.json"));
                    }
                };
                classes.extend(class.to_le_bytes());
            }
            column.write(&classes)?;
            done += count;
        }
        Ok(())
    }
}

impl DictionaryClasses {
    /// Returns the class of an index, which is little-endian. A negative one is beyond every dictionary.
    fn class(&self, index: &[u8], row: u64) -> ColumnResult<ValueClass> {
        let mut wide = [0; 8];
        wide[..index.len()].copy_from_slice(index);
        let found = usize::try_from(u64::from_le_bytes(wide)).ok().and_then(|index| self.classes.get(index));
        found.copied().ok_or_else(|| {
            format!("row {row}: an index that its dictionary of {} values does not have", self.classes.len())
        })
    }
}
