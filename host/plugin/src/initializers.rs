//! Initial values of variables. Random values depend only on the namespace's seed and the variable's name, so they do
//! not depend on the order in which a model creates its variables.

use std::f64::consts::TAU;

use saggar_device::{CancelToken, DeviceError};
use saggar_tensor::interp::{float16, philox4x32_10};
use saggar_tensor::{DType, Descriptor};
use sha2::{Digest, Sha256};

use crate::host_error::HostError;

/// How a variable gets its initial elements.
#[derive(Clone, Debug)]
pub(crate) enum VariableInitializer {
    Zeros,
    Constant(f32),
    Uniform {
        low: f32,
        high: f32,
    },
    Normal {
        mean: f32,
        deviation: f32,
    },
    /// These elements, little-endian and row-major.
    Bytes(Vec<u8>),
}

/// Blocks of four random words between two checks for cancellation: a few milliseconds of work.
const BLOCKS_BETWEEN_CHECKS: usize = 1 << 16;

/// Returns the elements of a new variable: little-endian, row-major.
///
/// DType: any for `zeros`, `constant` (a whole number in range for integer types) and `bytes`; `float32` for `uniform`
/// and `normal`.
///
/// Invalid argument, at the variable's name, if the data type does not hold the number, the range is empty or not
/// finite, or the number of bytes is wrong. `Cancelled` once `cancel` is cancelled.
pub(crate) fn initial_elements(
    seed: u64,
    name: &str,
    descriptor: &Descriptor,
    initializer: VariableInitializer,
    cancel: &CancelToken,
) -> Result<Vec<u8>, HostError> {
    let elements = generate_elements(seed, name, descriptor, initializer, cancel)?;
    // A cancelled generator stops early and leaves elements out.
    if cancel.is_cancelled() { Err(DeviceError::Cancelled.into()) } else { Ok(elements) }
}

fn generate_elements(
    seed: u64,
    name: &str,
    descriptor: &Descriptor,
    initializer: VariableInitializer,
    cancel: &CancelToken,
) -> Result<Vec<u8>, HostError> {
    let elements = descriptor.shape.elements();
    match initializer {
        VariableInitializer::Zeros => Ok(vec![0; descriptor.bytes()]),
        VariableInitializer::Constant(value) => {
            let element = encode_element(descriptor.dtype, value.into())
                .ok_or_else(|| HostError::invalid_at(name, format!("{} does not hold {value}", descriptor.dtype)))?;
            Ok(element.repeat(elements))
        }
        VariableInitializer::Uniform { low, high } => {
            require_float32(name, descriptor)?;
            if !(low.is_finite() && high.is_finite() && low < high) {
                return Err(HostError::invalid_at(name, format!("[{low}, {high}) is not a range of numbers")));
            }
            Ok(uniform(random_words(seed, name, elements, cancel), low, high))
        }
        VariableInitializer::Normal { mean, deviation } => {
            require_float32(name, descriptor)?;
            if !(mean.is_finite() && deviation.is_finite() && deviation >= 0.0) {
                let message = format!("mean {mean} and deviation {deviation} are no normal distribution");
                return Err(HostError::invalid_at(name, message));
            }
            let words = random_words(seed, name, elements.next_multiple_of(2), cancel);
            Ok(normal(words, elements, mean, deviation))
        }
        VariableInitializer::Bytes(bytes) if bytes.len() == descriptor.bytes() => Ok(bytes),
        VariableInitializer::Bytes(bytes) => {
            let message = format!("{descriptor} takes {} bytes, not {}", descriptor.bytes(), bytes.len());
            Err(HostError::invalid_at(name, message))
        }
    }
}

fn require_float32(name: &str, descriptor: &Descriptor) -> Result<(), HostError> {
    if descriptor.dtype == DType::F32 {
        return Ok(());
    }
    Err(HostError::invalid_at(name, format!("random initial values are float32, not {}", descriptor.dtype)))
}

/// Returns one element of a type, little-endian, or `None` if an integer type does not hold the value. Floats are
/// rounded and can become infinite.
pub(crate) fn encode_element(dtype: DType, value: f64) -> Option<Vec<u8>> {
    let whole = || (value.fract() == 0.0 && value.abs() < 2f64.powi(80)).then_some(value as i128);
    Some(match dtype {
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F16 => float16::to_bits(value).to_le_bytes().to_vec(),
        DType::I64 => i64::try_from(whole()?).ok()?.to_le_bytes().to_vec(),
        DType::U64 => u64::try_from(whole()?).ok()?.to_le_bytes().to_vec(),
        DType::I32 => i32::try_from(whole()?).ok()?.to_le_bytes().to_vec(),
        DType::U32 => u32::try_from(whole()?).ok()?.to_le_bytes().to_vec(),
        DType::I8 => i8::try_from(whole()?).ok()?.to_le_bytes().to_vec(),
        DType::U8 => u8::try_from(whole()?).ok()?.to_le_bytes().to_vec(),
    })
}

/// Returns `count` random words for a variable, or fewer once `cancel` is cancelled. Word `i` is word `i % 4` of Philox
/// block `i / 4`.
fn random_words(seed: u64, name: &str, count: usize, cancel: &CancelToken) -> impl Iterator<Item = u32> {
    let digest = Sha256::new().chain_update(seed.to_le_bytes()).chain_update(name.as_bytes()).finalize();
    let word = |at: usize| u32::from_le_bytes([digest[at], digest[at + 1], digest[at + 2], digest[at + 3]]);
    let (key, stream) = ([word(0), word(4)], [word(8), word(12)]);
    let goes_on = |block: &usize| !block.is_multiple_of(BLOCKS_BETWEEN_CHECKS) || !cancel.is_cancelled();
    let blocks = (0..count.div_ceil(4))
        .take_while(goes_on)
        .map(move |block| philox4x32_10([block as u32, (block as u64 >> 32) as u32, stream[0], stream[1]], key));
    blocks.flatten().take(count)
}

/// Returns a number in `[0, 1)` with 24 random bits.
fn unit_fraction(word: u32) -> f64 {
    f64::from(word >> 8) / f64::from(1u32 << 24)
}

fn uniform(words: impl Iterator<Item = u32>, low: f32, high: f32) -> Vec<u8> {
    let width = f64::from(high) - f64::from(low);
    let value = |word| {
        let value = (f64::from(low) + width * unit_fraction(word)) as f32;
        // Rounding to float32 can reach `high`, which is outside the range.
        if value < high { value } else { high.next_down() }
    };
    words.flat_map(|word| value(word).to_le_bytes()).collect()
}

/// Returns normally distributed float32 values, two from each pair of words. Source: Box and Muller, "A note on the
/// generation of random normal deviates", 1958.
fn normal(words: impl Iterator<Item = u32>, elements: usize, mean: f32, deviation: f32) -> Vec<u8> {
    let mut words = words;
    let mut bytes = Vec::with_capacity(elements * 4);
    let pairs = std::iter::from_fn(|| Some([words.next()?, words.next()?]));
    for (pair, words) in pairs.enumerate() {
        // `1 - [0, 1)` is `(0, 1]`, whose logarithm is finite.
        let radius = (-2.0 * (1.0 - unit_fraction(words[0])).ln()).sqrt();
        let (sin, cos) = (TAU * unit_fraction(words[1])).sin_cos();
        for (half, value) in [radius * cos, radius * sin].into_iter().enumerate() {
            if 2 * pair + half < elements {
                let value = (f64::from(mean) + f64::from(deviation) * value) as f32;
                bytes.extend(value.to_le_bytes());
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests;
