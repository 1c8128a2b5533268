//! The predictor: translates by beam search.

use saggar_plugin::{
    DataType, Error, Executable, Graph, NamedTensor, Params, Port, Predictor, Result, Signature, Tensor, Variables,
    descriptor, named, unpadded,
};

use crate::beam_search::BeamSearch;
use crate::bpe_tokenizer::BpeTokenizer;
use crate::model::Transformer;
use crate::transformer_config::TransformerConfig;
use crate::{BEGIN, END, PADDING};

/// The maximum length of a source or a translation, in bytes.
const TEXT_BYTES: u32 = 1024;
/// The maximum beam width.
const BEAM_MAX: u32 = 64;

/// A model that translates.
///
/// Input `source` and output `translation`, both texts: `uint8[1024]`, padded with zeros. Optional inputs: `beam`
/// `uint32`, the beam width, at most that of the training; `alpha` `float32`, the length penalty.
#[derive(Debug)]
pub struct Translator {
    subwords: BpeTokenizer,
    beam: u32,
    alpha: f64,
    /// The buckets in ascending order of source length.
    sources: Vec<SourceBucket>,
    length: u32,
    words: usize,
}

/// The graphs for sources up to a length.
#[derive(Debug)]
struct SourceBucket {
    length: u32,
    /// The graph from a source to its memory, run once per sentence.
    encode: Executable,
    /// The graphs from the words so far to the probabilities of the next word, run once per word, by target length in
    /// ascending order.
    next: Vec<(u32, Executable)>,
}

impl Predictor for Translator {
    fn load(variables: Variables, config: Params) -> Result<Self> {
        let it = TransformerConfig::from_params(&config)?;
        let (beam, alpha): (u32, f64) = (config.require("beam")?, config.require("alpha")?);
        let numbers: Vec<i32> = config.require("subwords")?;
        config.check()?;
        let wrong = |name: &str, expected: &str, given: String| {
            Err(Error::Parameter { name: name.to_owned(), expected: expected.to_owned(), given })
        };
        if !(1..=BEAM_MAX).contains(&beam) {
            return wrong("beam", "from 1 to 64", beam.to_string());
        }
        let Some(subwords) =
            BpeTokenizer::from_numbers(&numbers).filter(|subwords| subwords.count() == it.words as usize)
        else {
            return wrong(
                "subwords",
                "a vocabulary of as many words as the model has",
                format!("{} numbers", numbers.len()),
            );
        };
        let (length, words) = (it.length, it.words as usize);
        let transformer = Transformer::new(&variables, it.clone())?;
        let source = |length: &u32| SourceBucket::new(&transformer, &it, *length, beam);
        let sources = bucket_lengths(length).iter().map(source).collect::<Result<_>>()?;
        Ok(Self { subwords, beam, alpha, sources, length, words })
    }

    fn signature(&self) -> Signature {
        let text = |name| Port::text(name, TEXT_BYTES);
        let beam = Port::new("beam", DataType::Uint32, []).default_value(f64::from(self.beam));
        let alpha = Port::new("alpha", DataType::Float32, []).default_value(self.alpha);
        Signature {
            inputs: vec![text("source"), beam, alpha],
            outputs: vec![text("translation")],
            batch_sizes: vec![1],
            routes: Vec::new(),
        }
    }

    fn predict(&self, inputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>> {
        let bytes = named(&inputs, "source")?.read()?;
        let beam = named(&inputs, "beam")?.read_u32()?.first().copied().unwrap_or_default();
        if !(1..=self.beam).contains(&beam) {
            let (name, expected) = ("beam".to_owned(), format!("from 1 to {}, as in training", self.beam));
            return Err(Error::Parameter { name, expected, given: beam.to_string() });
        }
        let alpha = named(&inputs, "alpha")?.read_f32()?.first().copied().map_or(self.alpha, f64::from);
        let search = BeamSearch::new(beam as usize, alpha, [BEGIN, END], self.length as usize);
        let translation = self.translate(&String::from_utf8_lossy(unpadded(&bytes)), search)?;
        let mut bytes = translation.into_bytes();
        bytes.resize(TEXT_BYTES as usize, 0);
        let tensor = Tensor::from_bytes(&descriptor(DataType::Uint8, [1, TEXT_BYTES]), &bytes)?;
        Ok(vec![NamedTensor { name: "translation".to_owned(), tensor }])
    }
}

impl Translator {
    fn translate(&self, text: &str, mut search: BeamSearch) -> Result<String> {
        let mut sentence = self.subwords.encode(text);
        if sentence.is_empty() {
            return Ok(String::new());
        }
        sentence.push(END);
        let Some(source) = self.sources.iter().find(|source| source.length as usize >= sentence.len()) else {
            let (what, given) = ("a source".to_owned(), vec![sentence.len() as u32 - 1]);
            let expected = "at most as many subwords as the model's `length` less one; send its sentences one by one";
            return Err(Error::Shape { what, expected, given });
        };
        sentence.resize(source.length as usize, PADDING);
        let sentence = Tensor::from_i32(&[1, source.length], &sentence)?;
        let encoded = source.encode.dispatch([("source", &sentence)])?;
        let memory = named(&encoded, "memory")?;
        for so_far in 1..=self.length {
            let Some((places, next)) = source.next.iter().find(|(places, _)| *places >= so_far) else { break };
            let Some(words) = padded_prefixes(&search, self.beam, *places) else { break };
            let words = Tensor::from_i32(&[self.beam, *places], &words)?;
            let last = Tensor::from_i32(&[], &[so_far as i32 - 1])?;
            let inputs = [("source", &sentence), ("memory", memory), ("words", &words), ("last", &last)];
            let outputs = next.dispatch(inputs)?;
            search.advance(&named(&outputs, "logs")?.read_f32()?, self.words);
        }
        let mut translation = self.subwords.decode(search.best());
        // Cuts the text at a character boundary.
        let fits = (0..=TEXT_BYTES as usize).rev().find(|end| translation.is_char_boundary(*end)).unwrap_or_default();
        translation.truncate(fits);
        Ok(translation)
    }
}

impl SourceBucket {
    fn new(transformer: &Transformer, it: &TransformerConfig, length: u32, beam: u32) -> Result<Self> {
        let graph = Graph::new();
        let sentence = descriptor(DataType::Int32, [1, length]);
        let memory = transformer.encode(&graph.input("source", &sentence)?)?;
        let encode = graph.build([("memory", &memory)])?;
        let next = |places: u32| {
            let graph = Graph::new();
            let source = graph.input("source", &sentence)?;
            let memory = graph.input("memory", &descriptor(DataType::Float32, [1, length, it.width]))?;
            let words = graph.input("words", &descriptor(DataType::Int32, [beam, places]))?;
            let last = graph.input("last", &descriptor(DataType::Int32, []))?;
            let features = transformer.decode(&words, &memory, &source)?;
            // [1, places] x [beam, places, features]: the features of the last position. Attention is causal, so the
            // positions after it do not matter.
            let here = last.one_hot(places, DataType::Float32)?.reshape(&[1, places])?.matmul(&features)?;
            let logits = transformer.logits(&here.reshape(&[beam, it.width])?)?;
            let logs = logits.sub(&logits.reduce_log_sum_exp(&[1], true)?)?;
            Ok((places, graph.build([("logs", &logs)])?))
        };
        Ok(Self { length, encode, next: bucket_lengths(it.length).into_iter().map(next).collect::<Result<_>>()? })
    }
}

/// Returns the lengths of the buckets. Short sentences do not pay for the positions of long ones.
fn bucket_lengths(longest: u32) -> Vec<u32> {
    let mut lengths: Vec<u32> = [4, 2, 1].into_iter().map(|part| longest.div_ceil(part)).collect();
    lengths.dedup();
    lengths
}

/// Returns the sentences in progress, padded to `[beam, places]`, or `None` if the search has ended.
fn padded_prefixes(search: &BeamSearch, beam: u32, places: u32) -> Option<Vec<i32>> {
    let (beam, places) = (beam as usize, places as usize);
    let mut rows = Vec::with_capacity(beam * places);
    for words in search.active_prefixes() {
        rows.extend(words);
        rows.resize(rows.len().next_multiple_of(places), PADDING);
    }
    let any = !rows.is_empty();
    rows.resize(beam * places, PADDING);
    any.then_some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sentences_have_their_own_graphs() {
        assert_eq!(bucket_lengths(64), [16, 32, 64]);
        assert_eq!(bucket_lengths(3), [1, 2, 3]);
        assert_eq!(bucket_lengths(1), [1]);
    }

    #[test]
    fn active_prefixes_are_padded() {
        let beam = BeamSearch::new(2, 0.6, [BEGIN, END], 4);
        assert_eq!(padded_prefixes(&beam, 2, 3), Some(vec![BEGIN, 0, 0, 0, 0, 0]));
    }
}
