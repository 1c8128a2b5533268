//! Imports WebDataset archives: `.tar` files in which consecutive entries with one name are the parts of an item.
//!
//! ```text
//! 0001.jpg  0001.cls  0001.txt  0002.jpg  0002.cls  0002.txt
//! ```
//!
//! An image becomes `image`, a `.cls` or `.index` with a class number `label`, and a `.txt` or `.caption` `text`. Other
//! endings are left out, with a note. An archive is a split by its name, and numbered archives follow each other in one.
//! Every archive is read twice: to find the longest text, and to write the values. Source: the library `webdataset`,
//! documentation of the format.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use saggar_tensor::{DType, Descriptor, Shape};

use super::description::{ImageSize, WebDatasetDescription, parse_shares};
use super::draft::{DatasetDraft, DraftColumn};
use super::manifest::SplitRange;
use super::source::list_files;
use super::split::{files_by_split, reorder_by_split};
use super::staging::{ColumnWriter, StagingArea};
use crate::error::DatasetError;
use crate::image_decoder::{self, DecodedImage};
use crate::image_resizer::resize_picture;
use crate::limits::{IMAGE_BYTES_MAX, TEXT_LINE_BYTES_MAX};

mod sample_reader;

use sample_reader::{ArchiveSample, SampleReader};

/// The channels of images that are converted to another size.
const RGB: usize = 3;
/// Endings of left out entries that a note lists.
const ENDINGS_NOTED: usize = 20;

/// A part of an item that becomes a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SamplePart {
    Image,
    Label,
    Text,
}

impl SamplePart {
    /// Returns the part that an ending means, or `None` for others.
    fn of_ending(ending: &str) -> Option<SamplePart> {
        match ending {
            "png" | "jpg" | "jpeg" | "webp" => Some(SamplePart::Image),
            "cls" | "index" => Some(SamplePart::Label),
            "txt" | "caption" => Some(SamplePart::Text),
            _ => None,
        }
    }

    fn field(self) -> &'static str {
        match self {
            SamplePart::Image => "image",
            SamplePart::Label => "label",
            SamplePart::Text => "text",
        }
    }

    /// Returns the most bytes of such an entry.
    fn bytes_max(self) -> usize {
        match self {
            SamplePart::Image => IMAGE_BYTES_MAX,
            SamplePart::Label | SamplePart::Text => TEXT_LINE_BYTES_MAX,
        }
    }
}

/// Returns whether the folder contains such files.
pub(super) fn detect(folder: &Path) -> Result<bool, DatasetError> {
    Ok(!list_files(folder, "tar")?.is_empty())
}

/// Reads the folder's archives.
///
/// # Errors
/// Returns `Malformed` with the archive and the entry that is wrong; `MissingFile`; `Empty`; `TooLarge`.
pub(super) fn read(
    staging: &StagingArea<'_>,
    folder: &Path,
    description: &WebDatasetDescription,
) -> Result<DatasetDraft, DatasetError> {
    let archives = files_by_split(list_files(folder, "tar")?, "NAME.tar")?;
    let shares = if description.splits.is_empty() { Vec::new() } else { parse_shares(&description.splits)? };
    let resize = description.resize.map(ImageSize::checked).transpose()?;
    let extent = measure(archives.values().flatten())?;
    let mut columns = SampleColumns::new(staging, &extent, resize)?;
    let (mut splits, mut items): (Vec<SplitRange>, u64) = (Vec::new(), 0);
    for (split, paths) in &archives {
        let begin = items;
        for path in paths {
            let mut reader = SampleReader::open(path)?;
            reader.for_each(|sample| {
                items += 1;
                columns.append(&sample)
            })?;
        }
        splits.push((split.clone(), begin, items));
    }
    let notes = extent.note().into_iter().collect();
    let mut columns = columns.finish(&description.classes)?;
    if !shares.is_empty() {
        splits = reorder_by_split(staging, &mut columns, &shares, items)?;
    }
    Ok(DatasetDraft { columns, splits, items, description: description.description.clone(), notes })
}

/// What the items of all archives have.
struct SampleExtent {
    parts: BTreeSet<SamplePart>,
    /// Bytes of the longest text.
    longest: usize,
    ignored: BTreeSet<String>,
}

impl SampleExtent {
    fn note(&self) -> Option<String> {
        let listed: Vec<&str> = self.ignored.iter().take(ENDINGS_NOTED).map(String::as_str).collect();
        (!listed.is_empty()).then(|| format!("entries are left out that end in: {}", listed.join(", ")))
    }
}

/// Reads all archives once. The first item determines the parts of every item.
fn measure<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Result<SampleExtent, DatasetError> {
    let mut extent = SampleExtent { parts: BTreeSet::new(), longest: 0, ignored: BTreeSet::new() };
    let (mut items, mut file) = (0_u64, String::new());
    for path in paths {
        let mut reader = SampleReader::open(path)?;
        reader.name().clone_into(&mut file);
        reader.for_each(|sample| {
            let parts: BTreeSet<SamplePart> = sample.parts.keys().copied().collect();
            if items == 0 {
                extent.parts.clone_from(&parts);
            }
            items += 1;
            if parts != extent.parts {
                let known = extent.parts.iter().map(|part| part.field()).collect::<Vec<_>>().join(", ");
                let found = parts.iter().map(|part| part.field()).collect::<Vec<_>>().join(", ");
                return Err(sample.error(format!("it has {found}, and the first item has {known}")));
            }
            extent.longest = extent.longest.max(sample.parts.get(&SamplePart::Text).map_or(0, Vec::len));
            Ok(())
        })?;
        extent.ignored.extend(reader.ignored());
    }
    if items == 0 {
        return Err(DatasetError::Empty { file });
    }
    Ok(extent)
}

/// The columns of the parts that items have.
struct SampleColumns<'s> {
    staging: &'s StagingArea<'s>,
    columns: BTreeMap<SamplePart, ColumnWriter<'s>>,
    resize: Option<ImageSize>,
    /// Height, width and channels of the first image.
    image: Option<[usize; 3]>,
    text_bytes: usize,
    largest_label: u64,
}

impl<'s> SampleColumns<'s> {
    fn new(
        staging: &'s StagingArea<'s>,
        extent: &SampleExtent,
        resize: Option<ImageSize>,
    ) -> Result<SampleColumns<'s>, DatasetError> {
        let writer = |part: &SamplePart| Ok((*part, staging.writer(extent.parts.len())?));
        let columns = extent.parts.iter().map(writer).collect::<Result<_, DatasetError>>()?;
        let text_bytes = extent.longest.max(1);
        Ok(SampleColumns { staging, columns, resize, image: None, text_bytes, largest_label: 0 })
    }

    /// Appends an item.
    fn append(&mut self, sample: &ArchiveSample) -> Result<(), DatasetError> {
        for (part, bytes) in &sample.parts {
            let value = match part {
                SamplePart::Image => self.decode_image(sample, bytes)?,
                SamplePart::Label => self.decode_label(sample, bytes)?,
                SamplePart::Text => self.decode_text(sample, bytes)?,
            };
            let stored: u64 = self.columns.values().map(ColumnWriter::bytes).sum();
            self.staging.check_size(&sample.file, Some(stored + value.len() as u64))?;
            if let Some(column) = self.columns.get_mut(part) {
                column.push(&value)?;
            }
        }
        Ok(())
    }

    fn decode_image(&mut self, sample: &ArchiveSample, bytes: &[u8]) -> Result<Vec<u8>, DatasetError> {
        let decoded = image_decoder::decode(bytes, IMAGE_BYTES_MAX);
        let mut image = decoded.map_err(|error| sample.error(error.to_string()))?;
        if let Some(ImageSize { width, height }) = self.resize {
            let pixels = resize_picture(&image, height, width, RGB);
            image = DecodedImage { height, width, channels: RGB, pixels };
        }
        let found = [image.height, image.width, image.channels];
        let expected = *self.image.get_or_insert(found);
        if found == expected {
            return Ok(image.pixels);
        }
        Err(sample.error(format!(
            "an image of {found:?} (height, width, channels), and the first has {expected:?}; `--resize WIDTHxHEIGHT` \
             converts all to one size"
        )))
    }

    fn decode_label(&mut self, sample: &ArchiveSample, bytes: &[u8]) -> Result<Vec<u8>, DatasetError> {
        let text = std::str::from_utf8(bytes).unwrap_or_default().trim();
        let label: u32 = text.parse().map_err(|_| {
            let text: String = text.chars().take(40).collect();
            sample.error(format!("`{text}` is not a class number"))
        })?;
        self.largest_label = self.largest_label.max(u64::from(label));
        Ok(label.to_le_bytes().to_vec())
    }

    fn decode_text(&self, sample: &ArchiveSample, bytes: &[u8]) -> Result<Vec<u8>, DatasetError> {
        if std::str::from_utf8(bytes).is_err() || bytes.contains(&0) {
            return Err(sample.error("its text is not UTF-8 without zero bytes".to_owned()));
        }
        if bytes.len() > self.text_bytes {
            return Err(sample.error("it changed while it was read; send it again".to_owned()));
        }
        let mut padded = bytes.to_vec();
        padded.resize(self.text_bytes, 0);
        Ok(padded)
    }

    fn finish(self, classes: &[String]) -> Result<Vec<DraftColumn>, DatasetError> {
        let count = classes.len() as u64;
        if count > 0 && self.largest_label >= count {
            let reason = format!("label {} has no name: `classes` has {count}", self.largest_label);
            return Err(DatasetError::Description { reason });
        }
        let (image, text_bytes) = (self.image.unwrap_or_default(), self.text_bytes);
        let column = |(part, writer): (SamplePart, ColumnWriter<'_>)| {
            let (dtype, dims, classes) = match part {
                SamplePart::Image => (DType::U8, image.to_vec(), Vec::new()),
                SamplePart::Label => (DType::U32, Vec::new(), classes.to_vec()),
                SamplePart::Text => (DType::U8, vec![text_bytes], Vec::new()),
            };
            let shape = Shape::new(dims).map_err(|error| DatasetError::Description { reason: error.to_string() })?;
            let (name, item) = (part.field().to_owned(), Descriptor::new(dtype, shape));
            Ok(DraftColumn { name, item, classes, data: writer.finish()? })
        };
        self.columns.into_iter().map(column).collect()
    }
}
