//! Subgroups: their size on an adapter, and a self-test of their reductions, whose lanes read each other's registers.

use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, NodeId, Shape, VerifiedGraph, verify};

use super::self_test;
use crate::backend::Backend;

/// The features that an adapter needs in addition.
pub(super) const FEATURES: wgpu::Features = wgpu::Features::SUBGROUP;
/// Rows and columns of the self-test: reductions of contiguous rows and of strided columns, by large and by small
/// workgroups.
const SELF_TEST_SIZES: [usize; 2] = [136, 2048];

/// Returns the number of lanes per subgroup, or `None` if subgroups are not supported, differ in size, or have a size
/// that is not a power of two from 8 to 64.
pub(super) fn query_size(adapter: &wgpu::Adapter) -> Option<usize> {
    let (info, features) = (adapter.get_info(), adapter.features());
    let size = info.subgroup_min_size;
    let is_even = size == info.subgroup_max_size && size.is_power_of_two() && (8..=64).contains(&size);
    (features.contains(FEATURES) && is_even).then_some(size as usize)
}

fn self_test_element(at: usize) -> f32 {
    (at * 7 % 13) as f32
}

fn self_test_graph() -> Result<VerifiedGraph, GraphError> {
    let mut g = GraphBuilder::new();
    let x = g.input("x", Descriptor::new(DType::F32, Shape::new(SELF_TEST_SIZES)?))?;
    let folds: [NodeId; 2] = [g.reduce_sum(x, &[1], false)?, g.reduce_sum(x, &[0], false)?];
    for (fold, name) in folds.into_iter().zip(["rows", "columns"]) {
        g.output(name, fold)?;
    }
    verify(g.finish())
}

/// Checks that a device computes row and column sums correctly.
///
/// # Errors
/// Returns a description of the first wrong sum, or of the device's error.
pub(super) fn run_self_test(device: &dyn Backend) -> Result<(), String> {
    let [rows, columns] = SELF_TEST_SIZES;
    let input: Vec<u8> = (0..rows * columns).flat_map(|at| self_test_element(at).to_le_bytes()).collect();
    let folds = self_test::run_graph(device, &self_test_graph().map_err(|error| error.to_string())?, &[input])?;
    let sum_of = |places: &mut dyn Iterator<Item = usize>| places.map(self_test_element).sum::<f32>();
    let by_row = (0..rows).map(|row| sum_of(&mut (0..columns).map(|column| row * columns + column)));
    let by_column = (0..columns).map(|column| sum_of(&mut (0..rows).map(|row| row * columns + column)));
    let expected: [Vec<f32>; 2] = [by_row.collect(), by_column.collect()];
    for (what, (expected, found)) in ["row", "column"].into_iter().zip(expected.iter().zip(&folds)) {
        for (at, (expected, found)) in expected.iter().zip(found.as_chunks::<4>().0).enumerate() {
            let found = f32::from_le_bytes(*found);
            if found != *expected {
                return Err(format!("the sum of {what} {at} is {found}, expected {expected}"));
            }
        }
    }
    Ok(())
}
