//! A text model that streams its output, and behaves as its prompt says.

use std::sync::Arc;
use std::time::Instant;

use saggar_plugin::{
    GuestErrorCode, ModelPort, ModelSignature, NamedTensor, OutputPiece, PluginError, PredictionOptions, SendPieceError,
};
use saggar_serving::ModelPredictor;
use saggar_tensor::{DType, Descriptor, Shape};

use super::fixture::test_port;
use super::prediction_gate::PredictionGate;

/// The maximum length of the output in bytes.
const OUTPUT_BYTES: usize = 16;

/// Outputs its prompt `times` times, one byte at a time. Some prompts change its behavior:
///
/// - `wait`: it outputs `a` and the first byte of a euro sign, and the rest once the gate is open;
/// - `cut`: it ends within a character;
/// - `fail`: it fails after its first piece;
/// - `refuse`: it fails before its first piece;
/// - `flood`: it continues until it is stopped.
#[derive(Debug)]
pub(super) struct StreamingPredictor {
    signature: ModelSignature,
    gate: Arc<PredictionGate>,
}

impl StreamingPredictor {
    pub(super) fn new(gate: Arc<PredictionGate>) -> StreamingPredictor {
        let times = ModelPort { default: Some(1.0), ..test_port("times", DType::U32, &[], None) };
        let inputs = vec![test_port("prompt", DType::U8, &[8], Some("text")), times];
        let outputs = vec![
            test_port("said", DType::U8, &[OUTPUT_BYTES], Some("text")),
            test_port("bytes", DType::U32, &[], None),
        ];
        StreamingPredictor {
            signature: ModelSignature {
                inputs,
                outputs,
                batch_sizes: vec![1],
                routes: Vec::new(),
                handlers: Vec::new(),
            },
            gate,
        }
    }

    /// Returns the output for one item, passing every piece to `tell`.
    fn emit_pieces(
        &self,
        prompt: &[u8],
        times: u32,
        say: &mut dyn FnMut(&[u8]) -> Result<(), SendPieceError>,
    ) -> Result<Vec<u8>, PluginError> {
        let during = "predict";
        let refused =
            |code| PluginError::Guest { during, code, message: "as the test requested".to_owned(), place: None };
        let mut said = Vec::new();
        let mut tell = |piece: &[u8]| {
            said.extend_from_slice(piece);
            say(piece).map_err(|undelivered| match undelivered {
                SendPieceError::Gone => PluginError::Cancelled { during },
                SendPieceError::Late => PluginError::Deadline { during, limit_ms: 1 },
            })
        };
        match prompt {
            b"wait" => {
                tell(b"a\xe2\x82")?;
                self.gate.wait();
                tell(b"\xac b")?;
            }
            b"cut" => tell(b"a\xe2\x82")?,
            b"fail" => {
                tell(b"a")?;
                return Err(PluginError::Trap { during, reason: "as the test requested".to_owned() });
            }
            b"refuse" => return Err(refused(GuestErrorCode::InvalidArgument)),
            b"flood" => loop {
                tell(b"and so on ")?;
            },
            prompt => {
                for byte in prompt.repeat(times as usize) {
                    tell(&[byte])?;
                }
            }
        }
        Ok(said)
    }
}

impl ModelPredictor for StreamingPredictor {
    fn signature(&self) -> &ModelSignature {
        &self.signature
    }

    fn device_bytes(&self) -> u64 {
        0
    }

    fn predict(&self, inputs: Vec<NamedTensor>, terms: &PredictionOptions) -> Result<Vec<NamedTensor>, PluginError> {
        let until = Instant::now() + terms.deadline;
        let pieces = terms.sink.clone();
        let items = inputs[0].descriptor.shape[0];
        let times = inputs[1].bytes.chunks_exact(4).map(|times| u32::from_le_bytes(times.try_into().unwrap()));
        let (mut texts, mut lengths) = (Vec::new(), Vec::new());
        for ((item, prompt), times) in inputs[0].bytes.chunks_exact(8).enumerate().zip(times) {
            let end = prompt.iter().position(|&byte| byte == 0).unwrap_or(prompt.len());
            let mut say = |bytes: &[u8]| {
                let shape = Shape::new([bytes.len()]).unwrap();
                let piece = OutputPiece { output: 0, item, shape, bytes: bytes.to_vec() };
                pieces.as_ref().map_or(Ok(()), |pieces| pieces.send_piece(piece, until))
            };
            let mut said = self.emit_pieces(&prompt[..end], times, &mut say)?;
            lengths.extend((said.len() as u32).to_le_bytes());
            said.resize(OUTPUT_BYTES, 0);
            texts.extend(said);
        }
        let output = |name: &str, dtype, shape: &[usize], bytes| {
            let descriptor = Descriptor::new(dtype, Shape::new(shape).unwrap());
            NamedTensor { name: name.to_owned(), descriptor, bytes }
        };
        Ok(vec![
            output("said", DType::U8, &[items, OUTPUT_BYTES], texts),
            output("bytes", DType::U32, &[items], lengths),
        ])
    }
}
