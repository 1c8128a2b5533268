//! The predictor: continues a prompt byte by byte.

use saggar_plugin::{
    DataType, Error, Executable, Graph, NamedTensor, Operand, Params, Port, Predictor, Result, Signature, Tensor,
    Variables, descriptor, emit, named, unpadded,
};

use crate::model::{BYTE_VALUES, Gpt, GptConfig};

/// The maximum length of a prompt in bytes. A continuation is as long at most.
const PROMPT_BYTES: u32 = 256;
const CONTINUATION_BYTES: u32 = 256;

/// A model that continues prompts.
///
/// Inputs: `prompt`, a text of up to 256 bytes; `temperature` `float32`, default 0.8: 0 always takes the likeliest
/// byte, 1 samples bytes with their probabilities; `seed` `uint32`, default 0, the seed of the sampling; `length`
/// `uint32`, default 256, the maximum number of bytes to write. Output: `text`, of up to 256 bytes. Each byte is
/// streamed as it is written.
#[derive(Debug)]
pub struct TextGenerator {
    /// The graph from a context to the next byte.
    next: Executable,
    context: u32,
}

impl Predictor for TextGenerator {
    fn load(variables: Variables, config: Params) -> Result<Self> {
        let architecture = GptConfig::from_params(&config)?;
        config.check()?;
        let context = architecture.context;
        let gpt = Gpt::new(&variables, architecture)?;
        let graph = Graph::new();
        let input = |name, data_type, shape: &[u32]| graph.input(name, &descriptor(data_type, shape));
        let text = input("text", DataType::Uint8, &[1, context])?;
        let last = input("last", DataType::Int32, &[1])?;
        let temperature = input("temperature", DataType::Float32, &[])?;
        let key = input("key", DataType::Uint32, &[4])?;

        // [1, context] x [context, width]: the features of the last position. Attention is causal, so the positions
        // after it do not matter.
        let features = gpt.features(&text)?;
        let width = features.shape().last().copied().unwrap_or_default();
        let here = last.one_hot(context, DataType::Float32)?.matmul(&features.reshape(&[context, width])?)?;
        let logits = gpt.byte_logits(&here)?;
        let byte = sample_gumbel(&logits, &temperature, &key)?;
        let next = graph.build([("byte", &byte)])?;
        Ok(Self { next, context })
    }

    fn signature(&self) -> Signature {
        Signature {
            inputs: vec![
                Port::text("prompt", PROMPT_BYTES),
                Port::new("temperature", DataType::Float32, []).default_value(0.8),
                Port::new("seed", DataType::Uint32, []).default_value(0.0),
                Port::new("length", DataType::Uint32, []).default_value(CONTINUATION_BYTES.into()),
            ],
            outputs: vec![Port::text("text", CONTINUATION_BYTES)],
            batch_sizes: vec![1],
            routes: Vec::new(),
        }
    }

    fn predict(&self, inputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>> {
        let seed = read_scalar(&inputs, "seed")?;
        let length = read_scalar(&inputs, "length")?;
        if length > CONTINUATION_BYTES {
            let (name, expected) = ("length".to_owned(), format!("at most {CONTINUATION_BYTES}"));
            return Err(Error::Parameter { name, expected, given: length.to_string() });
        }
        let temperature = Tensor::from_f32(&[], &named(&inputs, "temperature")?.read_f32()?)?;
        let mut text = trim_prompt(&named(&inputs, "prompt")?.read()?);
        let begin = text.len();
        for step in 0..length {
            let byte = self.sample_next_byte(&text, &temperature, [seed, 0, step, 0])?;
            emit("text", 0, &[byte])?;
            text.push(byte);
        }
        text.resize(begin + CONTINUATION_BYTES as usize, 0);
        let written = Tensor::from_bytes(&descriptor(DataType::Uint8, [1, CONTINUATION_BYTES]), &text[begin..])?;
        Ok(vec![NamedTensor { name: "text".to_owned(), tensor: written }])
    }
}

impl TextGenerator {
    /// Samples the byte after `text`, which must not be empty.
    fn sample_next_byte(&self, text: &[u8], temperature: &Tensor, key: [u32; 4]) -> Result<u8> {
        let context = self.context as usize;
        let mut window = text[text.len().saturating_sub(context)..].to_vec();
        let last = Tensor::from_i32(&[1], &[window.len() as i32 - 1])?;
        window.resize(context, 0);
        let window = Tensor::from_bytes(&descriptor(DataType::Uint8, [1, self.context]), &window)?;
        let key: Vec<u8> = key.into_iter().flat_map(u32::to_le_bytes).collect();
        let key = Tensor::from_bytes(&descriptor(DataType::Uint32, [4]), &key)?;
        let outputs =
            self.next.dispatch([("text", &window), ("last", &last), ("temperature", temperature), ("key", &key)])?;
        let byte = outputs.first().map(|output| output.tensor.read()).transpose()?;
        Ok(byte.and_then(|byte| byte.first().copied()).unwrap_or_default())
    }
}

/// Reads the `uint32` input `name` of the only item of the batch.
fn read_scalar(inputs: &[NamedTensor], name: &str) -> Result<u32> {
    Ok(named(inputs, name)?.read_u32()?.first().copied().unwrap_or_default())
}

/// Samples a class from the logits at this temperature. Shape: `[1, classes]` -> `int32[1]`.
///
/// With Gumbel noise added to the logits, each class has the largest sum with exactly its probability, so the
/// probabilities need no normalization. Source: Maddison et al., arXiv:1411.0030.
fn sample_gumbel(logits: &Operand, temperature: &Operand, key: &Operand) -> Result<Operand> {
    // Never 0 or 1, because the noise would be infinite.
    let uniform = logits.graph().random_uniform(&[1, BYTE_VALUES], key, 0)?.clamp(Some(1e-7), Some(1.0 - 1e-7))?;
    let gumbel = uniform.log()?.neg()?.log()?.neg()?;
    logits.add(&gumbel.mul(temperature)?)?.arg_max(1, false)
}

/// Removes the zero padding of a prompt. An empty prompt becomes a line break, because the network needs at least one
/// byte.
fn trim_prompt(padded: &[u8]) -> Vec<u8> {
    let text = unpadded(padded);
    if text.is_empty() { b"\n".to_vec() } else { text.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_ends_where_its_zeros_begin() {
        assert_eq!(trim_prompt(b"To be\0\0"), b"To be");
        assert_eq!(trim_prompt(b"a\0b\0"), b"a\0b");
        assert_eq!(trim_prompt(&[0; 4]), b"\n");
    }
}
