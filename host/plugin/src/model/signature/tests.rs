use super::*;
use crate::bindings::tensors::{DataType, Descriptor as WitDescriptor};

fn port(name: &str, data_type: DataType, shape: &[u32]) -> predictor::Port {
    let item = WitDescriptor { data_type, shape: shape.to_vec() };
    predictor::Port { name: name.to_owned(), item, semantics: None, classes: Vec::new(), default: None }
}

fn text(data_type: DataType, shape: &[u32]) -> predictor::Port {
    predictor::Port { semantics: Some("text".to_owned()), ..port("prompt", data_type, shape) }
}

fn number(data_type: DataType, default: f64) -> predictor::Port {
    predictor::Port { default: Some(default), ..port("scale", data_type, &[2]) }
}

fn signature_from_ports(inputs: Vec<predictor::Port>, output: predictor::Port) -> Result<ModelSignature, String> {
    let signature = predictor::Signature { inputs, outputs: vec![output], batch_sizes: vec![1, 4], routes: Vec::new() };
    ModelSignature::from_wit(signature, Vec::new()).map_err(|error| error.to_string())
}

fn signature_from_input(input: predictor::Port) -> Result<ModelSignature, String> {
    signature_from_ports(vec![input], port("y", DataType::Float32, &[]))
}

#[test]
fn text_ports_must_be_one_dimensional_bytes() {
    assert_eq!(signature_from_input(text(DataType::Uint8, &[256])).unwrap().inputs[0].text_bytes_max(), Some(256));
    assert_eq!(signature_from_input(port("x", DataType::Uint8, &[256])).unwrap().inputs[0].text_bytes_max(), None);
    for (data_type, shape) in
        [(DataType::Int8, &[4][..]), (DataType::Float32, &[4]), (DataType::Uint8, &[]), (DataType::Uint8, &[4, 4])]
    {
        let error = signature_from_input(text(data_type, shape)).unwrap_err();
        assert!(error.contains("input prompt is") && error.contains("uint8 of one dimension"), "{error}");
    }
    assert!(
        signature_from_ports(vec![number(DataType::Float32, 1.0)], text(DataType::Int32, &[4])).is_err(),
        "outputs too"
    );
}

#[test]
fn a_default_is_rounded_to_its_dtype_and_fills_the_item() {
    let item = |data_type, default| {
        signature_from_input(number(data_type, default)).unwrap().inputs[0].default_item().unwrap()
    };
    assert_eq!(item(DataType::Float32, 0.8), [0.8f32.to_le_bytes(); 2].concat());
    assert_eq!(item(DataType::Float16, 1.5), [0x3e00u16.to_le_bytes(); 2].concat());
    assert_eq!(item(DataType::Int8, -128.0), [0x80, 0x80]);
    assert_eq!(item(DataType::Uint64, 7.0), [7u64.to_le_bytes(); 2].concat());
    assert_eq!(signature_from_input(port("x", DataType::Float32, &[])).unwrap().inputs[0].default_item(), None);
}

#[test]
fn a_default_outside_its_dtype_is_refused() {
    let cases = [
        (DataType::Float32, 1e39),
        (DataType::Float32, f64::NAN),
        (DataType::Float16, 65520.0),
        (DataType::Uint8, 256.0),
        (DataType::Uint8, -1.0),
        (DataType::Int32, 0.5),
        (DataType::Int64, f64::INFINITY),
        (DataType::Uint64, 2f64.powi(64)),
    ];
    for (data_type, default) in cases {
        let error = signature_from_input(number(data_type, default)).unwrap_err();
        assert!(error.contains("input scale has the default") && error.contains("does not hold"), "{error}");
    }
    let error =
        signature_from_ports(vec![port("x", DataType::Float32, &[])], number(DataType::Float32, 1.0)).unwrap_err();
    assert!(error.contains("output scale has a default"), "{error}");
}

#[test]
fn an_unnamed_input_means_the_only_required_input() {
    let only = |inputs| {
        signature_from_ports(inputs, port("y", DataType::Float32, &[])).unwrap().only_input().map(|p| p.name.clone())
    };
    let other = || predictor::Port { name: "other".to_owned(), ..number(DataType::Float32, 1.0) };
    assert_eq!(only(vec![number(DataType::Float32, 1.0)]).as_deref(), Some("scale"));
    assert_eq!(only(vec![number(DataType::Float32, 1.0), text(DataType::Uint8, &[4])]).as_deref(), Some("prompt"));
    assert_eq!(only(vec![number(DataType::Float32, 1.0), other()]), None);
    assert_eq!(only(vec![port("x", DataType::Float32, &[]), text(DataType::Uint8, &[4])]), None);
}
