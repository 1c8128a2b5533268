//! Encodes responses to predictions: the outputs as dense elements in `raw_output_contents`, which is the binary data of
//! HTTP.

use std::collections::HashMap;

use prost::Message;
use saggar_plugin::{ModelPort, ModelSignature};
use saggar_serving::{CompletedPrediction, LiveVersion};
use saggar_tensor::Shape;

use super::messages::{InferParameter, InferParameterValue, InferResponseHead, StreamErrorResponse, TensorDescription};
use crate::error::ApiError;
use crate::grpc::response::{FramedMessage, begin_frame};
use crate::grpc::status::GrpcStatus;
use crate::oip::binary;
use crate::oip::datatype::{OipDatatype, item_dims};
use crate::oip::request::is_batched;
use crate::predict::encode::{EncodeError, checked_output};
use crate::predict::piece_sink::PieceEncoder;

/// The key of `ModelStreamInferResponse.infer_response`: field 2, with a length.
const INFER_RESPONSE_KEY: u8 = 0x12;
/// The key of `ModelInferResponse.raw_output_contents`: field 6, with a length.
const RAW_CONTENTS_KEY: u8 = 0x32;

/// The parameter that marks the last response to a request on a stream.
const FINAL_RESPONSE: &str = "triton_final_response";
/// The parameter with the number of the item that a chunk belongs to.
const ITEM_NUMBER: &str = "item";

/// The message that a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseEnvelope {
    /// A `ModelInferResponse`.
    Unary,
    /// A `ModelStreamInferResponse`.
    Stream,
}

/// The elements of one output.
enum RawOutput<'a> {
    Dense(&'a [u8]),
    /// Texts of a fixed length, which are encoded with their lengths.
    Texts {
        bytes_max: usize,
        items: &'a [u8],
    },
    /// A part of a text.
    Text(&'a str),
}

impl RawOutput<'_> {
    fn encoded_len(&self) -> usize {
        match self {
            RawOutput::Dense(bytes) => bytes.len(),
            RawOutput::Texts { bytes_max, items } => binary::texts_wire_bytes(*bytes_max, items),
            RawOutput::Text(text) => 4 + text.len(),
        }
    }

    fn encode(&self, into: &mut Vec<u8>) {
        match self {
            RawOutput::Dense(bytes) => into.extend_from_slice(bytes),
            RawOutput::Texts { bytes_max, items } => binary::push_texts(into, *bytes_max, items),
            RawOutput::Text(text) => {
                let length = u32::try_from(text.len()).expect("a part of a text is smaller than 4 GiB");
                into.extend_from_slice(&length.to_le_bytes());
                into.extend_from_slice(text.as_bytes());
            }
        }
    }
}

/// Encodes the requested outputs of a prediction as a framed message.
///
/// # Errors
/// Returns an error if an output is missing or its type or shape differs from the signature.
pub(super) fn encode_answer(
    answer: &CompletedPrediction,
    wanted: &[usize],
    id: &str,
    envelope: ResponseEnvelope,
) -> Result<Vec<u8>, EncodeError> {
    let signature = answer.signature();
    let mut head = response_head(answer.live_version(), id);
    if envelope == ResponseEnvelope::Stream {
        insert_parameter(&mut head, FINAL_RESPONSE, InferParameterValue::Bool(true));
    }
    let mut raws = Vec::with_capacity(wanted.len());
    for &at in wanted {
        let port = &signature.outputs[at];
        let output = answer.tensors.iter().find(|output| output.name == port.name);
        let output = checked_output(port, output, answer.items.unwrap_or(1))?;
        let batch = is_batched(signature).then(|| answer.items.unwrap_or(1));
        head.outputs.push(describe_tensor(port, batch.iter().chain(item_dims(port))));
        raws.push(match port.text_bytes_max() {
            Some(bytes_max) => RawOutput::Texts { bytes_max, items: &output.bytes },
            None => RawOutput::Dense(&output.bytes),
        });
    }
    Ok(frame_response(&head, &raws, envelope))
}

/// Encodes the failure of one request of a stream, which continues.
pub(super) fn encode_stream_error(id: &str, error: &ApiError) -> FramedMessage {
    let mut head = InferResponseHead { id: id.to_owned(), ..InferResponseHead::default() };
    insert_parameter(&mut head, FINAL_RESPONSE, InferParameterValue::Bool(true));
    let error_message = GrpcStatus::from_error(&error.body()).into_message();
    FramedMessage::from_message(&StreamErrorResponse { error_message, infer_response: Some(head) })
}

/// Encodes chunks as responses that are not the last one.
#[derive(Debug)]
pub(super) struct GrpcPieces {
    head: InferResponseHead,
    is_batched: bool,
}

impl GrpcPieces {
    /// Creates the encoder of a request's chunks.
    pub(super) fn new(version: &LiveVersion, signature: &ModelSignature, id: &str) -> GrpcPieces {
        let mut head = response_head(version, id);
        insert_parameter(&mut head, FINAL_RESPONSE, InferParameterValue::Bool(false));
        GrpcPieces { head, is_batched: is_batched(signature) }
    }

    fn encode(&self, item: Option<usize>, tensor: TensorDescription, raw: RawOutput<'_>) -> FramedMessage {
        let mut head = self.head.clone();
        if let Some(item) = item {
            insert_parameter(&mut head, ITEM_NUMBER, InferParameterValue::Int64(signed(item)));
        }
        head.outputs.push(tensor);
        FramedMessage { bytes: frame_response(&head, &[raw], ResponseEnvelope::Stream).into(), charge: None }
    }
}

impl PieceEncoder for GrpcPieces {
    type EncodedPiece = FramedMessage;

    fn encode_elements(&self, port: &ModelPort, item: Option<usize>, shape: &Shape, bytes: &[u8]) -> FramedMessage {
        self.encode(item, describe_tensor(port, shape.dims()), RawOutput::Dense(bytes))
    }

    fn encode_text(&self, port: &ModelPort, item: Option<usize>, text: &str) -> FramedMessage {
        let dims: &[usize] = if self.is_batched { &[1, 1] } else { &[1] };
        self.encode(item, describe_tensor(port, dims), RawOutput::Text(text))
    }
}

fn response_head(version: &LiveVersion, id: &str) -> InferResponseHead {
    InferResponseHead {
        model_name: version.model.clone(),
        model_version: version.version.to_string(),
        id: id.to_owned(),
        parameters: HashMap::new(),
        outputs: Vec::new(),
    }
}

fn insert_parameter(head: &mut InferResponseHead, name: &str, value: InferParameterValue) {
    head.parameters.insert(name.to_owned(), InferParameter { value: Some(value) });
}

fn describe_tensor<'d>(port: &ModelPort, dims: impl IntoIterator<Item = &'d usize>) -> TensorDescription {
    TensorDescription {
        name: port.name.clone(),
        datatype: OipDatatype::from_port(port).name().to_owned(),
        shape: dims.into_iter().map(|&dim| signed(dim)).collect(),
    }
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Encodes a response into one allocation, to which the elements are copied once.
fn frame_response(head: &InferResponseHead, raws: &[RawOutput<'_>], envelope: ResponseEnvelope) -> Vec<u8> {
    let field_len = |length: usize| 1 + prost::length_delimiter_len(length) + length;
    let response_len = head.encoded_len() + raws.iter().map(|raw| field_len(raw.encoded_len())).sum::<usize>();
    let mut frame = match envelope {
        ResponseEnvelope::Unary => begin_frame(response_len),
        ResponseEnvelope::Stream => {
            let mut frame = begin_frame(field_len(response_len));
            push_field_start(&mut frame, INFER_RESPONSE_KEY, response_len);
            frame
        }
    };
    head.encode(&mut frame).expect("a vector grows as needed");
    for raw in raws {
        push_field_start(&mut frame, RAW_CONTENTS_KEY, raw.encoded_len());
        raw.encode(&mut frame);
    }
    frame
}

fn push_field_start(into: &mut Vec<u8>, key: u8, length: usize) {
    into.push(key);
    prost::encode_length_delimiter(length, into).expect("a vector grows as needed");
}
