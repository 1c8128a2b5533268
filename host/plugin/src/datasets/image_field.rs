//! Fields of images that a training gets preprocessed.

use std::borrow::Cow;
use std::sync::Arc;

use saggar_store::ImagePreprocessing;
use saggar_store::dataset::DatasetField;
use saggar_store::image_decoder::DecodedImage;
use saggar_tensor::DType;

use crate::host_error::HostError;

/// The preprocessing of a field, and the size of the images that the dataset stores.
#[derive(Clone, Debug)]
pub(super) struct ImageField {
    preprocessing: Arc<ImagePreprocessing>,
    height: usize,
    width: usize,
    channels: usize,
}

impl ImageField {
    /// Returns the preprocessing of a field.
    ///
    /// # Errors
    /// Invalid argument if the field does not store images.
    pub(super) fn new(preprocessing: &ImagePreprocessing, field: &DatasetField) -> Result<ImageField, HostError> {
        let Some((height, width, channels)) = image_shape(field) else {
            let message = format!(
                "it has a declared preprocessing and stores {}: only images have one, uint8[height, width] or \
                 uint8[height, width, channels] of 1 to 4 channels",
                field.item
            );
            return Err(HostError::invalid_at(&field.name, message));
        };
        Ok(ImageField { preprocessing: Arc::new(preprocessing.clone()), height, width, channels })
    }

    /// Returns the field as the training gets it.
    pub(super) fn delivered(&self, field: &DatasetField) -> DatasetField {
        DatasetField { item: self.preprocessing.input_item(), ..field.clone() }
    }

    /// Returns the preprocessed images of stored ones.
    pub(super) fn preprocess(&self, stored: &[u8]) -> Vec<u8> {
        let &ImageField { height, width, channels, .. } = self;
        let is_ready = self.preprocessing.pixels_item().bytes() == height * width * channels
            && (height, width) == (self.preprocessing.resize.height, self.preprocessing.resize.width);
        let pixels: Cow<'_, [u8]> = if is_ready {
            Cow::Borrowed(stored)
        } else {
            let images = stored.chunks_exact(height * width * channels);
            let image = |pixels: &[u8]| {
                self.preprocessing.pixels(&DecodedImage { height, width, channels, pixels: pixels.to_vec() })
            };
            Cow::Owned(images.flat_map(image).collect())
        };
        self.preprocessing.normalize(&pixels)
    }
}

/// Returns height, width and channels of a field of images, else `None`.
pub(super) fn image_shape(field: &DatasetField) -> Option<(usize, usize, usize)> {
    let shape = match *field.item.shape.dims() {
        [height, width] => (height, width, 1),
        [height, width, channels @ 1..=4] => (height, width, channels),
        _ => return None,
    };
    (field.item.dtype == DType::U8 && shape.0 > 0 && shape.1 > 0).then_some(shape)
}
