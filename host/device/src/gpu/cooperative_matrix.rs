//! An adapter's operations on small matrices: which it has, and whether they compute what they should.
//!
//! They are an extension that few programs use, so a device that is opened with them multiplies two matrices first, of
//! numbers whose products are exact. Where the result is another one, they are left alone.

use saggar_compile::wgsl::{COOPERATIVE_MATRIX_SHARED_BYTES, CooperativeMatrix};
use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, Shape, VerifiedGraph, verify};

use super::self_test;
use crate::backend::Backend;
use crate::half;

/// What an adapter must offer besides.
pub(super) const FEATURES: wgpu::Features =
    wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(wgpu::Features::SUBGROUP).union(wgpu::Features::SHADER_F16);
/// Subgroups of the largest workgroup of products.
const SUBGROUPS_PER_WORKGROUP_MAX: usize = 8;
/// Rows, columns and depth of what is multiplied first: with remainders, and several small matrices along each.
const SELF_TEST_SIZES: [usize; 3] = [76, 84, 72];

/// The operation that products take, the largest that there is: factors of 16-bit floats, sums of 32 bits.
pub(super) fn query_support(adapter: &wgpu::Adapter) -> Option<CooperativeMatrix> {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    let subgroup = usize::try_from(info.subgroup_min_size).ok()?;
    let is_even = info.subgroup_min_size == info.subgroup_max_size;
    let fits = limits.max_compute_workgroup_storage_size as usize >= COOPERATIVE_MATRIX_SHARED_BYTES
        && limits.max_compute_invocations_per_workgroup as usize >= SUBGROUPS_PER_WORKGROUP_MAX * subgroup;
    if !adapter.features().contains(FEATURES) || !is_even || !fits {
        return None;
    }
    let offered = adapter.cooperative_matrix_properties();
    let has = |side: u32| {
        offered.iter().any(|properties| {
            [properties.m_size, properties.n_size, properties.k_size] == [side; 3]
                && properties.ab_type == wgpu::CooperativeScalarType::F16
                && properties.cr_type == wgpu::CooperativeScalarType::F32
        })
    };
    let side = [16, 8].into_iter().find(|&side| has(side))?;
    Some(CooperativeMatrix { side: side as usize, subgroup })
}

/// The element of a factor at a place: small integers, so that sums of products are exact in 16 bits.
fn self_test_element(row: usize, column: usize) -> i32 {
    (row * 7 + column * 3) as i32 % 5 - 2
}

fn self_test_graph() -> Result<VerifiedGraph, GraphError> {
    let [m, n, k] = SELF_TEST_SIZES;
    let matrix = |rows, columns| Ok::<_, GraphError>(Descriptor::new(DType::F16, Shape::new([rows, columns])?));
    let mut g = GraphBuilder::new();
    let a = g.input("a", matrix(m, k)?)?;
    let b = g.input("b", matrix(k, n)?)?;
    let product = g.matmul(a, b)?;
    g.output("product", product)?;
    verify(g.finish())
}

/// Whether a device multiplies as it should.
///
/// # Errors
/// What is wrong, in words.
pub(super) fn run_self_test(device: &dyn Backend) -> Result<(), String> {
    let [m, n, k] = SELF_TEST_SIZES;
    let factor = |rows: usize, columns: usize| -> Vec<u8> {
        let numbers = (0..rows * columns).map(|at| self_test_element(at / columns, at % columns) as f32);
        numbers.flat_map(|x| half::from_f32(x).to_le_bytes()).collect()
    };
    let products = self_test::run_graph(
        device,
        &self_test_graph().map_err(|error| error.to_string())?,
        &[factor(m, k), factor(k, n)],
    )?;
    for (at, found) in products[0].as_chunks::<2>().0.iter().enumerate() {
        let (row, column) = (at / n, at % n);
        let expected: i32 = (0..k).map(|depth| self_test_element(row, depth) * self_test_element(depth, column)).sum();
        let found = half::to_f32(u16::from_le_bytes(*found));
        if found != expected as f32 {
            return Err(format!("row {row}, column {column} of a product is {found} and should be {expected}"));
        }
    }
    Ok(())
}
