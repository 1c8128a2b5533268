//! Checks of attention and of layers that behave differently in training.

use saggar_plugin::layers::{BatchNorm, Dropout, padding_mask, scaled_dot_product_attention};
use saggar_plugin::{DataType, Graph, Initializer, Result, Tensor, Variable, Variables, descriptor};

use crate::numbers::{assert_close, bytes, floats, integers, noise, value, values};

pub(crate) fn check() -> Result<()> {
    for causal in [false, true] {
        for padded in [false, true] {
            check_attention(causal, padded)?;
        }
    }
    check_fully_masked_queries()?;
    check_batch_norm()?;
    check_dropout()
}

/// Checks one batch and one head, with 2 queries over 3 keys of 2 features. The last query is at the last key's
/// position.
fn check_attention(causal: bool, padded: bool) -> Result<()> {
    let (queries, keys, width) = (2, 3, 2);
    let [q, k, v] = [(queries, 3), (keys, 4), (keys, 5)].map(|(places, seed)| noise(places * width, seed));
    let tokens = if padded { [7, 7, 0] } else { [7, 7, 7] };
    let mut expected = vec![0.0; queries * width];
    for query in 0..queries {
        let seen = |key: usize| tokens[key] != 0 && (!causal || key <= query + keys - queries);
        let score = |key: usize| {
            let fit: f64 = (0..width).map(|i| q[query * width + i] * k[key * width + i]).sum();
            if seen(key) { (fit / (width as f64).sqrt()).exp() } else { 0.0 }
        };
        let sum: f64 = (0..keys).map(score).sum();
        for i in 0..width {
            expected[query * width + i] = (0..keys).map(|key| score(key) / sum * v[key * width + i]).sum();
        }
    }
    let graph = Graph::new();
    let operand = |values: &[f64]| floats(&graph, &[1, 1, (values.len() / width) as u32, width as u32], values);
    let padding = padding_mask(&integers(&graph, &[1, 3], &tokens)?, 0)?;
    let (q, k, v) = (operand(&q)?, operand(&k)?, operand(&v)?);
    let got = scaled_dot_product_attention(&q, &k, &v, causal, padded.then_some(&padding))?;
    assert_close(&format!("attention, causal {causal}, padded {padded}"), &value(&got)?, &expected, 1e-5);
    Ok(())
}

/// Checks that a query without any key gives the mean of all values, and not NaN.
fn check_fully_masked_queries() -> Result<()> {
    let graph = Graph::new();
    let x = floats(&graph, &[1, 1, 2, 1], &[1.0, 3.0])?;
    let got = scaled_dot_product_attention(&x, &x, &x, false, Some(&bytes(&graph, &[1, 2], &[1, 1])?))?;
    assert_close("attention to nothing", &value(&got)?, &[2.0, 2.0], 1e-6);
    Ok(())
}

/// Checks that training normalizes by the batch and updates the statistics, and that prediction normalizes by the
/// statistics.
fn check_batch_norm() -> Result<()> {
    let variables = Variables::new(1);
    let norm = BatchNorm::new(&variables, 2)?.momentum(0.5);
    // Two images of two channels of two pixels. The channels' means are 2 and -1, their variances 5 and 4.
    let x = [-1.0, 1.0, -3.0, -3.0, 3.0, 5.0, 1.0, 1.0];
    let graph = Graph::for_training();
    let y = norm.forward(&floats(&graph, &[2, 2, 2], &x)?)?;
    let normal = |x: f64, mean: f64, variance: f64| (x - mean) / (variance + 1e-5).sqrt();
    let of = |mean: [f64; 2], variance: [f64; 2]| {
        let channel = |place: usize| place / 2 % 2;
        x.iter().enumerate().map(|(i, x)| normal(*x, mean[channel(i)], variance[channel(i)])).collect::<Vec<_>>()
    };
    assert_close("batch normalisation in training", &value(&y)?, &of([2.0, -1.0], [5.0, 4.0]), 1e-5);

    // Half way from 0 and 1 to the means, and to the variances of four numbers with three degrees of freedom.
    let (mean, variance) = ([1.0, -0.5], [0.5 + 10.0 / 3.0, 0.5 + 8.0 / 3.0]);
    let read = |name| read_f32(&variables.statistic(name, &[2], &Initializer::Zeros)?);
    assert_close("running mean", &read("mean")?, &mean, 1e-5);
    assert_close("running variance", &read("variance")?, &variance, 1e-5);

    let graph = Graph::new();
    let y = norm.forward(&floats(&graph, &[2, 2, 2], &x)?)?;
    assert_close("batch normalisation", &value(&y)?, &of(mean, variance), 1e-5);
    Ok(())
}

/// Checks the dropout rate, that each step and layer drops other elements, and that a prediction drops none.
fn check_dropout() -> Result<()> {
    const COUNT: u32 = 10_000;
    let variables = Variables::new(1);
    let dropout = Dropout::new(&variables.scope("deep/down"), 0.25);
    let graph = Graph::for_training();
    let ones = graph.fill(&descriptor(DataType::Float32, [COUNT]), 1.0)?;
    let (first, second) = (dropout.forward(&ones)?, dropout.forward(&ones)?);
    let step = graph.build([("first", &first), ("second", &second)])?;
    let mut drawn: Vec<Vec<f32>> = Vec::new();
    for _ in 0..2 {
        for output in step.dispatch(std::iter::empty::<(&str, &Tensor)>())? {
            drawn.push(output.tensor.read_f32()?);
        }
    }
    for values in &drawn {
        let dropped = values.iter().filter(|value| **value == 0.0).count();
        assert!((2300..2700).contains(&dropped), "{dropped} of {COUNT} dropped at a rate of 0.25");
        assert!(values.iter().all(|value| *value == 0.0 || (*value - 4.0 / 3.0).abs() < 1e-6), "not scaled up");
    }
    for (first, second) in [(0, 1), (0, 2), (1, 3), (1, 2)] {
        assert_ne!(drawn[first], drawn[second], "draws {first} and {second}");
    }
    let graph = Graph::new();
    let ones = floats(&graph, &[3], &[1.0; 3])?;
    let outputs = values(&graph, &[&dropout.forward(&ones)?])?;
    assert_close("dropout in a prediction", &outputs[0], &[1.0; 3], 0.0);
    Ok(())
}

fn read_f32(variable: &Variable) -> Result<Vec<f64>> {
    let bytes = variable.read()?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|x| f64::from(f32::from_le_bytes(*x))).collect())
}
