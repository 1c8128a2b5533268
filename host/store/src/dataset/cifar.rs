//! Imports CIFAR-10's binary files by their original names: records of a label and a small RGB image.
//!
//! Source: <https://www.cs.toronto.edu/~kriz/cifar.html>, "Binary version": a record is one byte with the class, then
//! 32 x 32 bytes of red, then green, then blue, each plane row by row. The folder can contain any of the five training
//! batches. `batches.meta.txt` names the classes, one per line.

use std::io::Read;
use std::path::{Path, PathBuf};

use saggar_tensor::{DType, Descriptor, Shape};

use super::draft::{DatasetDraft, DraftColumn};
use super::source::{SourceReader, find_file};
use super::staging::{ColumnWriter, StagingArea};
use crate::error::{DatasetError, StoreError};
use crate::limits::CLASS_NAMES_BYTES_MAX;
use crate::regular_file;

const SIDE: usize = 32;
const COLORS: usize = 3;
/// Bytes of one colour plane of an image.
const PLANE: usize = SIDE * SIDE;
/// Bytes of a record: the label and the image.
const RECORD: usize = 1 + COLORS * PLANE;
const CLASSES: usize = 10;

const TRAINING: [&str; 5] =
    ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];
const TESTING: &str = "test_batch.bin";
const NAMES: &str = "batches.meta.txt";
const NEEDED_BY: &str = "a dataset in CIFAR-10's form";

/// Returns whether the folder contains one of the batches.
pub(super) fn detect(folder: &Path) -> bool {
    TRAINING.iter().chain([&TESTING]).any(|name| find_file(folder, name).is_some())
}

/// Reads the batches: fields `image` (`uint8[32, 32, 3]`) and `label`, splits `train` and `test`.
pub(super) fn read(
    staging: &StagingArea<'_>,
    folder: &Path,
    description: String,
) -> Result<DatasetDraft, DatasetError> {
    let training: Vec<PathBuf> = TRAINING.iter().filter_map(|name| find_file(folder, name)).collect();
    let missing =
        |name: &str| DatasetError::MissingFile { file: format!("{name}[.gz]"), needed_by: NEEDED_BY.to_owned() };
    if training.is_empty() {
        return Err(missing(TRAINING[0]));
    }
    let testing = find_file(folder, TESTING).ok_or_else(|| missing(TESTING))?;
    let names = class_names(folder)?;

    let mut records = CifarRecordReader { labels: staging.writer(2)?, pixels: staging.writer(2)? };
    for path in &training {
        records.read(staging, path)?;
    }
    let trained = records.count();
    records.read(staging, &testing)?;
    let items = records.count();

    let shape = Shape::new([SIDE, SIDE, COLORS]).expect("a small shape");
    let (image, label) = (Descriptor::new(DType::U8, shape), Descriptor::new(DType::U8, Shape::scalar()));
    let column = |name: &str, item, classes, data| DraftColumn { name: name.to_owned(), item, classes, data };
    let (pixels, labels) = (records.pixels.finish()?, records.labels.finish()?);
    let columns = vec![column("image", image, Vec::new(), pixels), column("label", label, names, labels)];
    let splits = vec![("train".to_owned(), 0, trained), ("test".to_owned(), trained, items)];
    Ok(DatasetDraft { columns, splits, items, description, notes: Vec::new() })
}

/// Returns the names of the classes, or their numbers if the folder does not name them.
fn class_names(folder: &Path) -> Result<Vec<String>, DatasetError> {
    let path = folder.join(NAMES);
    if !path.is_file() {
        return Ok((0..CLASSES).map(|class| class.to_string()).collect());
    }
    let mut text = Vec::new();
    let file = regular_file::open(&path).map_err(StoreError::io(&path))?;
    file.take(CLASS_NAMES_BYTES_MAX + 1).read_to_end(&mut text).map_err(StoreError::io(&path))?;
    if text.len() as u64 > CLASS_NAMES_BYTES_MAX {
        return Err(DatasetError::TooLarge { what: NAMES.to_owned(), max: CLASS_NAMES_BYTES_MAX, unit: "bytes" });
    }
    let text = String::from_utf8(text).map_err(|error| DatasetError::Unreadable {
        file: NAMES.to_owned(),
        offset: error.utf8_error().valid_up_to() as u64,
        reason: "class names are UTF-8, and this is not".to_owned(),
    })?;
    // The original file ends with an empty line.
    let names: Vec<String> = text.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if names.len() == CLASSES {
        return Ok(names);
    }
    Err(DatasetError::ClassNames { file: NAMES.to_owned(), found: names.len(), expected: CLASSES })
}

struct CifarRecordReader<'s> {
    labels: ColumnWriter<'s>,
    /// Images in HWC order: row, column, colour.
    pixels: ColumnWriter<'s>,
}

impl CifarRecordReader<'_> {
    fn count(&self) -> u64 {
        self.labels.bytes()
    }

    /// Adds the records of one file.
    fn read(&mut self, staging: &StagingArea<'_>, path: &Path) -> Result<(), DatasetError> {
        let mut source = SourceReader::open(path)?;
        let (mut record, mut pixels) = (Vec::with_capacity(RECORD), Vec::with_capacity(RECORD));
        let mut bytes = 0u64;
        loop {
            record.clear();
            let read = Read::take(&mut source, RECORD as u64).read_to_end(&mut record);
            bytes += read.map_err(|error| source.read_error(&error))? as u64;
            match record.as_slice() {
                [] if bytes == 0 => return Err(DatasetError::Empty { file: source.name }),
                [] => return Ok(()),
                [label, planes @ ..] if planes.len() == COLORS * PLANE => {
                    staging.check_size("the images", Some(self.pixels.bytes() + planes.len() as u64))?;
                    if usize::from(*label) >= CLASSES {
                        return Err(DatasetError::RecordLabel {
                            file: source.name,
                            record: bytes / RECORD as u64,
                            label: *label,
                            classes: CLASSES,
                        });
                    }
                    pixels.clear();
                    pixels.extend((0..PLANE).flat_map(|at| [0, 1, 2].map(|color| planes[color * PLANE + at])));
                    self.labels.push(&[*label])?;
                    self.pixels.push(&pixels)?;
                }
                _ => return Err(DatasetError::BadRecords { file: source.name, found: bytes, record: RECORD }),
            }
        }
    }
}
