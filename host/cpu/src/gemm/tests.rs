use super::*;

fn test_values(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
}

#[test]
fn packed_products_agree_with_the_reference() {
    let mut buffers = GemmScratch::default();
    for m in [1, 2, 3, 7, 13, 33, 130] {
        for n in [1, 2, 7, 16, 33, 65, 130] {
            for k in [0, 1, 5, 64, 301, 600] {
                for transposes in 0..4 {
                    let (a, b) = (test_values(m * k, m), test_values(k * n, n + 1));
                    let a = GemmMatrix::new(&a, k, m, transposes & 1 == 1);
                    let b = GemmMatrix::new(&b, n, k, transposes & 2 == 2);
                    let mut packed = test_values(m * n, 5);
                    let mut plain = packed.clone();
                    let add = (m + n + k) % 2 == 0;
                    multiply(&mut packed, [m, n, k], a, b, add, &mut buffers);
                    multiply_reference(&mut plain, [m, n, k], a, b, add);
                    for (x, y) in packed.iter().zip(&plain) {
                        assert!((x - y).abs() <= 1e-6 * (k as f32 + 2.0), "{m} {n} {k} {transposes}: {x} {y}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_of_a_product_has_the_same_bits_for_any_row_count() {
    let mut buffers = GemmScratch::default();
    let (n, k) = (70, 333);
    let (a, b) = (test_values(40 * k, 1), test_values(k * n, 2));
    let b = GemmMatrix::new(&b, n, k, false);
    let mut all = vec![0.0; 40 * n];
    multiply(&mut all, [40, n, k], GemmMatrix::new(&a, k, 40, false), b, false, &mut buffers);
    for rows in 1..14 {
        let mut some = vec![0.0; rows * n];
        let a = GemmMatrix::new(&a[3 * k..], k, rows, false);
        multiply(&mut some, [rows, n, k], a, b, false, &mut buffers);
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&some), bits(&all[3 * n..][..rows * n]), "{rows} rows");
    }
}
