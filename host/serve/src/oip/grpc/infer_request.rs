//! Reads a `ModelInferRequest` into a model's inputs, by the rules of the binary data of HTTP.
//!
//! An input's elements are its typed contents, or the bytes at its position in `raw_input_contents`. A request uses one
//! form for all its inputs.

use std::time::Duration;

use saggar_plugin::{ModelPort, ModelSignature};
use saggar_serving::{ModelReference, PredictionInputs};

use super::typed_contents::read_contents;
use super::wire::{WireReader, WireValue, malformed};
use crate::error::ApiError;
use crate::limits::JSON_DEPTH_MAX;
use crate::oip::binary;
use crate::oip::error::InferError;
use crate::oip::parameter::ParameterValue;
use crate::oip::parse_reference;
use crate::oip::request::InputSize;
use crate::oip::request_parser::{
    ParsedInferRequest, check_datatype, find_output, set_input_parameter, set_output_parameter,
};
use crate::predict::decode::{self, DecodeError, PredictionInput, assemble_inputs};

/// A request that only asks for a last response without outputs; here the last response always has them.
const EMPTY_FINAL_RESPONSE: &str = "triton_enable_empty_final_response";

/// A checked request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GrpcInferRequest {
    pub(super) inputs: PredictionInputs,
    /// The indices of the outputs in the signature, in the order of the response.
    pub(super) outputs: Vec<usize>,
    /// The time limit.
    pub(super) limit: Option<Duration>,
}

/// The parts of a request that do not depend on its model.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GrpcInferHead {
    pub(super) reference: ModelReference,
    /// The client's identifier for the request.
    pub(super) id: String,
    /// The bytes of the message that are not raw elements.
    pub(super) typed_bytes: usize,
}

/// Reads the model, the version and the identifier.
///
/// # Errors
/// Returns `Syntax` if the message is malformed, or the error of an invalid version.
pub(super) fn read_head(message: &[u8]) -> Result<GrpcInferHead, ApiError> {
    let (mut model, mut version, mut id, mut raw_bytes) = ("", "", "", 0);
    let mut fields = WireReader::new(message);
    while let Some((number, value)) = fields.next_field()? {
        match number {
            1 => model = value.text()?,
            2 => version = value.text()?,
            3 => id = value.text()?,
            7 => raw_bytes += value.bytes()?.len(),
            _ => {}
        }
    }
    let reference = parse_reference(model, (!version.is_empty()).then_some(version))?;
    Ok(GrpcInferHead { reference, id: id.to_owned(), typed_bytes: message.len() - raw_bytes })
}

/// Reads the inputs and the requested outputs.
///
/// # Errors
/// Returns an error if the request is malformed, inconsistent, or does not fit the model.
pub(super) fn read_request(signature: &ModelSignature, message: &[u8]) -> Result<GrpcInferRequest, InferError> {
    let mut parameters = ParsedInferRequest::default();
    let (mut inputs, mut outputs, mut raws): (Vec<TensorFields<'_>>, Vec<usize>, Vec<&[u8]>) = Default::default();
    let mut fields = WireReader::new(message);
    while let Some((number, value)) = fields.next_field()? {
        match number {
            4 => {
                let (name, value) = read_parameter(value)?;
                if name != EMPTY_FINAL_RESPONSE {
                    parameters.set_parameter(name, &value)?;
                }
            }
            5 => {
                let input = TensorFields::read(signature, value, inputs.len())?;
                if inputs.iter().any(|other| other.port.name == input.port.name) {
                    return Err(DecodeError::Twice { name: input.port.name.clone() }.into());
                }
                inputs.push(input);
            }
            6 => {
                let port = read_output(signature, value, outputs.len())?;
                if outputs.contains(&port) {
                    return Err(InferError::OutputTwice { name: signature.outputs[port].name.clone() });
                }
                outputs.push(port);
            }
            // More than the model has inputs are refused below.
            7 if raws.len() <= signature.inputs.len() => raws.push(value.bytes()?),
            _ => {}
        }
    }
    if !raws.is_empty() && raws.len() != inputs.len() {
        let reason = format!("raw_input_contents must have one element for each of the {} inputs", inputs.len());
        return Err(InferError::Syntax { reason });
    }
    let mut raws = raws.into_iter();
    let inputs = inputs.into_iter().map(|input| input.into_input(signature, raws.next()));
    let inputs = assemble_inputs(signature, inputs.collect::<Result<_, InferError>>()?)?;
    if outputs.is_empty() {
        outputs = (0..signature.outputs.len()).collect();
    }
    Ok(GrpcInferRequest { inputs, outputs, limit: parameters.limit })
}

/// The fields of an input.
struct TensorFields<'b> {
    port: &'b ModelPort,
    datatype: &'b str,
    shape: Vec<u64>,
    /// The typed contents.
    contents: Option<&'b [u8]>,
}

impl<'b> TensorFields<'b> {
    fn read(signature: &'b ModelSignature, input: WireValue<'b>, at: usize) -> Result<TensorFields<'b>, InferError> {
        let (mut name, mut datatype, mut shape, mut contents) = (None, None, Vec::new(), None);
        let mut fields = WireReader::new(input.bytes()?);
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => name = Some(value.text()?),
                2 => datatype = Some(value.text()?),
                3 => push_dims(&mut shape, value)?,
                4 => {
                    let (name, value) = read_parameter(value)?;
                    set_input_parameter(name, &value, &mut None)?;
                }
                5 => contents = Some(value.bytes()?),
                _ => {}
            }
        }
        let missing = |key| InferError::Missing { place: format!("inputs[{at}]"), key };
        let port = decode::find_input(signature, name.ok_or_else(|| missing("name"))?)?;
        let datatype = datatype.ok_or_else(|| missing("datatype"))?;
        check_datatype(port, datatype)?;
        Ok(TensorFields { port, datatype, shape, contents })
    }

    fn into_input(self, signature: &ModelSignature, raw: Option<&[u8]>) -> Result<PredictionInput, InferError> {
        let TensorFields { port, datatype, shape, contents } = self;
        let size = InputSize::new(signature, port, &shape)?;
        let elements = match (raw, contents) {
            (Some(raw), None) => binary::read_elements(port, size.elements, raw)?,
            (None, contents) => read_contents(port, datatype, size.elements, contents.unwrap_or_default())?,
            (Some(_), Some(_)) => {
                let reason = format!("{}: expected contents or raw_input_contents, got both", port.name);
                return Err(InferError::Syntax { reason });
            }
        };
        size.input(port, shape, elements)
    }
}

/// Appends dimensions, which are packed or single.
fn push_dims(shape: &mut Vec<u64>, value: WireValue<'_>) -> Result<(), InferError> {
    let mut push = |dim: u64| {
        // A negative number has its highest bit set.
        if shape.len() == JSON_DEPTH_MAX || i64::try_from(dim).is_err() {
            let reason = format!("expected a shape of at most {JSON_DEPTH_MAX} whole numbers from 0 on");
            return Err(InferError::Syntax { reason });
        }
        shape.push(dim);
        Ok(())
    };
    match value {
        WireValue::Varint(dim) => push(dim),
        WireValue::Bytes(packed) => {
            let mut dims = WireReader::new(packed);
            while let Some(dim) = dims.next_varint()? {
                push(dim)?;
            }
            Ok(())
        }
        WireValue::Fixed64(_) | WireValue::Fixed32(_) => Err(malformed()),
    }
}

fn read_output(signature: &ModelSignature, output: WireValue<'_>, at: usize) -> Result<usize, InferError> {
    let mut port = None;
    let mut fields = WireReader::new(output.bytes()?);
    while let Some((number, value)) = fields.next_field()? {
        match number {
            1 => port = Some(find_output(signature, value.text()?)?),
            2 => {
                let (name, value) = read_parameter(value)?;
                set_output_parameter(name, &value, &mut None)?;
            }
            _ => {}
        }
    }
    port.ok_or(InferError::Missing { place: format!("outputs[{at}]"), key: "name" })
}

/// Reads an entry of a map of parameters.
fn read_parameter(entry: WireValue<'_>) -> Result<(&str, ParameterValue), InferError> {
    let (mut name, mut parameter) = ("", ParameterValue::Other);
    let mut fields = WireReader::new(entry.bytes()?);
    while let Some((number, value)) = fields.next_field()? {
        match number {
            1 => name = value.text()?,
            2 => parameter = read_parameter_value(value.bytes()?)?,
            _ => {}
        }
    }
    Ok((name, parameter))
}

fn read_parameter_value(message: &[u8]) -> Result<ParameterValue, InferError> {
    let mut parameter = ParameterValue::Other;
    let mut fields = WireReader::new(message);
    while let Some((number, value)) = fields.next_field()? {
        parameter = match (number, value) {
            (1, WireValue::Varint(truth)) => ParameterValue::Truth(truth != 0),
            (2, WireValue::Varint(whole)) if i64::try_from(whole).is_ok() => ParameterValue::Whole(whole),
            (3, value) => ParameterValue::Text(value.text()?.to_owned()),
            (5, WireValue::Varint(whole)) => ParameterValue::Whole(whole),
            _ => ParameterValue::Other,
        };
    }
    Ok(parameter)
}

#[cfg(test)]
mod tests;
