//! Checks of operators that no layer uses: their arguments arrive in the right order.

use saggar_plugin::layers::ConvTranspose2d;
use saggar_plugin::{
    ConvTranspose2dOptions, DataType, Graph, GruOptions, InputOperandLayout, InterpolationMode, LstmOptions, Operand,
    PaddingMode, Pool2dOptions, Resample2dOptions, Result, RoundingType, ScatterReduction, Variables, gru, gru_cell,
    lstm, lstm_cell,
};

use crate::numbers::{assert_close, floats, integers, noise, value, values};

pub(crate) fn check() -> Result<()> {
    check_elementwise()?;
    check_quantized()?;
    check_movement()?;
    check_indexed()?;
    check_images()?;
    check_normalized()?;
    check_recurrent()
}

fn expect_values(what: &str, got: &Operand, expected: &[f64]) -> Result<()> {
    assert_close(what, &value(got)?, expected, 1e-5);
    Ok(())
}

/// Returns an operand of that shape with the numbers 1, 2, 3, ... and its graph.
fn counting_operand(shape: &[u32]) -> Result<Operand> {
    let count: u32 = shape.iter().product();
    floats(&Graph::new(), shape, &(1..=count).map(f64::from).collect::<Vec<_>>())
}

fn check_elementwise() -> Result<()> {
    expect_values("linear", &counting_operand(&[2])?.linear(2.0, 3.0)?, &[5.0, 7.0])?;
    let x = counting_operand(&[2])?.add_scalar(-2.0)?;
    expect_values("prelu", &x.prelu(&floats(x.graph(), &[1], &[0.5])?)?, &[-0.5, 0.0])?;
    expect_values("cumulative sum", &counting_operand(&[2, 2])?.cumulative_sum(1, true, true)?, &[2.0, 0.0, 4.0, 0.0])?;
    expect_values("arg max", &counting_operand(&[2, 2])?.arg_max(0, true)?.cast(DataType::Float32)?, &[1.0, 1.0])
}

fn check_quantized() -> Result<()> {
    let x = counting_operand(&[4])?;
    let scale = floats(x.graph(), &[2], &[0.5, 2.0])?;
    let zero = integers(x.graph(), &[2], &[1, 0])?.cast(DataType::Int8)?;
    let bytes = x.quantize_linear(&scale, &zero)?;
    expect_values("quantize", &bytes.cast(DataType::Float32)?, &[3.0, 5.0, 2.0, 2.0])?;
    let x = counting_operand(&[2])?;
    let scale = floats(x.graph(), &[1], &[0.5])?;
    let zero = integers(x.graph(), &[1], &[3])?.cast(DataType::Int8)?;
    let whole = x.cast(DataType::Int8)?.dequantize_linear(&scale, &zero)?;
    expect_values("dequantize", &whole, &[-1.0, -0.5])
}

fn check_movement() -> Result<()> {
    expect_values("tile", &counting_operand(&[1, 2])?.tile(&[2, 2])?, &[1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0])?;
    expect_values("upper triangle", &counting_operand(&[2, 2])?.upper_triangular(0)?, &[1.0, 2.0, 0.0, 4.0])?;
    expect_values("lower triangle", &counting_operand(&[2, 2])?.lower_triangular(-1)?, &[0.0, 0.0, 3.0, 0.0])?;
    expect_values("strided slice", &counting_operand(&[6])?.slice_strided(&[1], &[5], &[2])?, &[2.0, 4.0, 6.0])?;
    let padded = counting_operand(&[2])?.pad(&[2], &[1], PaddingMode::Symmetric)?;
    expect_values("symmetric padding", &padded, &[2.0, 1.0, 1.0, 2.0, 2.0])
}

fn check_indexed() -> Result<()> {
    let x = counting_operand(&[2, 2])?;
    let indices = integers(x.graph(), &[2, 1], &[1, 0])?;
    expect_values("gather elements", &x.gather_elements(&indices, 1)?, &[2.0, 3.0])?;
    let x = counting_operand(&[2, 2])?;
    let indices = integers(x.graph(), &[1, 2], &[1, -2])?;
    expect_values("gather nd", &x.gather_nd(&indices)?, &[3.0])?;
    let x = counting_operand(&[2, 2])?;
    let (indices, updates) = (integers(x.graph(), &[2, 1], &[0, 0])?, floats(x.graph(), &[2, 1], &[10.0, 20.0])?);
    let scattered = x.scatter_elements(&indices, &updates, 1, ScatterReduction::Add)?;
    expect_values("scatter elements", &scattered, &[11.0, 2.0, 23.0, 4.0])?;
    let x = counting_operand(&[2, 2])?;
    let (indices, updates) = (integers(x.graph(), &[1, 1], &[1])?, floats(x.graph(), &[1, 2], &[7.0, 8.0])?);
    expect_values("scatter nd", &x.scatter_nd(&indices, &updates, ScatterReduction::None)?, &[1.0, 2.0, 7.0, 8.0])
}

fn check_images() -> Result<()> {
    let nearest = Resample2dOptions { sizes: Some((1, 4)), ..Resample2dOptions::default() };
    expect_values("nearest", &counting_operand(&[1, 1, 1, 2])?.resample2d(nearest)?, &[1.0, 1.0, 2.0, 2.0])?;
    let linear = Resample2dOptions { mode: Some(InterpolationMode::Linear), ..nearest };
    expect_values("linear resampling", &counting_operand(&[1, 1, 1, 2])?.resample2d(linear)?, &[1.0, 1.25, 1.75, 2.0])?;
    expect_values(
        "l2 pooling",
        &counting_operand(&[1, 1, 1, 2])?.mul_scalar(3.0)?.l2_pool2d([1, 2])?,
        &[45f64.sqrt()],
    )?;
    let sizes = Pool2dOptions {
        window_dimensions: Some((1, 2)),
        strides: Some((1, 2)),
        output_shape_rounding: Some(RoundingType::Floor),
        output_sizes: Some((1, 2)),
        ..Pool2dOptions::default()
    };
    expect_values("sizes of a pooling", &counting_operand(&[1, 1, 1, 3])?.max_pool2d_with(sizes)?, &[2.0, 3.0])?;
    let x = counting_operand(&[1, 1, 1, 2])?;
    let filter = floats(x.graph(), &[1, 1, 1, 2], &[1.0, 10.0])?;
    let wide = ConvTranspose2dOptions { strides: Some((1, 2)), ..ConvTranspose2dOptions::default() };
    expect_values("transposed convolution", &x.conv_transpose2d(&filter, None, wide)?, &[1.0, 10.0, 2.0, 20.0])?;
    let layer = ConvTranspose2d::new(&Variables::new(1), (2, 3), [4, 4])?.strides([2, 2]).padding([1, 1]);
    assert_eq!(
        layer.forward(&counting_operand(&[1, 2, 5, 7])?)?.shape(),
        [1, 3, 10, 14],
        "a layer that doubles images"
    );
    Ok(())
}

fn check_normalized() -> Result<()> {
    let x = counting_operand(&[1, 2, 1, 2])?;
    let (scale, bias) = (floats(x.graph(), &[2], &[1.0, 2.0])?, floats(x.graph(), &[2], &[0.0, 5.0])?);
    let y = x.instance_normalization(Some(&scale), Some(&bias), 0.0, InputOperandLayout::Nchw)?;
    expect_values("instance normalisation", &y, &[-1.0, 1.0, 3.0, 7.0])?;
    // The deviation of 1 and 2 is 0.5, less than 1 / sqrt(2).
    let x = counting_operand(&[2, 2])?.per_image_standardization()?;
    let expected = 0.5f64.sqrt();
    expect_values("per-image standardisation", &x, &[-expected, expected, -expected, expected])
}

fn check_recurrent() -> Result<()> {
    let (features, hidden) = (3, 2);
    let graph = Graph::new();
    let operand = |shape: &[u32], seed| floats(&graph, shape, &noise(shape.iter().product::<u32>() as usize, seed));
    let x = operand(&[2, 1, features], 1)?;
    let steps = x.split(&[1, 1], 0)?;
    let steps = [steps[0].reshape(&[1, features])?, steps[1].reshape(&[1, features])?];
    let zeros = floats(&graph, &[1, hidden], &[0.0; 2])?;
    let flat = |x: &Operand| x.reshape(&x.shape()[1..]);

    let (weight, again) = (operand(&[1, 3 * hidden, features], 2)?, operand(&[1, 3 * hidden, hidden], 3)?);
    let bias = operand(&[1, 3 * hidden], 4)?;
    let options = GruOptions { bias: Some(&bias), return_sequence: Some(true), ..GruOptions::default() };
    let network = gru(&x, &weight, &again, &options)?;
    let (weight, again, bias) = (flat(&weight)?, flat(&again)?, flat(&bias)?);
    let options = GruOptions { bias: Some(&bias), ..GruOptions::default() };
    let first = gru_cell(&steps[0], &weight, &again, &zeros, &options)?;
    let gru_by_cells = gru_cell(&steps[1], &weight, &again, &first, &options)?;
    let sequence = network.sequence.ok_or(saggar_plugin::Error::Built)?;
    assert_eq!(sequence.shape(), [2, 1, 1, hidden], "the sequence of a recurrent network");

    let (weight, again) = (operand(&[1, 4 * hidden, features], 5)?, operand(&[1, 4 * hidden, hidden], 6)?);
    let long = lstm(&x, &weight, &again, &LstmOptions::default())?;
    assert!(long.sequence.is_none(), "a sequence that was not requested");
    let (weight, again) = (flat(&weight)?, flat(&again)?);
    let first = lstm_cell(&steps[0], &weight, &again, [&zeros, &zeros], &LstmOptions::default())?;
    let lstm_by_cells = lstm_cell(&steps[1], &weight, &again, [&first.hidden, &first.cell], &LstmOptions::default())?;

    let pairs = [
        ("gru", &network.hidden, &gru_by_cells),
        ("lstm", &long.hidden, &lstm_by_cells.hidden),
        ("cells of lstm", &long.cell, &lstm_by_cells.cell),
    ];
    let all: Vec<&Operand> = pairs.iter().flat_map(|(_, whole, cells)| [*whole, *cells]).collect();
    let got = values(&graph, &all)?;
    for ((what, ..), got) in pairs.iter().zip(got.chunks(2)) {
        assert_close(what, &got[0], &got[1], 1e-6);
    }
    Ok(())
}
