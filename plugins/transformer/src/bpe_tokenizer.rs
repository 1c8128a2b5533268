//! Byte pair encoding: text to subword numbers and back.
//!
//! Every byte is a subword initially, so every text can be encoded. Learning repeatedly merges the most frequent pair
//! of neighbours in the words of a text. Source: Sennrich et al., arXiv:1508.07909, over bytes as in Radford et al.,
//! 2019.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::FIRST_SUBWORD;

/// The number of the first subword that is a merge.
const FIRST_MERGE: i32 = FIRST_SUBWORD + 256;

type SymbolPair = (i32, i32);

/// A vocabulary of subwords. Numbers below [`FIRST_SUBWORD`] are special tokens; then come the bytes, then the merges.
#[derive(Debug, Clone, PartialEq)]
pub struct BpeTokenizer {
    /// The pair that each merge combines, in the order they were learnt.
    merges: Vec<SymbolPair>,
    /// The position of each pair in that order.
    ranks: BTreeMap<SymbolPair, usize>,
    /// The bytes of each merge.
    bytes: Vec<Vec<u8>>,
}

impl BpeTokenizer {
    /// Learns from texts until the vocabulary has `size` numbers, or no pair occurs twice.
    pub fn learn<'a>(texts: impl IntoIterator<Item = &'a str>, size: usize) -> Self {
        let mut counts: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        for text in texts {
            for word in split_words(text) {
                *counts.entry(word).or_default() += 1;
            }
        }
        let words =
            counts.into_iter().map(|(word, count)| (word.into_iter().map(byte_symbol).collect(), count)).collect();
        let mut learner = BpeTrainer::new(words);
        let mut merges = Vec::new();
        while FIRST_MERGE as usize + merges.len() < size {
            let Some(pair) = learner.most_frequent() else { break };
            learner.merge(pair, FIRST_MERGE + merges.len() as i32);
            merges.push(pair);
        }
        Self::from_merges(merges)
    }

    /// Restores a vocabulary from the numbers of [`BpeTokenizer::to_numbers`]. Returns `None` if they are not valid
    /// merges.
    pub fn from_numbers(numbers: &[i32]) -> Option<Self> {
        let (pairs, rest) = numbers.as_chunks::<2>();
        let known = |at: usize, number: i32| (FIRST_SUBWORD..FIRST_MERGE + at as i32).contains(&number);
        let whole = pairs.iter().enumerate().all(|(at, [a, b])| known(at, *a) && known(at, *b));
        (whole && rest.is_empty()).then(|| Self::from_merges(pairs.iter().map(|[a, b]| (*a, *b)).collect()))
    }

    /// Returns the merges as two numbers each.
    pub fn to_numbers(&self) -> Vec<i32> {
        self.merges.iter().flat_map(|(a, b)| [*a, *b]).collect()
    }

    fn from_merges(merges: Vec<SymbolPair>) -> Self {
        let ranks = merges.iter().enumerate().map(|(rank, pair)| (*pair, rank)).collect();
        let mut subwords = Self { merges, ranks, bytes: Vec::new() };
        for (a, b) in subwords.merges.clone() {
            let merged = [subwords.bytes_of(a), subwords.bytes_of(b)].concat();
            subwords.bytes.push(merged);
        }
        subwords
    }

    /// Returns the size of the vocabulary, including the special tokens.
    pub fn count(&self) -> usize {
        FIRST_MERGE as usize + self.merges.len()
    }

    /// Encodes a text. Several spaces between words count as one, and spaces around the text are ignored.
    pub fn encode(&self, text: &str) -> Vec<i32> {
        split_words(text).into_iter().flat_map(|word| self.encode_word(&word)).collect()
    }

    fn encode_word(&self, word: &[u8]) -> Vec<i32> {
        let mut symbols: Vec<i32> = word.iter().copied().map(byte_symbol).collect();
        loop {
            let ranked = symbols.windows(2).filter_map(|pair| self.ranks.get(&(pair[0], pair[1])));
            let Some(&rank) = ranked.min() else { return symbols };
            merge_pairs(&mut symbols, self.merges[rank], FIRST_MERGE + rank as i32);
        }
    }

    /// Decodes subwords. Special and unknown numbers are skipped, and bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, numbers: &[i32]) -> String {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| self.bytes_of(*number)).collect();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    /// Lists every subword with its number, one per line. Bytes that are not UTF-8 are shown as U+FFFD.
    pub fn listing(&self) -> String {
        let numbers = FIRST_SUBWORD..self.count() as i32;
        numbers.map(|number| format!("{number}\t{:?}\n", String::from_utf8_lossy(&self.bytes_of(number)))).collect()
    }

    fn bytes_of(&self, number: i32) -> Vec<u8> {
        match usize::try_from(number - FIRST_MERGE) {
            Ok(merge) => self.bytes.get(merge).cloned().unwrap_or_default(),
            Err(_) => u8::try_from(number - FIRST_SUBWORD).map(|byte| vec![byte]).unwrap_or_default(),
        }
    }
}

fn byte_symbol(byte: u8) -> i32 {
    FIRST_SUBWORD + i32::from(byte)
}

/// Splits a text into words: runs of letters and digits, and single other characters. A word after a space, or at the
/// beginning, is prefixed with a space.
fn split_words(text: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    for spaced in text.split_whitespace() {
        let mut word = vec![b' '];
        let mut inside = true;
        for character in spaced.chars() {
            let letter = character.is_alphanumeric();
            if word.len() > 1 && !(letter && inside) || word.is_empty() && !inside {
                words.push(std::mem::take(&mut word));
            }
            inside = letter;
            word.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        words.push(word);
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Merges every occurrence of the pair, from the left.
fn merge_pairs(symbols: &mut Vec<i32>, (a, b): SymbolPair, merged: i32) {
    let (mut read, mut written) = (0, 0);
    while read < symbols.len() {
        let here = symbols[read] == a && symbols.get(read + 1) == Some(&b);
        symbols[written] = if here { merged } else { symbols[read] };
        read += if here { 2 } else { 1 };
        written += 1;
    }
    symbols.truncate(written);
}

/// The state of learning: the words as shrinking lists of symbols, and the count of each pair.
struct BpeTrainer {
    words: Vec<(Vec<i32>, i64)>,
    counts: BTreeMap<SymbolPair, i64>,
    /// The words that contain a pair now or contained it before.
    places: BTreeMap<SymbolPair, BTreeSet<usize>>,
    /// The pairs by count. Of equal counts, the pair with the lower numbers is first. Entries can be out of date.
    queue: BinaryHeap<(i64, Reverse<SymbolPair>)>,
}

impl BpeTrainer {
    fn new(words: Vec<(Vec<i32>, i64)>) -> Self {
        let mut learner =
            Self { words: Vec::new(), counts: BTreeMap::new(), places: BTreeMap::new(), queue: BinaryHeap::new() };
        for (place, (word, count)) in words.iter().enumerate() {
            learner.count(place, word, *count);
        }
        learner.words = words;
        learner.queue = learner.counts.iter().map(|(pair, count)| (*count, Reverse(*pair))).collect();
        learner
    }

    fn count(&mut self, place: usize, word: &[i32], count: i64) {
        for pair in word.windows(2) {
            let pair = (pair[0], pair[1]);
            *self.counts.entry(pair).or_default() += count;
            self.places.entry(pair).or_default().insert(place);
        }
    }

    /// Returns the most frequent pair, or `None` if no pair occurs twice.
    fn most_frequent(&mut self) -> Option<SymbolPair> {
        while let Some((count, Reverse(pair))) = self.queue.pop() {
            let now = self.counts.get(&pair).copied().unwrap_or_default();
            if now == count && count > 1 {
                return Some(pair);
            }
            // Only the counts of new pairs rise, and `merge` queues those. All other counts fall, so an outdated entry
            // is queued again.
            if now > 1 && now < count {
                self.queue.push((now, Reverse(pair)));
            }
        }
        None
    }

    fn merge(&mut self, pair: SymbolPair, merged: i32) {
        let mut new = BTreeSet::new();
        for place in self.places.remove(&pair).unwrap_or_default() {
            let (mut word, count) = std::mem::take(&mut self.words[place]);
            for pair in word.windows(2) {
                *self.counts.entry((pair[0], pair[1])).or_default() -= count;
            }
            merge_pairs(&mut word, pair, merged);
            self.count(place, &word, count);
            new.extend(word.windows(2).map(|pair| (pair[0], pair[1])).filter(|(a, b)| *a == merged || *b == merged));
            self.words[place] = (word, count);
        }
        for pair in new {
            self.queue.push((self.counts[&pair], Reverse(pair)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "low low low low low lower lower newest newest newest newest newest newest widest widest widest";

    fn spell(subwords: &BpeTokenizer, text: &str) -> Vec<String> {
        let pieces = subwords.encode(text);
        pieces.iter().map(|piece| String::from_utf8_lossy(&subwords.bytes_of(*piece)).into_owned()).collect()
    }

    #[test]
    fn the_most_frequent_neighbours_are_merged_first() {
        // Counted by hand: e+s 9, es+t 9, then l+o, " "+l and lo+w 7 in the order of their numbers.
        let of_size = |merges| BpeTokenizer::learn([TEXT], FIRST_MERGE as usize + merges);
        assert_eq!(spell(&of_size(2), "lowest"), [" ", "l", "o", "w", "est"]);
        assert_eq!(spell(&of_size(5), "lowest"), [" low", "est"]);
        assert_eq!(of_size(5).count(), FIRST_MERGE as usize + 5);
        // A pair that occurs once is not learnt.
        assert_eq!(BpeTokenizer::learn(["abc"], 1000).count(), FIRST_MERGE as usize);
    }

    #[test]
    fn pair_counts_stay_exact_through_all_merges() {
        let texts = ["aaa aaaa ababab banana", "bananas abab aab aaaaa baba", TEXT];
        let subwords = BpeTokenizer::learn(texts, 400);
        // The slow reference: counts all pairs again before each merge.
        let mut all: Vec<Vec<i32>> = texts
            .iter()
            .flat_map(|text| split_words(text))
            .map(|word| word.into_iter().map(byte_symbol).collect())
            .collect();
        for (at, merge) in subwords.merges.iter().enumerate() {
            let mut counts: BTreeMap<SymbolPair, i64> = BTreeMap::new();
            for pair in all.iter().flat_map(|word| word.windows(2)) {
                *counts.entry((pair[0], pair[1])).or_default() += 1;
            }
            let best = counts.iter().max_by_key(|(pair, count)| (**count, Reverse(**pair))).map(|(pair, _)| *pair);
            assert_eq!(best, Some(*merge), "merge {at}");
            all.iter_mut().for_each(|word| merge_pairs(word, *merge, FIRST_MERGE + at as i32));
        }
    }

    #[test]
    fn encoded_text_decodes_to_itself() {
        let subwords = BpeTokenizer::learn([TEXT, "Ein Mann läuft, schnell."], 320);
        for text in ["low lower", "Ein Mann läuft, schnell.", "(a) b-c: 12,5 % \u{1f600}ß", ""] {
            assert_eq!(subwords.decode(&subwords.encode(text)), text);
        }
        assert_eq!(subwords.decode(&subwords.encode("  two\n spaces ")), "two spaces");
        assert_eq!(subwords.decode(&[-1, 0, 1, 2, 1_000_000]), "");
    }

    #[test]
    fn a_vocabulary_round_trips_through_numbers() {
        let subwords = BpeTokenizer::learn([TEXT], 300);
        let numbers = subwords.to_numbers();
        assert_eq!(BpeTokenizer::from_numbers(&numbers), Some(subwords));
        assert_eq!(BpeTokenizer::from_numbers(&numbers[1..]), None, "half a pair");
        assert_eq!(BpeTokenizer::from_numbers(&[FIRST_MERGE, FIRST_SUBWORD]), None, "a merge of itself");
        assert_eq!(BpeTokenizer::from_numbers(&[0, FIRST_SUBWORD]), None, "no subword");
    }
}
