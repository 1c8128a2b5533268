//! Shards of a job's batches: which of them this process computes, and the mean over all of them.
//!
//! The mean sums the shards in order, one float after the other, independent of where each was computed. So its bits do
//! not depend on the number of processes.

use std::ops::Range;

use saggar_tensor::DType;
use saggar_tensor::interp::float16;

/// The division of a job's batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchShards {
    /// Number of equal parts of each batch for which gradients are computed separately.
    pub count: u32,
    /// The shards that this process computes.
    pub own: Range<u32>,
}

impl Default for BatchShards {
    /// Returns one shard per batch, computed here.
    fn default() -> BatchShards {
        BatchShards { count: 1, own: 0..1 }
    }
}

impl BatchShards {
    /// Returns the shards of process `rank` of `ranks`, which must divide `count`.
    pub fn for_rank(count: u32, rank: u32, ranks: u32) -> BatchShards {
        let each = count / ranks.max(1);
        BatchShards { count, own: rank * each..(rank + 1) * each }
    }
}

/// The data type and treatment of one tensor in a shard's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardSection {
    /// Elements of this float type; the mean has the same type.
    Same(DType),
    /// Elements of this type; the mean is `f64`.
    Number(DType),
}

/// The mean over shards. The part of a shard is the concatenation of its tensors, little-endian.
#[derive(Debug)]
pub struct ShardMean {
    sections: Vec<(ShardSection, usize)>,
    sums: Vec<SectionSum>,
    added: u32,
}

#[derive(Debug)]
enum SectionSum {
    Single(Vec<f32>),
    Double(Vec<f64>),
}

impl ShardMean {
    /// Creates a mean over parts with these sections and numbers of elements.
    pub(crate) fn new(sections: Vec<(ShardSection, usize)>) -> ShardMean {
        let sum = |&(section, elements): &(ShardSection, usize)| match section {
            ShardSection::Same(_) => SectionSum::Single(vec![0.0; elements]),
            ShardSection::Number(_) => SectionSum::Double(vec![0.0; elements]),
        };
        let sums = sections.iter().map(sum).collect();
        ShardMean { sections, sums, added: 0 }
    }

    /// Returns the bytes of one shard's part.
    pub fn part_bytes(&self) -> usize {
        let bytes = |&(section, elements): &(ShardSection, usize)| match section {
            ShardSection::Same(dtype) | ShardSection::Number(dtype) => dtype.bytes() * elements,
        };
        self.sections.iter().map(bytes).sum()
    }

    /// Returns the bytes of the result of [`ShardMean::finish`].
    pub fn mean_bytes(&self) -> usize {
        let bytes = |&(section, elements): &(ShardSection, usize)| match section {
            ShardSection::Same(dtype) => dtype.bytes() * elements,
            ShardSection::Number(_) => size_of::<f64>() * elements,
        };
        self.sections.iter().map(bytes).sum()
    }

    /// Adds the part of the next shard.
    ///
    /// # Panics
    /// If its length is not [`ShardMean::part_bytes`].
    pub fn add(&mut self, part: &[u8]) {
        assert_eq!(part.len(), self.part_bytes(), "a shard's part has its tensors' bytes");
        let first = self.added == 0;
        let mut rest = part;
        for (&(section, elements), sum) in self.sections.iter().zip(&mut self.sums) {
            let (ShardSection::Same(dtype) | ShardSection::Number(dtype)) = section;
            let (bytes, after) = rest.split_at(dtype.bytes() * elements);
            rest = after;
            match sum {
                SectionSum::Single(sums) => add_singles(sums, dtype, bytes, first),
                SectionSum::Double(sums) => {
                    sums.iter_mut().zip(decode_numbers(dtype, bytes)).for_each(|(sum, number)| *sum += number);
                }
            }
        }
        self.added += 1;
    }

    /// Returns the means of all sections, concatenated, little-endian.
    pub fn finish(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.mean_bytes());
        let count = self.added.max(1);
        for (&(section, _), sum) in self.sections.iter().zip(&self.sums) {
            match (sum, section) {
                (SectionSum::Single(sums), ShardSection::Same(DType::F16)) => {
                    let half = |sum: &f32| float16::to_bits(f64::from(sum / count as f32)).to_le_bytes();
                    bytes.extend(sums.iter().flat_map(half));
                }
                (SectionSum::Single(sums), _) => {
                    bytes.extend(sums.iter().flat_map(|sum| (sum / count as f32).to_le_bytes()))
                }
                (SectionSum::Double(sums), _) => {
                    bytes.extend(sums.iter().flat_map(|sum| (sum / f64::from(count)).to_le_bytes()))
                }
            }
        }
        bytes
    }
}

/// Adds to `sums`, or sets them to the first values: a sum that starts with 0 would lose the sign of a negative zero.
fn add_singles(sums: &mut [f32], dtype: DType, bytes: &[u8], first: bool) {
    let mut add = |numbers: &mut dyn Iterator<Item = f32>| {
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum = if first { number } else { *sum + number };
        }
    };
    if dtype == DType::F16 {
        add(&mut bytes.as_chunks().0.iter().map(|half| float16::from_bits(u16::from_le_bytes(*half)) as f32));
    } else {
        add(&mut bytes.as_chunks().0.iter().map(|single| f32::from_le_bytes(*single)));
    }
}

/// Returns dense little-endian elements as numbers; 64-bit integers are rounded.
pub fn decode_numbers(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    fn each<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        let (elements, _) = bytes.as_chunks::<N>();
        elements.iter().map(|element| value(*element)).collect()
    }
    match dtype {
        DType::F32 => each(bytes, |b| f64::from(f32::from_le_bytes(b))),
        DType::F16 => each(bytes, |b| float16::from_bits(u16::from_le_bytes(b))),
        DType::I64 => each(bytes, |b| i64::from_le_bytes(b) as f64),
        DType::U64 => each(bytes, |b| u64::from_le_bytes(b) as f64),
        DType::I32 => each(bytes, |b| f64::from(i32::from_le_bytes(b))),
        DType::U32 => each(bytes, |b| f64::from(u32::from_le_bytes(b))),
        DType::I8 => each(bytes, |b| f64::from(i8::from_le_bytes(b))),
        DType::U8 => each(bytes, |b| f64::from(u8::from_le_bytes(b))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(gradient: [f32; 2], half: f64, label: i32) -> Vec<u8> {
        let mut bytes: Vec<u8> = gradient.into_iter().flat_map(f32::to_le_bytes).collect();
        bytes.extend(float16::to_bits(half).to_le_bytes());
        bytes.extend(label.to_le_bytes());
        bytes
    }

    fn mean() -> ShardMean {
        ShardMean::new(vec![
            (ShardSection::Same(DType::F32), 2),
            (ShardSection::Same(DType::F16), 1),
            (ShardSection::Number(DType::I32), 1),
        ])
    }

    #[test]
    fn shard_parts_are_summed_in_order_and_divided() {
        let mut mean = mean();
        // In another order the small number would survive: `(1e8 - 1e8) + 1`.
        for (gradient, half, label) in [([1e8, -0.0], 1.0, 1), ([1.0, -0.0], 0.5, 2), ([-1e8, -0.0], 0.0, 6)] {
            mean.add(&part(gradient, half, label));
        }
        assert_eq!(mean.mean_bytes(), 8 + 2 + 8);
        let bytes = mean.finish();
        assert_eq!(bytes[..4], 0.0_f32.to_le_bytes());
        assert_eq!(bytes[4..8], (-0.0_f32).to_le_bytes(), "zeros keep their sign");
        assert_eq!(bytes[8..10], float16::to_bits(0.5).to_le_bytes());
        assert_eq!(bytes[10..], 3.0_f64.to_le_bytes());
    }

    #[test]
    fn the_mean_of_one_shard_is_the_shard() {
        let mut mean = mean();
        let one = part([0.1, -3.0], 0.25, -7);
        mean.add(&one);
        let bytes = mean.finish();
        assert_eq!(bytes[..10], one[..10]);
        assert_eq!(bytes[10..], (-7.0_f64).to_le_bytes());
    }

    #[test]
    fn every_shard_belongs_to_exactly_one_rank() {
        let own: Vec<u32> = (0..3).flat_map(|rank| BatchShards::for_rank(6, rank, 3).own).collect();
        assert_eq!(own, [0, 1, 2, 3, 4, 5]);
    }
}
