//! The data step: sentence pairs as subword numbers, grouped by length.
//!
//! A batch has a number of subwords, not of sentences, so batches of short sentences have more of them. All sentences
//! of a batch are padded to the length of their group.

use saggar_plugin::{Column, Dataset, Error, Feed, Result, info};

use crate::bpe_tokenizer::BpeTokenizer;
use crate::{BEGIN, END, PADDING};

/// The ratio between the lengths of consecutive groups. The shortest group has lengths up to [`GROUP_LENGTH_MIN`].
const GROUP_LENGTH_GROWTH: f64 = 1.25;
const GROUP_LENGTH_MIN: u32 = 8;

/// The names of the parts of the dataset.
const TRAINING: &str = "train";
const HELD_OUT: &str = "validation";

/// A sentence and its translation, as subwords.
struct SentencePair {
    source: Vec<i32>,
    target: Vec<i32>,
}

impl SentencePair {
    /// Returns the number of positions that both sentences need, including the begin or end token.
    fn length(&self) -> usize {
        self.source.len().max(self.target.len()) + 1
    }
}

/// The pairs of one part, with lengths that the model accepts.
struct SentenceSplit {
    name: &'static str,
    pairs: Vec<SentencePair>,
    too_long: usize,
}

/// The sentences of a training.
#[derive(Debug)]
pub struct TranslationDataset {
    subwords: BpeTokenizer,
    /// One dataset per group, with the length of its sentences.
    groups: Vec<(u32, Dataset)>,
}

impl TranslationDataset {
    /// Reads the texts `source` and `target` of `data`, learns `vocabulary` subwords from the training part, and drops
    /// pairs longer than `length`.
    ///
    /// The part `train` is trained on, or the whole dataset if it has no such part. The part `validation` or `val` is
    /// held out.
    ///
    /// # Errors
    /// Returns the errors of [`Dataset::texts`] and [`Dataset::from_columns`].
    pub fn read(data: &Dataset, vocabulary: u32, length: u32) -> Result<Self> {
        let splits = data.splits();
        let named = |name: &&str| splits.iter().any(|split| split == name);
        let training = Some(TRAINING).filter(named);
        let held_out = [HELD_OUT, "val", "valid"].into_iter().find(named);
        let texts = |split| Ok::<_, Error>((data.texts("source", split)?, data.texts("target", split)?));
        let (sources, targets) = texts(training)?;
        let subwords = BpeTokenizer::learn(sources.iter().chain(&targets).map(String::as_str), vocabulary as usize);
        let part = |name, (sources, targets): (Vec<String>, Vec<String>)| {
            let encode = |(source, target): (&String, &String)| SentencePair {
                source: subwords.encode(source),
                target: subwords.encode(target),
            };
            let mut pairs: Vec<SentencePair> = sources.iter().zip(&targets).map(encode).collect();
            let all = pairs.len();
            pairs.retain(|pair| pair.length() <= length as usize && !pair.source.is_empty());
            SentenceSplit { name, too_long: all - pairs.len(), pairs }
        };
        let mut parts = vec![part(TRAINING, (sources, targets))];
        if let (Some(held_out), true) = (held_out, training.is_some()) {
            parts.push(part(HELD_OUT, texts(Some(held_out))?));
        }
        for SentenceSplit { name, pairs, too_long } in &parts {
            let numbers: usize = pairs.iter().map(|pair| pair.target.len() + 1).sum();
            let (count, words) = (pairs.len(), subwords.count());
            info(&format!(
                "{name}: {count} pairs, {numbers} of {words} subwords; {too_long} left out, empty or over {length}"
            ));
        }
        let groups = group_by_length(&parts, length)?;
        Ok(Self { subwords, groups })
    }

    /// Returns the vocabulary.
    pub fn subwords(&self) -> &BpeTokenizer {
        &self.subwords
    }

    /// Returns one feed per group. Each batch has about `batch` subwords, in as many sentences as fit.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses a call; `NoItems` if a dataset has no items.
    pub fn feeds(&self, batch: u32) -> Result<Vec<Feed<'_>>> {
        let feeds = self.groups.iter().map(|(length, data)| {
            let sentences = (batch / length).max(1);
            Feed::new(data, &["source", "target"], sentences)
        });
        feeds.collect()
    }
}

/// Returns a dataset for each padded length. A group without training pairs is merged into the next one.
fn group_by_length(parts: &[SentenceSplit], longest: u32) -> Result<Vec<(u32, Dataset)>> {
    let mut groups = Vec::new();
    let mut over = 0;
    for length in group_lengths(longest) {
        let within = |pair: &&SentencePair| (over + 1..=length as usize).contains(&pair.length());
        let trained = parts.first().into_iter().flat_map(|part| &part.pairs).any(|pair| within(&pair));
        if !trained {
            continue;
        }
        let (mut source, mut target) = (Vec::new(), Vec::new());
        let mut counts = Vec::new();
        for part in parts {
            let pairs: Vec<&SentencePair> = part.pairs.iter().filter(within).collect();
            counts.push((part.name.to_owned(), pairs.len() as u64));
            for pair in pairs {
                push_padded(&mut source, &[], &pair.source, length);
                push_padded(&mut target, &[BEGIN], &pair.target, length + 1);
            }
        }
        let columns = vec![Column::of_i32("source", length, &source), Column::of_i32("target", length + 1, &target)];
        groups.push((length, Dataset::from_columns(columns, &counts)?));
        over = length as usize;
    }
    Ok(groups)
}

/// Returns the lengths of the groups. The last is `longest`.
fn group_lengths(longest: u32) -> Vec<u32> {
    let mut lengths = vec![GROUP_LENGTH_MIN.min(longest)];
    while let Some(&last) = lengths.last().filter(|last| **last < longest) {
        // Even lengths suit kernels that process several positions at once.
        let next = (f64::from(last) * GROUP_LENGTH_GROWTH).ceil() as u32;
        lengths.push(next.next_multiple_of(2).min(longest));
    }
    lengths
}

/// Appends `before`, a sentence and the end token, padded to `length`.
fn push_padded(column: &mut Vec<i32>, before: &[i32], sentence: &[i32], length: u32) {
    let end = column.len() + length as usize;
    column.extend(before.iter().chain(sentence).chain(&[END]));
    column.resize(end, PADDING);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_groups_grow_up_to_the_maximum() {
        assert_eq!(group_lengths(64), [8, 10, 14, 18, 24, 30, 38, 48, 60, 64]);
        assert_eq!(group_lengths(8), [8]);
        assert_eq!(group_lengths(5), [5]);
        assert_eq!(group_lengths(9), [8, 9]);
    }

    #[test]
    fn sentences_get_marks_and_padding() {
        let mut column = vec![9];
        push_padded(&mut column, &[BEGIN], &[7, 8], 6);
        assert_eq!(column, [9, BEGIN, 7, 8, END, PADDING, PADDING]);
        assert_eq!(SentencePair { source: vec![5; 3], target: vec![5; 4] }.length(), 5);
    }
}
