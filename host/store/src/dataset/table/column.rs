//! A column of a table as read so far: values in their stored form, in a file of the staging directory.

use saggar_tensor::DType;

use super::super::description::ImageSize;
use super::super::staging::ColumnWriter;
use super::ColumnResult;
use super::classes::ClassNames;
use super::nulls::NullRows;
use crate::error::DatasetError;
use crate::image_decoder::{self, DecodedImage};
use crate::image_resizer::resize_picture;
use crate::limits::{IMAGE_BYTES_MAX, TEXT_LINE_BYTES_MAX};

/// Bytes of the length prefix of a text.
pub(in super::super) const LENGTH_BYTES: usize = size_of::<u32>();

/// The channels of images that are converted to another size.
const RGB: usize = 3;

/// The type that a value is converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum ValueKind {
    /// An element of this data type.
    Number(DType),
    /// This number of `uint8` elements.
    Bytes(usize),
    /// UTF-8.
    Text,
    /// A PNG, JPEG or WebP file, decoded to `uint8` elements.
    Image,
    /// The index of a class, whose name the file has.
    Class,
}

impl ValueKind {
    /// Returns the bytes of a value in a column. For texts, the bytes of the stored length only; their content is
    /// counted while it is read.
    pub(in super::super) fn value_bytes(self) -> usize {
        match self {
            ValueKind::Number(dtype) => dtype.bytes(),
            ValueKind::Bytes(length) => length,
            ValueKind::Text => LENGTH_BYTES,
            // The pixels are counted while they are decoded.
            ValueKind::Image => 1,
            ValueKind::Class => size_of::<u32>(),
        }
    }
}

/// A column as read so far, over all files.
pub(in super::super) struct TableColumn<'s> {
    pub(in super::super) kind: ValueKind,
    /// For a list, its length, which the first row determines.
    pub(in super::super) length: Option<usize>,
    /// Values, little-endian; each text is preceded by its length in [`LENGTH_BYTES`], and a class has 32 bits.
    pub(super) data: ColumnWriter<'s>,
    /// Bytes of the longest text.
    pub(super) longest: usize,
    /// Height, width and channels of its images, which the first one determines.
    pub(super) image: Option<[usize; 3]>,
    /// For classes, their names.
    pub(in super::super) classes: ClassNames,
    pub(super) options: ColumnOptions,
    /// The rows without a value, over all files. The column has zeros or an empty text there.
    pub(super) nulls: NullRows,
    /// The reason why the last value could not be written.
    failure: Option<DatasetError>,
}

/// How values are read that are missing or differ in size.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct ColumnOptions {
    /// Whether rows can have no value.
    pub(in super::super) allows_nulls: bool,
    /// The size that images are converted to, in RGB.
    pub(in super::super) resize: Option<ImageSize>,
}

impl<'s> TableColumn<'s> {
    /// Returns an empty column. `classes` are the names that a description gives to classes.
    pub(super) fn new(
        kind: ValueKind,
        data: ColumnWriter<'s>,
        options: ColumnOptions,
        classes: &[String],
    ) -> TableColumn<'s> {
        let (image, nulls, classes) = (None, NullRows::default(), ClassNames::described(classes));
        TableColumn { kind, length: None, data, longest: 0, image, classes, options, nulls, failure: None }
    }

    /// Returns the bytes written so far.
    pub(in super::super) fn bytes(&self) -> u64 {
        self.data.bytes()
    }

    /// Returns the error of the last value that could not be written, if there is one.
    pub(in super::super) fn take_failure(&mut self) -> Option<DatasetError> {
        self.failure.take()
    }

    /// Appends bytes of values.
    pub(in super::super) fn write(&mut self, bytes: &[u8]) -> ColumnResult<()> {
        self.data.push(bytes).map_err(|error| {
            let reason = error.to_string();
            self.failure = Some(error);
            reason
        })
    }

    /// Records that a row has no value. `row` counts from 1 in its file, and `earlier` rows are in earlier files.
    pub(in super::super) fn add_null(&mut self, row: u64, earlier: u64) -> ColumnResult<()> {
        if self.kind == ValueKind::Image {
            return Err(null_value_error(row));
        }
        if !self.options.allows_nulls {
            return Err(null_error(row));
        }
        self.nulls.add(earlier + row - 1)
    }

    /// Appends a value in place of a null: zeros, or an empty text.
    pub(in super::super) fn push_placeholder(&mut self) -> ColumnResult<()> {
        if self.kind == ValueKind::Image {
            return Err("a null among images".to_owned());
        }
        self.write(&vec![0; self.kind.value_bytes()])
    }

    /// Appends the pixels of an image. All have one size, or are converted to one.
    pub(in super::super) fn push_image(&mut self, bytes: &[u8], bytes_max: u64) -> ColumnResult<()> {
        let mut image = image_decoder::decode(bytes, IMAGE_BYTES_MAX).map_err(|error| error.to_string())?;
        if let Some(ImageSize { width, height }) = self.options.resize {
            let pixels = resize_picture(&image, height, width, RGB);
            image = DecodedImage { height, width, channels: RGB, pixels };
        }
        let found = [image.height, image.width, image.channels];
        let expected = *self.image.get_or_insert(found);
        if found != expected {
            return Err(format!(
                "an image of {found:?} (height, width, channels), and the first has {expected:?}; `--resize \
                 WIDTHxHEIGHT` converts all to one size"
            ));
        }
        self.write(&image.pixels)?;
        if self.bytes() > bytes_max {
            return Err(format!("its images have more than {bytes_max} bytes together; is the file damaged?"));
        }
        Ok(())
    }

    /// Appends a text under the rules for text files: UTF-8, without zero bytes, which mark the end.
    pub(in super::super) fn push_text(&mut self, bytes: &[u8], bytes_max: u64) -> ColumnResult<()> {
        if bytes.len() > TEXT_LINE_BYTES_MAX {
            return Err(format!("a text of more than {TEXT_LINE_BYTES_MAX} bytes; break it into several"));
        }
        if let Err(error) = std::str::from_utf8(bytes) {
            return Err(format!("byte {} of its text is not valid UTF-8", error.valid_up_to()));
        }
        if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
            return Err(format!("byte {at} of its text is 0, which marks the end of a text"));
        }
        self.longest = self.longest.max(bytes.len());
        let length = u32::try_from(bytes.len()).expect("at most TEXT_LINE_BYTES_MAX");
        self.write(&length.to_le_bytes())?;
        self.write(bytes)?;
        if self.bytes() > bytes_max {
            return Err(format!("its texts have more than {bytes_max} bytes together; is the file damaged?"));
        }
        Ok(())
    }
}

/// Refuses an empty list, and one whose length differs from the first one's.
pub(in super::super) fn check_list_length(row: u64, found: usize, length: &mut Option<usize>) -> ColumnResult<()> {
    let expected = *length.get_or_insert(found);
    if found == 0 {
        return Err(format!("row {row}: an empty list; a column's lists have numbers in them"));
    }
    if found != expected {
        return Err(format!(
            "row {row}: a list of {found} numbers, and the first has {expected}; pad or cut them to one length"
        ));
    }
    Ok(())
}

/// Returns the error of a null that a policy can handle.
pub(in super::super) fn null_error(row: u64) -> String {
    format!("row {row}: a null; push with `--missing drop` to leave such rows out, or with `--missing mean`")
}

/// Returns the error of a null in a list or an image, for which there is no policy.
pub(in super::super) fn null_value_error(row: u64) -> String {
    format!("row {row}: a null; fill it or leave the row out")
}
