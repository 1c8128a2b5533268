//! A predictor that streams the prompt back, byte by byte.
//!
//! Inputs: `prompt`, a text of up to 64 bytes; `times` `uint32`, the number of repetitions, default 1; `endless`
//! `uint8`: if not 0, the prompt is streamed in pieces of the maximum size until the host refuses one. Outputs: `said`,
//! a text of up to 256 bytes, and `lengths` `float32[2]`: the lengths of the prompt and of `said`, streamed as one
//! piece before the text. The training only publishes the model.
//! is nothing to learn: its training publishes it.

use saggar_plugin::{
    DataType, Job, NamedTensor, Params, Port, Predictor, Result, Signature, Tensor, Variables, descriptor, emit,
    emit_tensor, named,
};

const PROMPT: u32 = 64;
const SAID: u32 = 256;
/// The maximum size of a piece, in bytes.
const PIECE: usize = 16 << 10;

/// The model, which streams its prompt.
#[derive(Debug)]
pub struct TellerPredictor;

impl Predictor for TellerPredictor {
    fn load(_: Variables, config: Params) -> Result<Self> {
        config.check()?;
        Ok(Self)
    }

    fn signature(&self) -> Signature {
        Signature {
            inputs: vec![
                Port::text("prompt", PROMPT),
                Port::new("times", DataType::Uint32, []).default_value(1.0),
                Port::new("endless", DataType::Uint8, []).default_value(0.0),
            ],
            outputs: vec![Port::text("said", SAID), Port::new("lengths", DataType::Float32, [2])],
            batch_sizes: vec![1],
            routes: Vec::new(),
        }
    }

    fn predict(&self, inputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>> {
        let prompt = named(&inputs, "prompt")?.read()?;
        let prompt = &prompt[..prompt.iter().position(|byte| *byte == 0).unwrap_or(prompt.len())];
        let times = named(&inputs, "times")?.read()?.first_chunk().copied().map_or(0, u32::from_le_bytes);
        if named(&inputs, "endless")?.read()? != [0] {
            let piece: Vec<u8> = prompt.iter().copied().cycle().take(PIECE).collect();
            loop {
                emit("said", 0, &piece)?;
            }
        }
        let mut said: Vec<u8> = prompt.repeat(times as usize);
        said.truncate(SAID as usize);
        let lengths = Tensor::from_f32(&[1, 2], &[prompt.len() as f32, said.len() as f32])?;
        emit_tensor("lengths", 0, &lengths)?;
        for byte in &said {
            emit("said", 0, &[*byte])?;
        }
        said.resize(SAID as usize, 0);
        let said = Tensor::from_bytes(&descriptor(DataType::Uint8, [1, SAID]), &said)?;
        let output = |name: &str, tensor| NamedTensor { name: name.to_owned(), tensor };
        Ok(vec![output("said", said), output("lengths", lengths)])
    }
}

/// Publishes the model `teller`.
///
/// # Errors
/// Returns the host's error if the host refuses a call.
pub fn train(job: &Job) -> Result<()> {
    job.params().check()?;
    job.publish("teller", &job.variables(), &Params::new()).map(|_| ())
}

saggar_plugin::export!(predictor: TellerPredictor);
saggar_plugin::export!(train: train);
