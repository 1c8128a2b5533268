//! Products by cooperative matrices: which products use them, and that naga accepts the shaders, as WGSL and as SPIR-V.

use super::*;
use crate::wgsl::{COOPERATIVE_MATRIX_SHARED_BYTES, CooperativeMatrix};

const HALVES: [DType; 3] = [DType::F16; 3];
const TUNING: ShaderTuning = ShaderTuning {
    cooperative_matrix: Some(CooperativeMatrix { side: 16, subgroup: 32, shared_bytes: 48 << 10 }),
    ..ShaderTuning::UNLIMITED
};

fn f16_matmul([batch, m, n, k]: [usize; 4], transposes: [bool; 2], dtypes: [DType; 3]) -> (Program, KernelBody) {
    let side =
        |rows, columns, transposed: bool| if transposed { [batch, columns, rows] } else { [batch, rows, columns] };
    let [a, b, c] = [side(m, k, transposes[0]), side(k, n, transposes[1]), [batch, m, n]];
    let places = [ValueLocation::Input(0), ValueLocation::Input(1), ValueLocation::Output(0)];
    let program =
        program(&[(dtypes[0], &a[..], places[0]), (dtypes[1], &b[..], places[1]), (dtypes[2], &c[..], places[2])]);
    let body = mat_mul(dtypes[2], [batch, m, n, k], transposes[0], transposes[1]);
    (program, body)
}

#[test]
fn f16_matmuls_use_cooperative_matrices_where_available() {
    // Whole tiles, remainders on every side, a deep product, operands transposed or not, sums that stay wide.
    for sizes in [[1, 256, 256, 64], [3, 130, 70, 33], [1, 64, 64, 4096]] {
        for turned in [[false, false], [true, false], [false, true], [true, true]] {
            for dtypes in [HALVES, [DType::F16, DType::F16, DType::F32]] {
                for side in [8, 16] {
                    let tuning = ShaderTuning {
                        cooperative_matrix: Some(CooperativeMatrix {
                            side,
                            subgroup: 2 * side,
                            shared_bytes: COOPERATIVE_MATRIX_SHARED_BYTES,
                        }),
                        ..TUNING
                    };
                    let (program, body) = f16_matmul(sizes, turned, dtypes);
                    let shader = validated_shader(&program, body, tuning);
                    assert!(shader.source.contains("coopMultiplyAdd"), "{sizes:?}\n{}", shader.source);
                }
            }
        }
    }
    let by_lanes = |dtypes, tuning| {
        let (program, body) = f16_matmul([1, 256, 256, 64], [false, false], dtypes);
        !validated_shader(&program, body, tuning).source.contains("coop")
    };
    assert!(by_lanes([DType::F32; 3], TUNING), "words are no halves");
    assert!(by_lanes([DType::F16, DType::F32, DType::F32], TUNING), "both must be");
    assert!(by_lanes(HALVES, ShaderTuning::UNLIMITED), "not every adapter has them");
    assert!(by_lanes(HALVES, ShaderTuning { workgroup_memory: false, ..TUNING }), "sums go by way of shared memory");
    let words = ShaderTuning { half_storage: false, ..TUNING };
    let (program, body) = f16_matmul([1, 256, 256, 64], [false, false], HALVES);
    assert!(
        !validated_shader(&program, body, words).source.contains("coop"),
        "halves stored in words are not halves in shaders"
    );
}

#[test]
fn cooperative_matrix_tiles_fit_in_shared_memory() {
    for limit in [COOPERATIVE_MATRIX_SHARED_BYTES, 48 << 10] {
        let matrix = CooperativeMatrix { side: 16, subgroup: 32, shared_bytes: limit };
        let tuning = ShaderTuning { cooperative_matrix: Some(matrix), ..TUNING };
        for turned in [[false, true], [true, false]] {
            let (program, body) = f16_matmul([1, 1024, 1024, 256], turned, HALVES);
            let bytes = shared_bytes(&validated_shader(&program, body, tuning));
            assert!(bytes > 0 && bytes <= limit, "{bytes} bytes of {limit}");
        }
    }
}
