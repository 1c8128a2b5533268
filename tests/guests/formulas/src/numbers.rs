//! Numbers in and out of graphs.

use saggar_plugin::{DataType, Graph, Operand, Result, Tensor, descriptor};

/// Creates a `float32` operand.
pub(crate) fn floats(graph: &Graph, shape: &[u32], values: &[f64]) -> Result<Operand> {
    graph.constant_f32(shape, &values.iter().map(|value| *value as f32).collect::<Vec<_>>())
}

/// Creates an `int32` operand.
pub(crate) fn integers(graph: &Graph, shape: &[u32], values: &[i32]) -> Result<Operand> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    graph.constant(&descriptor(DataType::Int32, shape), &bytes)
}

/// Creates a `uint8` operand.
pub(crate) fn bytes(graph: &Graph, shape: &[u32], values: &[u8]) -> Result<Operand> {
    graph.constant(&descriptor(DataType::Uint8, shape), values)
}

/// Returns the values of each `float32` operand, after one dispatch.
pub(crate) fn values(graph: &Graph, operands: &[&Operand]) -> Result<Vec<Vec<f64>>> {
    let names: Vec<String> = (0..operands.len()).map(|number| format!("value{number}")).collect();
    let built = graph.build(names.iter().map(String::as_str).zip(operands.iter().copied()))?;
    let outputs = built.dispatch(std::iter::empty::<(&str, &Tensor)>())?;
    outputs.iter().map(|output| Ok(output.tensor.read_f32()?.into_iter().map(f64::from).collect())).collect()
}

/// Returns the values of one `float32` operand.
pub(crate) fn value(operand: &Operand) -> Result<Vec<f64>> {
    Ok(values(operand.graph(), &[operand])?.remove(0))
}

/// Returns deterministic pseudo-random numbers between -1 and 1 (splitmix64).
pub(crate) fn noise(count: usize, seed: u64) -> Vec<f64> {
    let number = |n: u64| {
        let mut z = (seed << 32 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (1..=count as u64).map(number).collect()
}

/// Traps unless each number is within `tolerance` of the expected one.
pub(crate) fn assert_close(what: &str, got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}: {} numbers instead of {}", got.len(), expected.len());
    for (place, (got, expected)) in got.iter().zip(expected).enumerate() {
        let near = (got - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(near, "{what}: {got} at {place}, expected {expected}");
    }
}
