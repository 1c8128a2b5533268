use proptest::prelude::*;
use saggar_plugin::NamedTensor;
use saggar_tensor::{DType, Descriptor, Shape};

use super::*;

fn port(name: &str, dtype: DType, dims: &[usize], semantics: Option<&str>) -> ModelPort {
    ModelPort {
        name: name.to_owned(),
        item: Descriptor::new(dtype, Shape::new(dims).unwrap()),
        semantics: semantics.map(str::to_owned),
        classes: Vec::new(),
        default: None,
        preprocessing: None,
    }
}

/// A model of vectors of two elements.
fn vector_signature(dtype: DType, semantics: Option<&str>) -> ModelSignature {
    ModelSignature {
        inputs: vec![port("x", dtype, &[2], semantics)],
        outputs: vec![port("y", DType::F32, &[], None), port("z", DType::F32, &[], None)],
        batch_sizes: vec![1, 8],
        routes: Vec::new(),
        handlers: Vec::new(),
    }
}

/// Returns a field with a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    prost::encode_length_delimiter(content.len(), &mut field).unwrap();
    field.extend_from_slice(content);
    field
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Returns an input of one item whose contents are in a field, packed.
fn typed_request(datatype: &str, contents_field: u8, packed: &[u8]) -> Vec<u8> {
    let contents = field(5, &field(contents_field, packed));
    field(5, &[field(1, b"x"), field(2, datatype.as_bytes()), field(3, &[1, 2]), contents].concat())
}

fn read_tensor(signature: &ModelSignature, message: &[u8]) -> Result<NamedTensor, String> {
    let read = read_request(signature, message).map_err(|error| error.to_string())?;
    Ok(read.inputs.tensors.into_iter().next().unwrap())
}

#[test]
fn each_datatype_is_read_from_its_field() {
    let minus_one = varint(u64::MAX);
    let two = |first: &[u8]| [first, &[2]].concat();
    let floats: Vec<u8> = [1.5_f32, -0.0].into_iter().flat_map(f32::to_le_bytes).collect();
    let cases = [
        (DType::U8, Some("boolean"), "BOOL", 1, vec![1, 0], vec![1, 0]),
        (DType::U8, Some("boolean"), "UINT8", 4, vec![1, 0], vec![1, 0]),
        (DType::U8, None, "UINT8", 4, two(&varint(255)), vec![255, 2]),
        (DType::I8, None, "INT8", 2, two(&minus_one), vec![255, 2]),
        (DType::I32, None, "INT32", 2, two(&minus_one), vec![255, 255, 255, 255, 2, 0, 0, 0]),
        (DType::U32, None, "UINT32", 4, two(&varint(u32::MAX.into())), vec![255, 255, 255, 255, 2, 0, 0, 0]),
        (DType::I64, None, "INT64", 3, two(&minus_one), [vec![255; 8], vec![2, 0, 0, 0, 0, 0, 0, 0]].concat()),
        (DType::U64, None, "UINT64", 5, two(&minus_one), [vec![255; 8], vec![2, 0, 0, 0, 0, 0, 0, 0]].concat()),
        (DType::F32, None, "FP32", 6, floats.clone(), floats),
    ];
    for (dtype, semantics, datatype, number, packed, expected) in cases {
        let signature = vector_signature(dtype, semantics);
        let tensor = read_tensor(&signature, &typed_request(datatype, number, &packed)).unwrap();
        assert_eq!(tensor.bytes, expected, "{datatype}");
        let raw = [
            field(5, &[field(1, b"x"), field(2, datatype.as_bytes()), field(3, &[1, 2])].concat()),
            field(7, &expected),
        ];
        assert_eq!(read_tensor(&signature, &raw.concat()).unwrap(), tensor, "{datatype}");
    }
}

#[test]
fn elements_that_do_not_fit_are_refused() {
    let check = |dtype, datatype: &str, number, packed: &[u8], expected: &str| {
        let error = read_tensor(&vector_signature(dtype, None), &typed_request(datatype, number, packed)).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    };
    check(DType::U8, "UINT8", 4, &[1, 0x80, 2], "x: element 1: expected a whole number from 0 to 255, got 256");
    check(DType::I8, "INT8", 2, &varint(128), "expected a whole number from -128 to 127, got 128");
    check(DType::U32, "UINT32", 4, &varint(u64::MAX), "got -1");
    check(DType::I32, "INT32", 2, &varint(1 << 31), "within ±2^31");
    check(DType::I64, "INT64", 3, &[1, 2, 3], "more elements than the 2 of its shape");
    check(DType::I64, "INT64", 3, &[1], "the data has 1");
    check(DType::I64, "INT64", 2, &[1, 2], "expected int64_contents, got int_contents");
    check(DType::F32, "FP32", 6, &[0; 7], "not a ModelInferRequest");
    check(DType::F16, "FP16", 6, &[0; 8], "FP16 has no typed contents; send raw_input_contents");
    let boolean = vector_signature(DType::U8, Some("boolean"));
    assert!(read_tensor(&boolean, &typed_request("BOOL", 1, &[1, 2])).unwrap_err().contains("expected 0 or 1"));
}

/// Numbers can be packed, single, or both, and the fields can come in any order.
#[test]
fn fields_are_accepted_in_every_encoding() {
    let signature = vector_signature(DType::I32, None);
    let single = [vec![0x10, 7], field(2, &[8])].concat();
    let shape = [vec![0x18, 1], vec![0x18, 2]].concat();
    let input = [field(5, &single), shape, field(2, b"INT32"), field(1, b"x"), field(15, b"unknown")].concat();
    let message = [field(6, &field(1, b"z")), field(5, &input), field(1, b"model"), field(14, b"?")].concat();
    let read = read_request(&signature, &message).unwrap();
    assert_eq!(read.inputs.tensors[0].bytes, [7, 0, 0, 0, 8, 0, 0, 0]);
    assert_eq!((read.outputs, read.limit), (vec![1], None));
    let head = read_head(&[&message[..], &field(7, &[0; 100])].concat()).unwrap();
    assert_eq!((head.reference.model.as_str(), head.typed_bytes), ("model", message.len() + 2));
}

#[test]
fn parameters_are_read_by_their_type() {
    let signature = vector_signature(DType::I32, None);
    let with = |name: &[u8], value: &[u8]| {
        let parameter = field(4, &[field(1, name), field(2, value)].concat());
        read_request(&signature, &[typed_request("INT32", 2, &[1, 2]), parameter].concat())
    };
    let limit = |read: Result<GrpcInferRequest, InferError>| read.unwrap().limit;
    assert_eq!(limit(with(b"timeout", &[0x10, 5])), Some(Duration::from_micros(5)));
    assert_eq!(limit(with(b"timeout", &[0x28, 6])), Some(Duration::from_micros(6)));
    assert_eq!(limit(with(b"mine", &field(3, b"text"))), None);
    assert!(matches!(with(b"timeout", &[0x08, 1]), Err(InferError::Parameter { .. })));
    assert!(matches!(with(b"timeout", &[&[0x10][..], &varint(u64::MAX)].concat()), Err(InferError::Parameter { .. })));
    assert!(matches!(with(b"triton_x", &[0x08, 1]), Err(InferError::Refused { .. })));
}

proptest! {
    /// Whatever bytes arrive, they are refused or become inputs that fit the model.
    #[test]
    fn mutated_messages_are_refused_or_fit_the_model(
        position in 0_usize..80, byte: u8, cut in 0_usize..80, items in 1_u8..4
    ) {
        for (dtype, semantics, datatype, number) in [
            (DType::F32, None, "FP32", 6), (DType::I8, None, "INT8", 2), (DType::U8, Some("text"), "BYTES", 8),
        ] {
            let signature = vector_signature(dtype, semantics);
            let shape = if semantics.is_some() { vec![items] } else { vec![items, 2] };
            let contents: Vec<u8> = match number {
                6 => field(6, &vec![1; 8 * usize::from(items)]),
                2 => field(2, &vec![1; 2 * usize::from(items)]),
                _ => field(8, b"hi").repeat(usize::from(items)),
            };
            let tensor = [field(1, b"x"), field(2, datatype.as_bytes()), field(3, &shape), field(5, &contents)].concat();
            let mut message = [field(1, b"model"), field(5, &tensor)].concat();
            prop_assert!(read_request(&signature, &message).is_ok());
            let at = position % message.len();
            message[at] = byte;
            message.truncate(message.len() - cut.min(message.len()) / 2);
            let _ = read_head(&message);
            if let Ok(read) = read_request(&signature, &message) {
                let tensor = &read.inputs.tensors[0];
                prop_assert_eq!(tensor.bytes.len(), tensor.descriptor.bytes());
                prop_assert_eq!(Some(tensor.descriptor.shape.dims()[0]), read.inputs.items);
            }
        }
    }
}
