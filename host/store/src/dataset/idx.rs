//! Imports IDX files by MNIST's file names: images and labels, for training and for testing.
//!
//! Source: the format as described with the MNIST database: a big-endian magic number (two zero bytes, the element
//! type, the number of dimensions), the dimensions, the elements.

use std::path::{Path, PathBuf};

use saggar_tensor::{DType, Descriptor, Shape};

use super::draft::{DatasetDraft, DraftColumn};
use super::source::{SourceReader, find_file};
use super::staging::{StagedColumn, StagingArea};
use crate::error::DatasetError;

/// Unsigned bytes in three dimensions.
const IMAGES: u32 = 0x0000_0803;
/// Unsigned bytes in one dimension.
const LABELS: u32 = 0x0000_0801;
const CLASSES: usize = 10;

/// The splits: name, images, labels.
const PARTS: [(&str, &str, &str); 2] = [
    ("train", "train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ("test", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
];

/// Returns whether the folder contains one of the files.
pub(super) fn detect(folder: &Path) -> bool {
    PARTS.iter().any(|(_, images, labels)| find_file(folder, images).is_some() || find_file(folder, labels).is_some())
}

/// Reads the four files: fields `image` and `label`, splits `train` and `test`.
pub(super) fn read(
    staging: &StagingArea<'_>,
    folder: &Path,
    description: String,
) -> Result<DatasetDraft, DatasetError> {
    let mut parts = Vec::new();
    for (part, images, labels) in PARTS {
        let images = IdxImages::read(staging, &find_required_file(folder, images)?)?;
        let labels = read_labels(staging, &find_required_file(folder, labels)?, &images)?;
        parts.push((part, images, labels));
    }
    let (_, first, _) = &parts[0];
    if let Some((_, other, _)) = parts.iter().find(|(_, images, _)| images.item != first.item) {
        return Err(DatasetError::ItemMismatch {
            file: other.file.clone(),
            found: Box::new(other.item.clone()),
            other: first.file.clone(),
            expected: Box::new(first.item.clone()),
        });
    }
    let item = first.item.clone();
    let (mut splits, mut items) = (Vec::new(), 0);
    let (mut pixels, mut classes) = (staging.writer(2)?.finish()?, staging.writer(2)?.finish()?);
    for (part, images, labels) in parts {
        splits.push((part.to_owned(), items, items + images.count));
        items += images.count;
        staging.append(&mut pixels, images.pixels)?;
        staging.append(&mut classes, labels)?;
    }
    let column = |name: &str, item, classes, data| DraftColumn { name: name.to_owned(), item, classes, data };
    let names = (0..CLASSES).map(|class| class.to_string()).collect();
    let label = Descriptor::new(DType::U8, Shape::scalar());
    let columns = vec![column("image", item, Vec::new(), pixels), column("label", label, names, classes)];
    Ok(DatasetDraft { columns, splits, items, description, notes: Vec::new() })
}

fn find_required_file(folder: &Path, name: &str) -> Result<PathBuf, DatasetError> {
    find_file(folder, name).ok_or_else(|| DatasetError::MissingFile {
        file: format!("{name}[.gz]"),
        needed_by: "a dataset of IDX files".to_owned(),
    })
}

struct IdxImages {
    file: String,
    item: Descriptor,
    count: u64,
    pixels: StagedColumn,
}

impl IdxImages {
    fn read(staging: &StagingArea<'_>, path: &Path) -> Result<IdxImages, DatasetError> {
        let mut source = SourceReader::open(path)?;
        let [count, height, width] = read_header(&mut source, IMAGES, "unsigned bytes, 3 dimensions")?;
        let file = source.name.clone();
        if count == 0 || height == 0 || width == 0 {
            return Err(DatasetError::Empty { file });
        }
        let size = height.checked_mul(width).and_then(|n| n.checked_mul(count));
        let size = staging.check_size(&file, size)?;
        let mut pixels = staging.writer(1)?;
        source.copy_to_column(size, size + 16, &mut pixels, |_, _| Ok(()))?;
        source.expect_end()?;
        let pixels = pixels.finish()?;
        let too_large = |_| DatasetError::TooLarge { what: file.clone(), max: 1 << 31, unit: "pixels an image" };
        let shape = Shape::new([height as usize, width as usize]).map_err(too_large)?;
        Ok(IdxImages { item: Descriptor::new(DType::U8, shape), file, count, pixels })
    }
}

fn read_labels(staging: &StagingArea<'_>, path: &Path, images: &IdxImages) -> Result<StagedColumn, DatasetError> {
    let mut source = SourceReader::open(path)?;
    let [count] = read_header(&mut source, LABELS, "unsigned bytes, 1 dimension")?;
    let file = source.name.clone();
    if count != images.count {
        let (other, expected) = (images.file.clone(), images.count);
        return Err(DatasetError::CountMismatch { file, found: count, other, expected });
    }
    let mut labels = staging.writer(1)?;
    source.copy_to_column(count, count + 8, &mut labels, |piece, before| {
        let Some(at) = piece.iter().position(|label| usize::from(*label) >= CLASSES) else { return Ok(()) };
        let (file, label) = (file.clone(), piece[at].into());
        Err(DatasetError::LabelOutOfRange { file, offset: 8 + before + at as u64, label, classes: CLASSES })
    })?;
    source.expect_end()?;
    labels.finish()
}

/// Reads the header and returns the dimensions. The magic number must be `expected`.
fn read_header<const N: usize>(
    source: &mut SourceReader<'_>,
    expected: u32,
    format: &'static str,
) -> Result<[u64; N], DatasetError> {
    let total = 4 + 4 * N as u64;
    let mut number = || {
        let bytes = source.take_bytes(4, total)?;
        Ok::<_, DatasetError>(bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
    };
    let found = number()?;
    if found != expected {
        let file = source.name.clone();
        return Err(DatasetError::BadMagic { file, found, expected, format });
    }
    let mut dims = [0; N];
    for dim in &mut dims {
        *dim = u64::from(number()?);
    }
    Ok(dims)
}
