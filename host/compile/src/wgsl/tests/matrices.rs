//! Products by small matrices: which products are made of them, and that naga takes what is written, as WGSL and as SPIR-V.

use super::*;
use crate::wgsl::{MATRICES_SHARED_BYTES, Matrices};

const HALVES: [DType; 3] = [DType::F16; 3];
const TUNING: Tuning = Tuning { matrices: Some(Matrices { side: 16, subgroup: 32 }), ..Tuning::UNLIMITED };

fn product([batch, m, n, k]: [usize; 4], transposes: [bool; 2], dtypes: [DType; 3]) -> (Program, Body) {
    let side =
        |rows, columns, transposed: bool| if transposed { [batch, columns, rows] } else { [batch, rows, columns] };
    let [a, b, c] = [side(m, k, transposes[0]), side(k, n, transposes[1]), [batch, m, n]];
    let places = [Place::Input(0), Place::Input(1), Place::Output(0)];
    let program =
        program(&[(dtypes[0], &a[..], places[0]), (dtypes[1], &b[..], places[1]), (dtypes[2], &c[..], places[2])]);
    let body = mat_mul(dtypes[2], [batch, m, n, k], transposes[0], transposes[1]);
    (program, body)
}

#[test]
fn factors_of_halves_are_multiplied_by_small_matrices_where_there_are_any() {
    // Whole tiles, remainders on every side, a deep one, operands turned and not, sums that stay wide.
    for sizes in [[1, 256, 256, 64], [3, 130, 70, 33], [1, 64, 64, 4096]] {
        for turned in [[false, false], [true, false], [false, true], [true, true]] {
            for dtypes in [HALVES, [DType::F16, DType::F16, DType::F32]] {
                for side in [8, 16] {
                    let tuning = Tuning { matrices: Some(Matrices { side, subgroup: 2 * side }), ..TUNING };
                    let (program, body) = product(sizes, turned, dtypes);
                    let shader = valid(&program, body, tuning);
                    assert!(shader.source.contains("coopMultiplyAdd"), "{sizes:?}\n{}", shader.source);
                }
            }
        }
    }
    let by_lanes = |dtypes, tuning| {
        let (program, body) = product([1, 256, 256, 64], [false, false], dtypes);
        !valid(&program, body, tuning).source.contains("coop")
    };
    assert!(by_lanes([DType::F32; 3], TUNING), "words are no halves");
    assert!(by_lanes([DType::F16, DType::F32, DType::F32], TUNING), "both must be");
    assert!(by_lanes(HALVES, Tuning::UNLIMITED), "not every adapter has them");
    assert!(by_lanes(HALVES, Tuning { workgroup_memory: false, ..TUNING }), "sums go by way of shared memory");
    let words = Tuning { half_storage: false, ..TUNING };
    let (program, body) = product([1, 256, 256, 64], [false, false], HALVES);
    assert!(!valid(&program, body, words).source.contains("coop"), "halves that lie in words are none in shaders");
}

#[test]
fn what_lanes_share_fits_what_adapters_with_small_matrices_have() {
    let (program, body) = product([1, 1024, 1024, 256], [false, true], HALVES);
    let bytes = shared_bytes(&valid(&program, body, TUNING));
    assert!(bytes > 0 && bytes <= MATRICES_SHARED_BYTES, "{bytes} bytes");
}
