//! The predictor: it translates by beam search.

use saggar_plugin::{
    DataType, Executable, Graph, NamedTensor, Params, Port, Predictor, Result, Signature, Tensor, Variables,
    descriptor, named,
};

use crate::beam::Beam;
use crate::model::{Architecture, Transformer};
use crate::{BEGIN, END, PADDING};

/// Sentences at a time, and how much their length is forgiven; the paper's.
const WIDTH: u32 = 4;
const ALPHA: f64 = 0.6;

/// A model that translates.
///
/// Input `source` `int32[s]`: words, 2 and zeros. Output `translation` `int32[t - 1]`: words and zeros.
#[derive(Debug)]
pub struct Translator {
    architecture: Architecture,
    /// From a source to its memory, once a sentence.
    encode: Executable,
    /// From the words so far to the next one's probabilities, once a word.
    next: Executable,
}

impl Predictor for Translator {
    fn load(variables: Variables, config: Params) -> Result<Self> {
        let it = Architecture::from_params(&config)?;
        config.check()?;
        let transformer = Transformer::new(&variables, it.clone())?;
        let sentence = descriptor(DataType::Int32, [1, it.source]);

        let graph = Graph::new();
        let memory = transformer.encode(&graph.input("source", &sentence)?)?;
        let encode = graph.build([("memory", &memory)])?;

        let graph = Graph::new();
        let source = graph.input("source", &sentence)?;
        let memory = graph.input("memory", &descriptor(DataType::Float32, [1, it.source, it.width]))?;
        let places = it.target - 1;
        let words = graph.input("words", &descriptor(DataType::Int32, [WIDTH, places]))?;
        let last = graph.input("last", &descriptor(DataType::Int32, []))?;
        let features = transformer.decode(&words, &memory, &source)?;
        // [1, places] x [width, places, features]: those of the last place. What stands after it is never looked at.
        let here = last.one_hot(places, DataType::Float32)?.reshape(&[1, places])?.matmul(&features)?;
        let logits = transformer.logits(&here.reshape(&[WIDTH, it.width])?)?;
        let logs = logits.sub(&logits.reduce_log_sum_exp(&[1], true)?)?;
        let next = graph.build([("logs", &logs)])?;
        Ok(Self { architecture: it, encode, next })
    }

    fn signature(&self) -> Signature {
        let Architecture { source, target, .. } = self.architecture;
        Signature {
            inputs: vec![Port::new("source", DataType::Int32, [source])],
            outputs: vec![Port::new("translation", DataType::Int32, [target - 1])],
            batch_sizes: vec![1],
        }
    }

    fn predict(&self, inputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>> {
        let source = named(&inputs, "source")?;
        let encoded = self.encode.dispatch([("source", source)])?;
        let memory = named(&encoded, "memory")?;
        let places = self.architecture.target - 1;
        let mut beam = Beam::new(WIDTH as usize, ALPHA, [BEGIN, END], places as usize);
        let mut length = 1;
        while let Some(words) = self.rows(&beam) {
            let words = integers(&[WIDTH, places], &words)?;
            let last = integers(&[], &[length - 1])?;
            let inputs = [("source", source), ("memory", memory), ("words", &words), ("last", &last)];
            let outputs = self.next.dispatch(inputs)?;
            beam.advance(&named(&outputs, "logs")?.read_f32()?, self.architecture.words as usize);
            length += 1;
        }
        let mut translation = beam.best().to_vec();
        translation.resize(places as usize, PADDING);
        let tensor = integers(&[1, places], &translation)?;
        Ok(vec![NamedTensor { name: "translation".to_owned(), tensor }])
    }
}

impl Translator {
    /// The sentences under way, filled up to the graph's shape; none once the search is over.
    fn rows(&self, beam: &Beam) -> Option<Vec<i32>> {
        let places = self.architecture.target as usize - 1;
        let mut rows = Vec::with_capacity(WIDTH as usize * places);
        for words in beam.prefixes() {
            rows.extend(words);
            rows.resize(rows.len().next_multiple_of(places), PADDING);
        }
        let any = !rows.is_empty();
        rows.resize(WIDTH as usize * places, PADDING);
        any.then_some(rows)
    }
}

fn integers(shape: &[u32], values: &[i32]) -> Result<Tensor> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor::from_bytes(&descriptor(DataType::Int32, shape), &bytes)
}
