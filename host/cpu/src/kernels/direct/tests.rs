//! Compares with im2col and the reference product over many geometries, and checks that only a tile's own taps count.

use proptest::prelude::*;

use super::*;
use crate::gemm::{GemmMatrix, multiply_reference};
use crate::simd::UnfusedMulAdd;

fn test_values(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
}

/// Computes the convolution by im2col.
fn convolve_by_im2col(
    windows: &WindowGeometry,
    channels: usize,
    outputs: usize,
    image: &[f32],
    filter: &[f32],
) -> Vec<f32> {
    let (places, taps) = (windows.output_plane(), channels * windows.window[0] * windows.window[1]);
    let mut patches = vec![0.0; taps * places];
    windows.unfold(image, &mut patches, places);
    let mut out = vec![0.0; outputs * places];
    let (a, b) = (GemmMatrix::new(filter, taps, 0, false), GemmMatrix::new(&patches, places, 0, false));
    multiply_reference(&mut out, [outputs, places, taps], a, b, false);
    out
}

/// Computes the convolution directly, in memory whose unwritten elements are NaN.
fn convolve_directly(direct: &DirectConv2d, image: &[f32], filter: &[f32], outputs: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; outputs * direct.windows.output_plane()];
    let mut words =
        [direct.padded_elements, HEIGHT_MAX * direct.padded_elements].map(|count| AlignedBuffer::zeroed(8 * count));
    words.iter_mut().for_each(|words| words.fill(u64::MAX));
    direct.run(image, filter, &mut out, BoundBiasClamp::NONE, &mut words);
    out
}

/// Checks one geometry. Its output has as many places as fit after padding by `after`.
fn check_geometry(mut windows: WindowGeometry, after: [usize; 2], channels: usize, outputs: usize) {
    for (axis, after) in after.into_iter().enumerate() {
        let reach = (windows.window[axis] - 1) * windows.dilations[axis];
        let size = windows.padding[axis] + windows.input[axis] + after;
        let Some(room) = size.checked_sub(reach + 1) else { return };
        windows.output[axis] = room / windows.strides[axis] + 1;
    }
    let taps = channels * windows.window[0] * windows.window[1];
    let (image, filter) = (test_values(channels * windows.input_plane(), 1), test_values(outputs * taps, 2));
    let direct = DirectConv2d::new(windows, channels).expect("small");
    let found = convolve_directly(&direct, &image, &filter, outputs);
    let expected = convolve_by_im2col(&windows, channels, outputs, &image, &filter);
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let near = (found - expected).abs() <= 1e-6 * (taps as f32 + 2.0);
        assert!(near, "{windows:?} {channels} {outputs}: {at} is {found}, not {expected}");
    }
    // A channel computed alone has the same bits as among others.
    for (channel, (found, filter)) in found.chunks(windows.output_plane()).zip(filter.chunks(taps.max(1))).enumerate() {
        let alone = super::tests::convolve_directly(&direct, &image, filter, 1);
        assert!(alone.iter().zip(found).all(|(a, b)| a.to_bits() == b.to_bits()), "{windows:?}: channel {channel}");
    }
    check_without_fma(&direct, &image, &filter, outputs, &expected);
}

/// Checks the version for processors without fused multiply-add.
fn check_without_fma(direct: &DirectConv2d, image: &[f32], filter: &[f32], outputs: usize, expected: &[f32]) {
    let mut out = vec![f32::NAN; outputs * direct.windows.output_plane()];
    let mut laid_out = vec![f32::NAN; direct.padded_elements];
    let mut lines = vec![f32::NAN; HEIGHT_MAX * direct.line_elements()];
    let convolve = DirectConv2dWork {
        direct,
        image,
        filter,
        out: &mut out,
        epilogue: BoundBiasClamp::NONE,
        padded: &mut laid_out,
        lines: &mut lines,
    };
    convolve.run::<UnfusedMulAdd>();
    let taps = direct.offsets.len() as f32;
    assert!(out.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-6 * (taps + 2.0)), "{direct:?}");
}

#[test]
fn direct_convolution_is_right_for_every_band_height_and_line_width() {
    for outputs in 1..=14 {
        for width in [1, 2, 7, 8, 9, 14, 15, 16, 17, 28, 40, 65] {
            let windows = WindowGeometry {
                input: [5, width],
                window: [3, 3],
                output: [0, 0],
                strides: [1, 1],
                dilations: [1, 1],
                padding: [1, 1],
            };
            check_geometry(windows, [1, 1], 2, outputs);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_geometry(
        input in [1usize..20, 1usize..20],
        window in [1usize..6, 1usize..6],
        strides in [1usize..5, 1usize..5],
        dilations in [1usize..4, 1usize..4],
        padding in [0usize..7, 0usize..7],
        after in [0usize..7, 0usize..7],
        channels in 1usize..5,
        outputs in 1usize..9,
    ) {
        check_geometry(WindowGeometry { input, window, output: [0, 0], strides, dilations, padding }, after, channels, outputs);
    }
}

#[test]
fn direct_convolution_of_empty_operands_is_zeros_or_empty() {
    let windows = WindowGeometry {
        input: [4, 4],
        window: [2, 2],
        output: [3, 3],
        strides: [1, 1],
        dilations: [1, 1],
        padding: [0, 0],
    };
    assert_eq!(convolve_directly(&DirectConv2d::new(windows, 0).expect("small"), &[], &[], 2), [0.0; 18]);
    assert!(convolve_directly(&DirectConv2d::new(windows, 1).expect("small"), &test_values(16, 1), &[], 0).is_empty());
    let empty = WindowGeometry { output: [0, 3], ..windows };
    assert!(
        convolve_directly(&DirectConv2d::new(empty, 1).expect("small"), &test_values(16, 1), &test_values(4, 2), 1)
            .is_empty()
    );
}

#[test]
fn direct_convolution_refuses_excessive_padding_and_dilation() {
    let wide = WindowGeometry {
        input: [1, 1],
        window: [2, 2],
        output: [1, 1],
        strides: [1, 1],
        dilations: [1 << 30, 1 << 30],
        padding: [1 << 30, 1 << 30],
    };
    assert!(DirectConv2d::new(wide, 1).is_none());
    assert!(
        DirectConv2d::new(
            WindowGeometry { strides: [1 << 20, 1 << 20], dilations: [1, 1], padding: [0, 0], ..wide },
            3
        )
        .is_none()
    );
}
