//! Declarations of the preprocessing of image inputs.

use std::collections::btree_map::Entry;

use saggar_store::{
    ImageColors, ImageFit, ImageLayout, ImageNormalization, ImagePreprocessing, ImagePreprocessingError, ImageResize,
};
use saggar_tensor::limits::NAME_BYTES_MAX;

use super::train_role::TrainRole;
use crate::bindings::graphs::InputOperandLayout;
use crate::bindings::job::{
    ImageColors as WitColors, ImageFit as WitFit, ImageNormalization as WitNormalization,
    ImagePreprocessing as WitPreprocessing, MeanAndScale,
};
use crate::host_error::HostError;
use crate::limits::SIGNATURE_PORTS_MAX;

/// Declares the preprocessing of an input of the models that a training publishes.
///
/// # Errors
/// Invalid argument for a declaration that cannot be applied, that differs from an earlier one, or that comes after
/// batches of the field; out of memory for too many.
pub(super) fn declare(train: &mut TrainRole, name: String, declared: WitPreprocessing) -> Result<(), HostError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(HostError::invalid(format!("an input's name has 1 to {NAME_BYTES_MAX} bytes, not {}", name.len())));
    }
    let refused = |error: ImagePreprocessingError| HostError::invalid_at(&name, format!("its preprocessing: {error}"));
    let preprocessing = from_wit(declared);
    preprocessing.check().map_err(refused)?;
    let (is_drawn, count) = (train.batch_fields.contains(&name), train.image_inputs.len());
    match train.image_inputs.entry(name) {
        Entry::Occupied(known) if *known.get() == preprocessing => Ok(()),
        Entry::Occupied(known) => {
            Err(HostError::invalid_at(known.key(), "another preprocessing of it is declared: declare it once"))
        }
        Entry::Vacant(entry) if is_drawn => Err(HostError::invalid_at(
            entry.key(),
            "batches of it were created without preprocessing: declare it before them",
        )),
        Entry::Vacant(_) if count >= SIGNATURE_PORTS_MAX => {
            Err(HostError::out_of_memory(format!("a training declares at most {SIGNATURE_PORTS_MAX} image inputs")))
        }
        Entry::Vacant(entry) => {
            entry.insert(preprocessing);
            Ok(())
        }
    }
}

fn from_wit(declared: WitPreprocessing) -> ImagePreprocessing {
    let WitPreprocessing { height, width, fit, colors, normalization, layout } = declared;
    let fit = match fit {
        WitFit::Stretch => ImageFit::Stretch,
        WitFit::Crop => ImageFit::Crop,
    };
    ImagePreprocessing {
        resize: ImageResize { height: height as usize, width: width as usize, fit },
        colors: match colors {
            WitColors::Grey => ImageColors::Grey,
            WitColors::Rgb => ImageColors::Rgb,
        },
        normalization: match normalization {
            WitNormalization::MeanAndScale(MeanAndScale { mean, scale }) => {
                ImageNormalization::MeanAndScale { mean, scale }
            }
            WitNormalization::PerImageStandardization => ImageNormalization::PerImageStandardization,
        },
        layout: match layout {
            InputOperandLayout::Nchw => ImageLayout::Nchw,
            InputOperandLayout::Nhwc => ImageLayout::Nhwc,
        },
    }
}
