//! Imports folders of images: one folder of PNG, JPEG and WebP files per class, or folders `train`, `test` of such
//! folders.
//!
//! ```text
//! cat/1.png  cat/2.jpg  dog/1.png         one split, train
//! train/cat/1.png  test/dog/1.png         splits by their names
//! ```
//!
//! All images must have the same size and number of channels, unless the description has a size: then all are converted
//! to it, to RGB if one of them has colours, else to grey. 16-bit samples are reduced to 8 bits, and palettes are
//! resolved. Classes are numbered in the order of their names.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use saggar_tensor::{DType, Descriptor, Shape};

use super::description::{DEFAULT_SPLIT, ImageFoldersDescription, ImageSize};
use super::draft::{DatasetDraft, DraftColumn};
use super::staging::{ColumnWriter, StagingArea};
use crate::error::{DatasetError, StoreError};
use crate::image_decoder::{self, DecodedImage};
use crate::image_resizer::resize_picture;
use crate::limits::{DATASET_NAMES_MAX, IMAGE_BYTES_MAX};
use crate::regular_file;

const IMAGE_EXTENSIONS: [&str; 4] = ["png", "jpg", "jpeg", "webp"];
/// Extensions of unsupported image formats.
const UNSUPPORTED_EXTENSIONS: [&str; 6] = ["gif", "bmp", "tif", "tiff", "avif", "heic"];

/// For each split, the images of each class.
type ImagesBySplit = BTreeMap<String, BTreeMap<String, Vec<PathBuf>>>;

/// Returns whether its subfolders, or their subfolders, contain images.
pub(super) fn detect(folder: &Path) -> bool {
    let holds =
        |folder: &PathBuf| list_folder(folder).is_ok_and(|entries| entries.files.iter().any(|file| is_image(file)));
    let Ok(entries) = list_folder(folder) else { return false };
    let deeper = |folder: &PathBuf| list_folder(folder).is_ok_and(|entries| entries.folders.iter().any(holds));
    entries.folders.iter().any(|folder| holds(folder) || deeper(folder))
}

/// Returns a hint for an error about unsupported formats, such as ` (.gif pictures are not read; ...)`; empty if the
/// folder has no such files.
pub(super) fn unsupported_images_hint(folder: &Path) -> String {
    let ending = |path: &PathBuf| {
        let ending = path.extension()?.to_str()?.to_lowercase();
        UNSUPPORTED_EXTENSIONS.iter().find(|refused| **refused == ending).copied()
    };
    let mut found = BTreeSet::new();
    let mut left = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = left.pop() {
        let Ok(entries) = list_folder(&folder) else { continue };
        found.extend(entries.files.iter().filter_map(ending));
        if depth < 2 {
            left.extend(entries.folders.into_iter().map(|folder| (folder, depth + 1)));
        }
    }
    match found.iter().map(|ending| format!(".{ending}")).collect::<Vec<_>>() {
        none if none.is_empty() => String::new(),
        found => format!("; {} pictures are not read: make PNG, JPEG or WebP files of them", found.join(", ")),
    }
}

/// Reads the images: fields `image` (`uint8[height, width, channels]`) and `label`.
pub(super) fn read(
    staging: &StagingArea<'_>,
    folder: &Path,
    description: ImageFoldersDescription,
) -> Result<DatasetDraft, DatasetError> {
    let parts = list_splits(folder)?;
    let classes: BTreeSet<&String> = parts.values().flat_map(BTreeMap::keys).collect();
    let numbers: BTreeMap<&String, u64> = classes.iter().copied().zip(0..).collect();
    if classes.len() > DATASET_NAMES_MAX {
        let what = "the dataset".to_owned();
        return Err(DatasetError::TooLarge { what, max: DATASET_NAMES_MAX as u64, unit: "classes" });
    }
    // One byte per label, as in other formats, if they fit.
    let dtype = if classes.len() <= 256 { DType::U8 } else { DType::U32 };
    let resize = match description.resize {
        Some(size) => Some(ResizedShape::of(folder, &parts, size)?),
        None => None,
    };
    let (mut splits, mut items) = (Vec::new(), 0u64);
    let mut labels = staging.writer(2)?;
    let mut images = ImageColumn { staging, folder, resize, pixels: staging.writer(2)?, first: None, resized: 0 };
    for (part, folders) in &parts {
        let begin = items;
        for (class, files) in folders {
            for path in files {
                images.append(path)?;
                labels.push(&numbers[class].to_le_bytes()[..dtype.bytes()])?;
                items += 1;
            }
        }
        splits.push((part.clone(), begin, items));
    }
    let notes = images.note(items).into_iter().collect();
    let Some((_, item)) = images.first else {
        return Err(DatasetError::Empty { file: "the folder".to_owned() });
    };
    let classes = classes.into_iter().cloned().collect();
    let column = |name: &str, item, classes, data| DraftColumn { name: name.to_owned(), item, classes, data };
    let (pixels, labels) = (images.pixels.finish()?, labels.finish()?);
    let label = Descriptor::new(dtype, Shape::scalar());
    let columns = vec![column("image", item, Vec::new(), pixels), column("label", label, classes, labels)];
    Ok(DatasetDraft { columns, splits, items, description: description.description, notes })
}

/// The size and channels that images are converted to.
#[derive(Clone, Copy)]
struct ResizedShape {
    height: usize,
    width: usize,
    channels: usize,
}

impl ResizedShape {
    /// Returns the shape for these images: with 3 channels if one of them has colours, else with 1.
    fn of(folder: &Path, parts: &ImagesBySplit, size: ImageSize) -> Result<ResizedShape, DatasetError> {
        let ImageSize { width, height } = size.checked()?;
        for path in parts.values().flat_map(BTreeMap::values).flatten() {
            let bytes = read_file(folder, path)?;
            if image_decoder::has_colours(&bytes) {
                return Ok(ResizedShape { height, width, channels: 3 });
            }
        }
        Ok(ResizedShape { height, width, channels: 1 })
    }
}

/// The column of the images' pixels.
struct ImageColumn<'s> {
    staging: &'s StagingArea<'s>,
    folder: &'s Path,
    resize: Option<ResizedShape>,
    pixels: ColumnWriter<'s>,
    /// The first image: its path in the folder and its item.
    first: Option<(String, Descriptor)>,
    /// The images that had another size or other channels.
    resized: u64,
}

impl ImageColumn<'_> {
    /// Appends an image's pixels.
    fn append(&mut self, path: &Path) -> Result<(), DatasetError> {
        let file = relative_name(self.folder, path);
        let bytes = read_file(self.folder, path)?;
        let decoded = image_decoder::decode(&bytes, IMAGE_BYTES_MAX);
        let malformed = |error: image_decoder::ImageDecodeError| DatasetError::Malformed {
            file: file.clone(),
            reason: error.to_string(),
        };
        let mut image = decoded.map_err(malformed)?;
        if let Some(to) = self.resize
            && (image.height, image.width, image.channels) != (to.height, to.width, to.channels)
        {
            let pixels = resize_picture(&image, to.height, to.width, to.channels);
            image = DecodedImage { height: to.height, width: to.width, channels: to.channels, pixels };
            self.resized += 1;
        }
        self.staging.check_size("the images", Some(self.pixels.bytes() + image.pixels.len() as u64))?;
        self.pixels.push(&image.pixels)?;
        let shape =
            Shape::new([image.height, image.width, image.channels]).expect("as many elements as bytes that are there");
        let item = Descriptor::new(DType::U8, shape);
        let (other, expected) = self.first.get_or_insert_with(|| (file.clone(), item.clone()));
        if item == *expected {
            return Ok(());
        }
        let (found, expected) = (Box::new(item), Box::new(expected.clone()));
        Err(DatasetError::ImageMismatch { file, found, other: other.clone(), expected })
    }

    /// Returns a note if images were converted.
    fn note(&self, items: u64) -> Option<String> {
        let ResizedShape { height, width, channels } = self.resize?;
        let colours = if channels == 3 { "RGB" } else { "grey" };
        let resized = self.resized;
        Some(format!("{resized} of {items} images were converted to {width} x {height} pixels in {colours}"))
    }
}

/// Reads the file of an image.
fn read_file(folder: &Path, path: &Path) -> Result<Vec<u8>, DatasetError> {
    match regular_file::read(path, IMAGE_BYTES_MAX as u64) {
        Err(error) if error.kind() == ErrorKind::FileTooLarge => {
            let what = relative_name(folder, path);
            Err(DatasetError::TooLarge { what, max: IMAGE_BYTES_MAX as u64, unit: "bytes" })
        }
        read => Ok(read.map_err(StoreError::io(path))?),
    }
}

/// Returns the images by split and class, each sorted.
fn list_splits(folder: &Path) -> Result<ImagesBySplit, DatasetError> {
    let malformed = |path: &Path, reason: String| DatasetError::Malformed { file: relative_name(folder, path), reason };
    let tops = list_folder(folder)?.folders;
    let mut listed = Vec::with_capacity(tops.len());
    for top in &tops {
        listed.push((top, list_folder(top)?));
    }
    let has_folders = |(_, entries): &&(&PathBuf, FolderEntries)| !entries.folders.is_empty();
    let Some((deep, _)) = listed.iter().find(has_folders) else {
        let classes = listed.into_iter().map(|(class, entries)| list_class_images(folder, class, entries));
        return Ok(ImagesBySplit::from([(DEFAULT_SPLIT.to_owned(), classes.collect::<Result<_, _>>()?)]));
    };
    let mut parts = ImagesBySplit::new();
    for (part, entries) in &listed {
        if let Some(file) = entries.files.first() {
            let reason = format!(
                "a file beside folders of classes; {} contains folders, so {}",
                relative_name(folder, deep),
                "this folder is a split, in which files must be in a folder per class"
            );
            return Err(malformed(file, reason));
        }
        let mut classes = BTreeMap::new();
        for class in &entries.folders {
            let (name, files) = list_class_images(folder, class, list_folder(class)?)?;
            classes.insert(name, files);
        }
        if classes.is_empty() {
            return Err(DatasetError::Empty { file: relative_name(folder, part) });
        }
        parts.insert(file_name(part), classes);
    }
    Ok(parts)
}

/// Returns a class and its images.
fn list_class_images(
    folder: &Path,
    class: &Path,
    entries: FolderEntries,
) -> Result<(String, Vec<PathBuf>), DatasetError> {
    if let Some(deep) = entries.folders.first() {
        let reason = "a folder in a class; folders are classes, or parts with classes in them".to_owned();
        return Err(DatasetError::Malformed { file: relative_name(folder, deep), reason });
    }
    if entries.files.is_empty() {
        return Err(DatasetError::Empty { file: relative_name(folder, class) });
    }
    if let Some(other) = entries.files.iter().find(|file| !is_image(file)) {
        let reason = format!("no image; the folder of a class holds files in {} only", IMAGE_EXTENSIONS.join(", "));
        return Err(DatasetError::Malformed { file: relative_name(folder, other), reason });
    }
    Ok((file_name(class), entries.files))
}

/// The entries of a folder, sorted; names that begin with a dot are omitted.
struct FolderEntries {
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

fn list_folder(folder: &Path) -> Result<FolderEntries, DatasetError> {
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for entry in folder.read_dir().map_err(StoreError::io(folder))? {
        let path = entry.map_err(StoreError::io(folder))?.path();
        if file_name(&path).starts_with('.') {
            continue;
        }
        if path.is_dir() { folders.push(path) } else { files.push(path) }
    }
    folders.sort();
    files.sort();
    Ok(FolderEntries { folders, files })
}

fn is_image(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    ending.is_some_and(|ending| IMAGE_EXTENSIONS.contains(&&*ending))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn relative_name(folder: &Path, path: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned()
}
