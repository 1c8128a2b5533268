//! The wrong predictions of the held-out part, as images and as a table.

use saggar_plugin::{ColumnValues, DataType, ImageLayout, Job, Result, Tensor, descriptor};

use crate::model::LenetConfig;

/// An item that was classified as another class.
#[derive(Debug)]
struct WrongPrediction {
    /// The bytes of the image.
    pixels: Vec<u8>,
    truth: i32,
    predicted: i32,
}

/// The first wrong predictions, up to a number of them.
#[derive(Debug)]
pub(crate) struct WrongPredictions {
    count_max: usize,
    found: Vec<WrongPrediction>,
}

impl WrongPredictions {
    pub(crate) fn new(count_max: u32) -> Self {
        Self { count_max: count_max as usize, found: Vec::new() }
    }

    /// Adds the wrong predictions of a batch. Shape of `images`: `uint8[batch, image...]`, or `float32[batch, colors,
    /// height, width]` of standardized images; the classes are those of its items.
    ///
    /// # Errors
    /// Returns `Host` if the images cannot be read.
    pub(crate) fn collect(&mut self, images: &Tensor, truth: &[i32], predicted: &[i32]) -> Result<()> {
        let wrong = truth.iter().zip(predicted).enumerate().filter(|(_, (truth, predicted))| truth != predicted);
        let wrong: Vec<_> = wrong.take(self.count_max - self.found.len()).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let pixels = match images.descriptor().data_type {
            // Four deviations in each direction fill the range of a byte.
            DataType::Float32 => images.read_f32()?.into_iter().map(|value| (value * 32.0 + 127.5) as u8).collect(),
            _ => images.read()?,
        };
        let items = images.descriptor().shape.first().copied().unwrap_or(1).max(1) as usize;
        let bytes = pixels.len() / items;
        for (at, (&truth, &predicted)) in wrong {
            self.found.push(WrongPrediction { pixels: pixels[at * bytes..][..bytes].to_vec(), truth, predicted });
        }
        Ok(())
    }

    /// Logs the images as `wrong/01`, `wrong/02`, ..., and a table `wrong` with the classes of each.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an image.
    pub(crate) fn log(&self, job: &Job, step: u64, config: &LenetConfig) -> Result<()> {
        if self.found.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = (1..=self.found.len()).map(|number| format!("wrong/{number:02}")).collect();
        let LenetConfig { height, width, colors, .. } = *config;
        let (image, layout) = match config.per_image {
            true => (descriptor(DataType::Uint8, [colors, height, width]), ImageLayout::Chw),
            false => (descriptor(DataType::Uint8, [height, width, colors]), ImageLayout::Hwc),
        };
        for (name, wrong) in names.iter().zip(&self.found) {
            job.log_image(step, name, &Tensor::from_bytes(&image, &wrong.pixels)?, layout)?;
        }
        let class =
            |class: i32| usize::try_from(class).ok().and_then(|class| config.classes.names().get(class).cloned());
        let classes = |of: fn(&WrongPrediction) -> i32| {
            ColumnValues::Texts(self.found.iter().map(|wrong| class(of(wrong)).unwrap_or_default()).collect())
        };
        let columns = [
            ("image", ColumnValues::Texts(names)),
            ("class", classes(|wrong| wrong.truth)),
            ("predicted", classes(|wrong| wrong.predicted)),
        ];
        job.log_table(step, "wrong", columns)
    }
}
