//! Encodes variables, with additional data, for another rank.
//!
//! The format: eight bytes of length, a JSON header, and the bytes of the listed variables one after the other.

use bytes::Bytes;
use saggar_store::SavedVariable;
use saggar_store::checkpoint::VariableKind;
use saggar_tensor::{DType, Descriptor, Shape};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct TransferHeader<T> {
    with: T,
    /// Bytes of the state.
    state: usize,
    variables: Vec<TransferVariable>,
}

#[derive(Serialize, Deserialize)]
struct TransferVariable {
    name: String,
    kind: VariableKind,
    dtype: String,
    shape: Vec<usize>,
}

/// Encodes a message for [`decode_state`].
pub(super) fn encode_state<T: Serialize>(with: T, state: &[u8], variables: &[SavedVariable]) -> Vec<u8> {
    let variable = |saved: &SavedVariable| TransferVariable {
        name: saved.name.clone(),
        kind: saved.kind,
        dtype: saved.descriptor.dtype.name().to_owned(),
        shape: saved.descriptor.shape.dims().to_vec(),
    };
    let head = TransferHeader { with, state: state.len(), variables: variables.iter().map(variable).collect() };
    let head = serde_json::to_vec(&head).expect("a head is plain data");
    let mut message = (head.len() as u64).to_le_bytes().to_vec();
    message.extend(head);
    message.extend_from_slice(state);
    variables.iter().for_each(|saved| message.extend_from_slice(&saved.bytes));
    message
}

/// Decodes a message into the additional data, the state and the variables. Returns `None` if the message is not
/// complete.
pub(super) fn decode_state<T: DeserializeOwned>(message: Vec<u8>) -> Option<(T, Vec<u8>, Vec<SavedVariable>)> {
    let mut rest = Bytes::from(message);
    let mut take = |bytes: usize| (bytes <= rest.len()).then(|| rest.split_to(bytes));
    let length = u64::from_le_bytes(take(8)?.as_ref().try_into().ok()?);
    let head: TransferHeader<T> = serde_json::from_slice(&take(usize::try_from(length).ok()?)?).ok()?;
    let state = take(head.state)?.to_vec();
    let variable = |TransferVariable { name, kind, dtype, shape }: TransferVariable| {
        let descriptor = Descriptor::new(DType::from_name(&dtype)?, Shape::new(shape).ok()?);
        let bytes = take(descriptor.bytes())?;
        Some(SavedVariable { name, kind, descriptor, bytes })
    };
    let variables = head.variables.into_iter().map(variable).collect::<Option<_>>()?;
    rest.is_empty().then_some((head.with, state, variables))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transferred_variables_round_trip() {
        let variable = |name: &str, shape: &[usize], bytes: &'static [u8]| SavedVariable {
            name: name.to_owned(),
            kind: VariableKind::Training,
            descriptor: Descriptor::new(DType::I8, Shape::new(shape).unwrap()),
            bytes: Bytes::from_static(bytes),
        };
        let variables = vec![variable("a", &[3], b"abc"), variable("b", &[0], b""), variable("c", &[], b"c")];
        let message = encode_state(7_u64, b"state", &variables);
        assert_eq!(decode_state::<u64>(message.clone()), Some((7, b"state".to_vec(), variables)));
        assert!(
            (0..message.len()).all(|end| decode_state::<u64>(message[..end].to_vec()).is_none()),
            "whole or not at all"
        );
        assert_eq!(decode_state::<u64>([&message[..], b"more"].concat()), None);
    }
}
