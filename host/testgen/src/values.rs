//! Random numbers, shapes and values with the properties that cases need.

use saggar_tensor::interp::InterpTensor;
use saggar_tensor::{DType, Shape};

/// SplitMix64: small, seedable, good enough to choose test cases.
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Clone, Debug)]
pub struct CaseRng(u64);

impl CaseRng {
    /// Creates a generator from `seed`.
    pub fn new(seed: u64) -> CaseRng {
        CaseRng(seed)
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns one of `0 .. count`; `count` is not 0.
    pub fn below(&mut self, count: usize) -> usize {
        (self.bits() % count as u64) as usize
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// Returns true with probability 1 / `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns a uniform number in `[low, high)`.
    pub fn float(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns one of `options`.
    pub fn pick<T: Copy>(&mut self, options: &[T]) -> T {
        options[self.below(options.len())]
    }

    /// Returns a random order of `0 .. count`.
    pub fn permutation(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }

    /// Returns sorted, distinct axes below `rank`; possibly none.
    pub fn random_axes(&mut self, rank: usize) -> Vec<usize> {
        (0..rank).filter(|_| self.once_in(2)).collect()
    }

    /// Returns `rank` dimensions of 1 to 5, rarely one of 0.
    pub fn random_dims(&mut self, rank: usize) -> Vec<usize> {
        let mut dims: Vec<usize> = (0..rank).map(|_| self.between(1, 5)).collect();
        if rank > 0 && self.once_in(24) {
            dims[self.below(rank)] = 0;
        }
        dims
    }
}

/// The distribution of a tensor's values.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueDistribution {
    /// Floats from -2 to 2; integers from -5 to 5, or 0 to 10 if unsigned.
    Any,
    /// Floats from 0.3 to 3; integers from 1 to 5.
    Positive,
    /// Magnitudes from 0.3 to 2, either sign; integers except 0.
    NonZero,
    /// Floats at least 0.125 from each other and at least 0.0625 from every multiple of 0.125, in random order around
    /// 0; distinct integers.
    Distinct,
    /// Multiples of 0.5 from -1 to 1, with many equal values and zeros.
    Coarse,
    /// Integers over the type's whole range, often its ends and zero.
    Extreme,
    /// 0 or 1, or another non-zero number for true.
    Boolean,
    /// From `-2 n` to `2 n`, or 0 to `2 n` if unsigned: indices in range, negative and out of range.
    Index(usize),
}

pub(super) fn random_value(
    random: &mut CaseRng,
    dtype: DType,
    dims: &[usize],
    values: ValueDistribution,
) -> InterpTensor {
    let shape = Shape::new(dims).expect("generated shapes are small");
    let numbers = random_numbers(random, dtype, shape.elements(), values);
    InterpTensor::from_numbers(dtype, shape, &numbers).expect("one number an element")
}

fn random_numbers(random: &mut CaseRng, dtype: DType, count: usize, values: ValueDistribution) -> Vec<f64> {
    if let ValueDistribution::Distinct = values {
        let order = random.permutation(count);
        let middle = count as f64 / 2.0;
        let of = |place: usize| (place as f64 - middle).floor();
        return order
            .into_iter()
            .map(|place| if dtype.is_float() { spaced_number(of(place)) } else { of(place) })
            .collect();
    }
    (0..count).map(|_| random_number(random, dtype, values)).collect()
}

/// Returns a number for each integer `place`: 0.125 from each other, and 0.0625 from every multiple of 0.125, including
/// integers.
fn spaced_number(place: f64) -> f64 {
    place * 0.125 + 0.0625
}

fn random_number(random: &mut CaseRng, dtype: DType, values: ValueDistribution) -> f64 {
    let signed = dtype.is_float() || dtype.is_signed_integer();
    let sign = if signed && random.once_in(2) { -1.0 } else { 1.0 };
    match values {
        ValueDistribution::Any | ValueDistribution::Distinct if dtype.is_float() => random.float(-2.0, 2.0),
        ValueDistribution::Any | ValueDistribution::Distinct if signed => random.below(11) as f64 - 5.0,
        ValueDistribution::Any | ValueDistribution::Distinct => random.below(11) as f64,
        ValueDistribution::Positive if dtype.is_float() => random.float(0.3, 3.0),
        ValueDistribution::Positive => random.between(1, 5) as f64,
        ValueDistribution::NonZero if dtype.is_float() => sign * random.float(0.3, 2.0),
        ValueDistribution::NonZero => sign * random.between(1, 5) as f64,
        ValueDistribution::Coarse => random.pick(&[-1.0, -0.5, 0.0, 0.0, 0.5, 1.0]),
        ValueDistribution::Extreme => extreme_number(random, dtype),
        ValueDistribution::Boolean => random.pick(&[0.0, 0.0, 1.0, 1.0, 2.0, 255.0]),
        ValueDistribution::Index(size) if signed => random.below(4 * size + 1) as f64 - 2.0 * size as f64,
        ValueDistribution::Index(size) => random.below(2 * size + 1) as f64,
    }
}

/// Returns a random extreme number. 64-bit numbers are multiples of 2^12, which f64 represents exactly.
fn extreme_number(random: &mut CaseRng, dtype: DType) -> f64 {
    let bits = 8 * dtype.bytes() as i32;
    let step = if bits == 64 { 4096.0 } else { 1.0 };
    let (low, high) = if dtype.is_signed_integer() {
        (-(2f64.powi(bits - 1)), 2f64.powi(bits - 1) - step)
    } else {
        (0.0, 2f64.powi(bits) - step)
    };
    match random.below(6) {
        0 => low,
        1 => high,
        2 => 0.0,
        3 => 1.0,
        _ => (random.float(low, high) / step).trunc() * step,
    }
}
