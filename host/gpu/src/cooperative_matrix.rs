//! Cooperative matrices: which of these operations an adapter has, and a self-test of their results.
//!
//! Few programs use this extension. So a device that is opened with it first multiplies two matrices whose products are
//! exact. If the result differs, the extension is not used.

use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, Shape, VerifiedGraph, verify};

use super::self_test;
use super::wgsl::{COOPERATIVE_MATRIX_SHARED_BYTES, CooperativeMatrix};
use saggar_device::backend::Backend;
use saggar_device::half;

/// The features that an adapter needs in addition.
pub(super) const FEATURES: wgpu::Features =
    wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(wgpu::Features::SUBGROUP).union(wgpu::Features::SHADER_F16);
/// Subgroups in the largest workgroup of a matrix product.
const SUBGROUPS_PER_WORKGROUP_MAX: usize = 8;
/// Rows, columns and depth of the self-test's product: several tiles and a remainder along each.
const SELF_TEST_SIZES: [usize; 3] = [76, 84, 72];

/// Returns the largest supported operation with 16-bit float factors and 32-bit sums, or `None` if the adapter has
/// none.
pub(super) fn query_support(adapter: &wgpu::Adapter) -> Option<CooperativeMatrix> {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    let subgroup = usize::try_from(info.subgroup_min_size).ok()?;
    let is_even = info.subgroup_min_size == info.subgroup_max_size;
    let shared_bytes = limits.max_compute_workgroup_storage_size as usize;
    let fits = shared_bytes >= COOPERATIVE_MATRIX_SHARED_BYTES
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
    Some(CooperativeMatrix { side: side as usize, subgroup, shared_bytes })
}

/// Returns the element of a factor at a position: small integers, so that sums of products are exact in 16 bits.
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

/// Checks that a device computes a matrix product correctly.
///
/// # Errors
/// Returns a description of the first wrong element, or of the device's error.
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
            return Err(format!("row {row}, column {column} of a product is {found}, expected {expected}"));
        }
    }
    Ok(())
}
