//! Beam search for the likeliest sentences, several at a time, word by word.

/// A sentence that is in progress or finished.
#[derive(Debug, Clone, PartialEq)]
struct BeamHypothesis {
    words: Vec<i32>,
    /// The logarithm of the sentence's probability.
    score: f64,
}

impl BeamHypothesis {
    /// Returns the score with the length penalty applied.
    fn normalized_score(&self, alpha: f64) -> f64 {
        let length = self.words.len() as f64 - 1.0;
        self.score / ((5.0 + length) / 6.0).powf(alpha)
    }
}

/// A beam search with a length penalty.
///
/// Scores are divided by `((5 + length) / 6)^alpha`. Source: Wu et al., arXiv:1609.08144.
#[derive(Debug, Clone)]
pub struct BeamSearch {
    width: usize,
    alpha: f64,
    end: i32,
    length_max: usize,
    going: Vec<BeamHypothesis>,
    done: Vec<BeamHypothesis>,
}

impl BeamSearch {
    /// Creates a search that starts with the word `begin`. It keeps `width` sentences, which end with `end` or after
    /// `length_max` words.
    pub fn new(width: usize, alpha: f64, [begin, end]: [i32; 2], length_max: usize) -> Self {
        let going = vec![BeamHypothesis { words: vec![begin], score: 0.0 }];
        Self { width: width.max(1), alpha, end, length_max, going, done: Vec::new() }
    }

    /// Returns the sentences in progress, all of the same length. The iterator is empty after the search has ended.
    pub fn active_prefixes(&self) -> impl Iterator<Item = &[i32]> {
        self.going.iter().map(|sentence| sentence.words.as_slice())
    }

    /// Extends the sentences by one word. `words` holds for each sentence in progress, in order, the logarithm of each
    /// word's probability. Of equally likely sentences, the first is taken.
    pub fn advance(&mut self, words: &[f32], vocabulary: usize) {
        let mut next: Vec<(f64, usize, usize)> = Vec::new();
        for (place, (sentence, words)) in self.going.iter().zip(words.chunks(vocabulary.max(1))).enumerate() {
            let likely = words.iter().enumerate().filter(|(_, log)| log.is_finite());
            next.extend(likely.map(|(word, log)| (sentence.score + f64::from(*log), place, word)));
        }
        next.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut going = Vec::new();
        // Twice the width, so that `width` sentences continue even if each of them could end here.
        for (score, place, word) in next.into_iter().take(2 * self.width) {
            let mut words = self.going[place].words.clone();
            words.push(word as i32);
            let over = word as i32 == self.end || words.len() > self.length_max;
            let sentences = if over { &mut self.done } else { &mut going };
            if sentences.len() < self.width || over {
                sentences.push(BeamHypothesis { words, score });
            }
        }
        let alpha = self.alpha;
        self.done.sort_by(|a, b| b.normalized_score(alpha).total_cmp(&a.normalized_score(alpha)));
        self.done.truncate(self.width);
        self.going = if self.is_finished(&going) { Vec::new() } else { going };
    }

    /// Returns the best sentence, without the begin and end words.
    pub fn best(&self) -> &[i32] {
        let words = self.done.first().or(self.going.first()).map_or(&[][..], |sentence| &sentence.words);
        let words = words.get(1..).unwrap_or_default();
        words.strip_suffix(&[self.end]).unwrap_or(words)
    }

    /// Returns whether no sentence in progress can become better than the finished ones, whatever its length.
    fn is_finished(&self, going: &[BeamHypothesis]) -> bool {
        let longest = ((5.0 + self.length_max as f64) / 6.0).powf(self.alpha);
        let reachable = going.iter().map(|sentence| sentence.score / longest).fold(f64::NEG_INFINITY, f64::max);
        self.done.len() == self.width
            && self.done.iter().all(|sentence| sentence.normalized_score(self.alpha) >= reachable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: i32 = 1;
    const END: i32 = 2;

    /// Runs a search in which the probabilities of words 0 to 4 depend on the previous word.
    fn search(width: usize, alpha: f64, length_max: usize, next: impl Fn(i32) -> [f32; 5]) -> Vec<i32> {
        let mut beam = BeamSearch::new(width, alpha, [BEGIN, END], length_max);
        for _ in 0..100 {
            let last: Vec<i32> = beam.active_prefixes().filter_map(|words| words.last().copied()).collect();
            if last.is_empty() {
                return beam.best().to_vec();
            }
            let logs: Vec<f32> = last.into_iter().flat_map(&next).map(f32::ln).collect();
            beam.advance(&logs, 5);
        }
        panic!("the search does not end");
    }

    /// 3 is likelier at first, but 4 leads to the likelier sentence.
    fn garden_path(before: i32) -> [f32; 5] {
        match before {
            BEGIN => [0.0, 0.0, 0.0, 0.6, 0.4],
            3 => [0.0, 0.0, 0.3, 0.3, 0.4],
            _ => [0.0, 0.0, 0.9, 0.1, 0.0],
        }
    }

    #[test]
    fn a_wider_beam_finds_a_likelier_sentence_than_greedy_search() {
        assert_eq!(search(1, 0.0, 8, garden_path), [3, 4]);
        assert_eq!(search(2, 0.0, 8, garden_path), [4]);
    }

    #[test]
    fn the_length_penalty_favours_longer_sentences() {
        // Ending immediately has probability 0.5, continuing once more 0.25.
        let even = |before: i32| if before == BEGIN { [0.0, 0.0, 0.0, 1.0, 0.0] } else { [0.0, 0.0, 0.5, 0.5, 0.0] };
        assert_eq!(search(2, 0.0, 4, even), [3]);
        assert_eq!(search(4, 8.0, 4, even), [3, 3, 3]);
    }

    #[test]
    fn sentences_stop_at_the_maximum_length() {
        assert_eq!(search(2, 0.6, 3, |_| [0.0, 0.0, 0.0, 1.0, 0.0]), [3, 3, 3]);
    }
}
