use super::*;

fn rgb(normalization: ImageNormalization, layout: ImageLayout) -> ImagePreprocessing {
    let resize = ImageResize { height: 2, width: 2, fit: ImageFit::Stretch };
    ImagePreprocessing { resize, colors: ImageColors::Rgb, normalization, layout }
}

fn mean_and_scale(mean: &[f32], scale: &[f32]) -> ImageNormalization {
    ImageNormalization::MeanAndScale { mean: mean.to_vec(), scale: scale.to_vec() }
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)).collect()
}

const PIXELS: [u8; 12] = [0, 1, 2, 10, 11, 12, 100, 101, 102, 200, 201, 202];

#[test]
fn mean_and_scale_are_of_each_channel_in_both_layouts() {
    let normalization = || mean_and_scale(&[0.0, 1.0, 2.0], &[1.0, 2.0, -0.5]);
    let planes = rgb(normalization(), ImageLayout::Nchw).normalize(&PIXELS);
    let expected = [0.0, 10.0, 100.0, 200.0, 0.0, 20.0, 200.0, 400.0, 0.0, -5.0, -50.0, -100.0];
    assert_eq!(numbers(&planes), expected);
    let pixels = rgb(normalization(), ImageLayout::Nhwc).normalize(&PIXELS);
    let expected = [0.0, 0.0, 0.0, 10.0, 20.0, -5.0, 100.0, 200.0, -50.0, 200.0, 400.0, -100.0];
    assert_eq!(numbers(&pixels), expected);
}

#[test]
fn standardized_images_have_mean_0_and_deviation_1_each_by_itself() {
    let preprocessing = rgb(ImageNormalization::PerImageStandardization, ImageLayout::Nhwc);
    let found = numbers(&preprocessing.normalize(&[&PIXELS[..], &[7; 12]].concat()));
    let mean = PIXELS.iter().map(|&it| f64::from(it)).sum::<f64>() / 12.0;
    let variance = PIXELS.iter().map(|&it| (f64::from(it) - mean).powi(2)).sum::<f64>() / 12.0;
    for (found, pixel) in found.iter().zip(PIXELS) {
        let expected = (f64::from(pixel) - mean) / variance.sqrt();
        assert!((f64::from(*found) - expected).abs() < 1e-6, "{found} is not {expected}");
    }
    assert_eq!(found[12..], [0.0; 12], "equal pixels");
}

/// One pixel of 27,648 differs by 1: the deviation is less than its least value.
#[test]
fn a_small_deviation_is_raised_to_its_least_value() {
    let resize = ImageResize { height: 96, width: 96, fit: ImageFit::Stretch };
    let preprocessing =
        ImagePreprocessing { resize, ..rgb(ImageNormalization::PerImageStandardization, ImageLayout::Nhwc) };
    let mut pixels = vec![100; 27_648];
    pixels[0] = 101;
    let found = f64::from(numbers(&preprocessing.normalize(&pixels))[0]);
    let (count, mean) = (27_648f64, 100.0 + 1.0 / 27_648.0);
    let deviation = ((1.0 - 1.0 / count) / count).sqrt().max(1.0 / count.sqrt());
    assert!((found - (101.0 - mean) / deviation).abs() < 1e-3 * 1e-2, "{found}");
}

#[test]
fn a_cropped_image_loses_its_edges_and_a_stretched_one_its_proportions() {
    // A row of four grey pixels becomes two.
    let picture = DecodedImage { height: 1, width: 4, channels: 1, pixels: vec![0, 40, 80, 200] };
    let pixels = |fit, height, width| {
        let resize = ImageResize { height, width, fit };
        let normalization = mean_and_scale(&[0.0], &[1.0]);
        let it = ImagePreprocessing { resize, colors: ImageColors::Grey, normalization, layout: ImageLayout::Nchw };
        it.check().unwrap();
        it.pixels(&picture)
    };
    assert_eq!(pixels(ImageFit::Stretch, 1, 2), [20, 140]);
    assert_eq!(pixels(ImageFit::Crop, 1, 2), [40, 80]);
    assert_eq!(pixels(ImageFit::Crop, 1, 4), [0, 40, 80, 200], "its own proportions");
    assert_eq!(pixels(ImageFit::Crop, 1, 1), [40]);
}

#[test]
fn declarations_that_cannot_be_applied_are_refused_with_the_fix() {
    let declare = |normalization| rgb(normalization, ImageLayout::Nchw);
    let sized = |height, width| {
        let resize = ImageResize { height, width, fit: ImageFit::Crop };
        ImagePreprocessing { resize, ..declare(ImageNormalization::PerImageStandardization) }
    };
    let two = [1.0, 1.0];
    let three = [1.0; 3];
    for (declared, expected) in [
        (declare(mean_and_scale(&two, &three)), "mean: 2 values, and the image has 3 channels; declare 3"),
        (declare(mean_and_scale(&three, &two)), "scale: 2 values, and the image has 3 channels; declare 3"),
        (
            declare(mean_and_scale(&three, &[1.0, 0.0, 1.0])),
            "scale: the value of channel 1 is 0; declare a finite number other than 0",
        ),
        (
            declare(mean_and_scale(&[1.0, 1.0, f32::NAN], &three)),
            "mean: the value of channel 2 is NaN; declare a finite number",
        ),
        (
            declare(mean_and_scale(&three, &[f32::INFINITY, 1.0, 1.0])),
            "scale: the value of channel 0 is inf; declare a finite number other than 0",
        ),
        (sized(0, 8), "resize: 0 x 8 pixels; declare 1 to 16384 a side and at most 25165824 bytes in all"),
        (
            sized(1_000_000_000, 1_000_000_000),
            "resize: 1000000000 x 1000000000 pixels; declare 1 to 16384 a side and at most 25165824 bytes in all",
        ),
        (
            sized(16_384, 16_384),
            "resize: 16384 x 16384 pixels; declare 1 to 16384 a side and at most 25165824 bytes in all",
        ),
    ] {
        assert_eq!(declared.check().unwrap_err().to_string(), expected);
    }
}

#[test]
fn the_text_form_has_the_same_bits_and_names_what_is_known() {
    let declared = rgb(mean_and_scale(&[123.675, 116.28, 103.53], &[0.017_124_754, 0.1, 1.0 / 3.0]), ImageLayout::Nchw);
    let text = serde_json::to_string(&declared).unwrap();
    assert_eq!(serde_json::from_str::<ImagePreprocessing>(&text).unwrap(), declared, "{text}");
    let other = text.replace("nchw", "chwn");
    let error = serde_json::from_str::<ImagePreprocessing>(&other).unwrap_err().to_string();
    assert!(error.contains("unknown variant `chwn`, expected `nchw` or `nhwc`"), "{error}");
}
