//! Start images, and statistics of the result.

use saggar_plugin::{BatchOptions, Dataset, Error, Result, named};

/// Loads item `item` of the dataset at `/data`, as numbers from 0 to 1.
///
/// # Errors
/// Returns `Shape` if the dataset's images do not have the shape `image`; `Parameter` if the dataset has no such item.
pub(crate) fn load_item(image: &[u32], item: u64) -> Result<Vec<f32>> {
    let data = Dataset::open("/data")?;
    let shape = data.field("image")?.item.shape;
    if shape != image {
        let what = "a picture of the dataset".to_owned();
        return Err(Error::Shape { what, expected: "one of the classifier's", given: shape });
    }
    let options = BatchOptions { size: 1, shuffle_seed: None, drop_last: false, split: None };
    let batches = data.batches(&["image".to_owned()], &options)?;
    for _ in 0..item {
        if batches.next_batch()?.is_none() {
            break;
        }
    }
    let count = data.count(None)?;
    match batches.next_batch()? {
        Some(batch) if item < count => {
            Ok(named(&batch, "image")?.read()?.into_iter().map(|pixel| f32::from(pixel) / 255.0).collect())
        }
        _ => {
            let (name, given) = ("item".to_owned(), item.to_string());
            Err(Error::Parameter { name, expected: format!("an item below {count}"), given })
        }
    }
}

/// Returns the darkest and the lightest pixel.
pub(crate) fn pixel_range(pixels: &[f32]) -> (f32, f32) {
    pixels.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), pixel| (low.min(*pixel), high.max(*pixel)))
}

/// Returns the mean absolute difference between the pixels of two images.
pub(crate) fn mean_change(begin: &[f32], end: &[f32]) -> f64 {
    let sum: f64 = begin.iter().zip(end).map(|(a, b)| f64::from((a - b).abs())).sum();
    sum / begin.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_change_averages_pixel_differences() {
        assert_eq!(mean_change(&[0.0, 1.0, 0.5, 0.5], &[0.5, 0.0, 0.5, 1.0]), 0.5);
        assert_eq!(pixel_range(&[0.25, 1.0, 0.0]), (0.0, 1.0));
    }
}
