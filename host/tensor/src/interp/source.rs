//! Generated values: fills, coordinates and counter-based random numbers.

use super::coordinates::for_each_coordinate;
use super::value::{InterpElements, InterpTensor};
use crate::op::{RandomDistribution, Scalar};
use crate::{Descriptor, Shape};

/// Returns the coordinate along `axis` of every element.
pub(super) fn iota(axis: usize, descriptor: &Descriptor) -> InterpElements {
    let mut coordinates = Vec::with_capacity(descriptor.shape.elements());
    for_each_coordinate(&descriptor.shape, |at| coordinates.push(at[axis]));
    if descriptor.dtype.is_float() {
        InterpElements::Float(coordinates.into_iter().map(|coordinate| coordinate as f64).collect())
    } else {
        InterpElements::Int(coordinates.into_iter().map(|coordinate| coordinate as i128).collect())
    }
}

pub(super) fn fill(scalar: Scalar, descriptor: &Descriptor) -> InterpElements {
    InterpElements::full(scalar, descriptor)
}

pub(super) fn random(
    key: &InterpTensor,
    stream: u32,
    distribution: RandomDistribution,
    shape: &Shape,
) -> InterpElements {
    let key: Vec<u32> = key.ints().iter().map(|&word| word as u32).collect();
    let words = (0..shape.elements()).map(|element| {
        let counter = [(element / 4) as u32, key[2], key[3], stream];
        philox4x32_10(counter, [key[0], key[1]])[element % 4]
    });
    match distribution {
        RandomDistribution::Bits => InterpElements::Int(words.map(i128::from).collect()),
        RandomDistribution::Uniform => {
            InterpElements::Float(words.map(|word| f64::from(word >> 8) / f64::from(1u32 << 24)).collect())
        }
    }
}

/// Returns four random words for a counter and a key: ten rounds of Philox4x32. Source: Salmon et al., "Parallel random
/// numbers: as easy as 1, 2, 3", SC 2011.
pub fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let product_0 = u64::from(counter[0]) * 0xD251_1F53;
        let product_1 = u64::from(counter[2]) * 0xCD9E_8D57;
        let (high_0, low_0) = ((product_0 >> 32) as u32, product_0 as u32);
        let (high_1, low_1) = ((product_1 >> 32) as u32, product_1 as u32);
        counter = [high_1 ^ counter[1] ^ key[0], low_1, high_0 ^ counter[3] ^ key[1], low_0];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::philox4x32_10;

    /// Compares with the published known answers. Source: Random123, `tests/kat_vectors`.
    #[test]
    fn philox_matches_the_published_known_answers() {
        assert_eq!(philox4x32_10([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        assert_eq!(philox4x32_10([u32::MAX; 4], [u32::MAX; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        assert_eq!(
            philox4x32_10([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }
}
