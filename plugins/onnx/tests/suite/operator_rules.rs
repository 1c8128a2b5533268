//! Operator rules, with one small case for each common mistake.

use std::collections::BTreeMap;

use crate::interpreter::{InterpreterBackend, TestWeightStore};
use crate::test_models::{ints, node, port, wrap_model};
use onnx::import::{build, import, restore};
use onnx::proto::{AttributeProto, GraphProto, NodeProto};
use prost::Message;
use saggar_plugin::Params;
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::{DType, Shape};

/// An attribute.
pub(crate) enum TestAttribute<'a> {
    Int(i64),
    Float(f32),
    Text(&'a str),
    Ints(&'a [i64]),
}
use TestAttribute::{Float, Int, Ints, Text};

/// An operand.
pub(crate) enum TestOperand<'a> {
    /// An input with these numbers, as `float32`.
    X(&'a [i64], &'a [f64]),
    /// An initializer of integers.
    K(&'a [i64]),
    /// An omitted operand.
    Nothing,
}
use TestOperand::{K, Nothing, X};

fn attribute((name, value): &(&str, TestAttribute<'_>)) -> AttributeProto {
    let mut attribute = AttributeProto { name: (*name).to_owned(), ..AttributeProto::default() };
    match value {
        Int(i) => (attribute.kind, attribute.i) = (2, *i),
        Float(f) => (attribute.kind, attribute.f) = (1, *f),
        Text(s) => (attribute.kind, attribute.s) = (3, s.as_bytes().to_vec()),
        Ints(ints) => (attribute.kind, attribute.ints) = (7, ints.to_vec()),
    }
    attribute
}

/// Builds and runs a model of one node. Returns the shapes and numbers, to four digits, or the error message.
pub(crate) fn run_operator(
    op: &str,
    attributes: &[(&str, TestAttribute<'_>)],
    operands: &[TestOperand<'_>],
    results: usize,
    opset: i64,
) -> String {
    let names: Vec<String> = (0..operands.len()).map(|i| format!("x{i}")).collect();
    let mut graph = GraphProto::default();
    let mut inputs = BTreeMap::new();
    let mut wanted = Vec::new();
    for (name, operand) in names.iter().zip(operands) {
        wanted.push(if matches!(operand, Nothing) { "" } else { name.as_str() });
        match operand {
            X(shape, numbers) => {
                graph.input.push(port(name, shape));
                let shape = Shape::new(shape.iter().map(|&dim| dim as usize).collect::<Vec<_>>()).expect("small");
                inputs.insert(name.clone(), InterpTensor::from_numbers(DType::F32, shape, numbers).expect("as many"));
            }
            K(values) => graph.initializer.push(ints(name, values)),
            Nothing => {}
        }
    }
    let outputs: Vec<String> = (0..results).map(|i| format!("y{i}")).collect();
    let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
    graph.node =
        vec![NodeProto { attribute: attributes.iter().map(attribute).collect(), ..node(op, &wanted, &outputs) }];
    graph.output = outputs.iter().map(|name| port(name, &[])).collect();
    run_graph(graph, &inputs, opset)
}

/// Imports, builds and runs a graph. Returns as [`run_operator`] does.
fn run_graph(graph: GraphProto, inputs: &BTreeMap<String, InterpTensor>, opset: i64) -> String {
    let mut model = wrap_model(graph);
    model.opset_import[0].version = opset;
    let mut variables = TestWeightStore::default();
    let config = match import(&model.encode_to_vec(), &Params::new(), &mut variables) {
        Ok(config) => config,
        Err(error) => return error.to_string(),
    };
    let (model, plan) = restore(&config).expect("an import wrote it");
    let mut backend = InterpreterBackend::default();
    let batch = plan.batch.first().copied();
    let built = build(&model, &plan.inputs, batch, &mut backend).expect("the import has built it");
    let values = backend.run(&built.outputs, inputs, &variables.0).expect("the graph can be run");
    let texts = values.iter().map(|value| {
        let numbers = value.to_f64_numbers().iter().map(|n| format!("{}", (n * 1e4).round() / 1e4)).collect::<Vec<_>>();
        format!("{} {}", value.descriptor().shape, numbers.join(" "))
    });
    texts.collect::<Vec<_>>().join("; ")
}

#[track_caller]
fn check_operator(op: &str, attributes: &[(&str, TestAttribute<'_>)], operands: &[TestOperand<'_>], expected: &str) {
    assert_eq!(run_operator(op, attributes, operands, 1, 20), expected);
}

#[test]
fn elementwise_operators_match_onnx() {
    let x = || X(&[4], &[-1.5, -0.5, 0.5, 2.5]);
    check_operator("Round", &[], &[x()], "[4] -2 -0 0 2");
    check_operator("Mod", &[], &[X(&[2], &[-7.0, 7.0]), X(&[2], &[3.0, -3.0])], "[2] 2 -2");
    check_operator("Mod", &[("fmod", Int(1))], &[X(&[2], &[-7.0, 7.0]), X(&[2], &[3.0, -3.0])], "[2] -1 1");
    let infinity = f64::INFINITY;
    let (a, b) = ([-3.0, 3.0, -1.0, infinity], [infinity, infinity, -infinity, 2.0]);
    let (dividends, divisors) = (|| X(&[4], &a), || X(&[4], &b));
    check_operator("Mod", &[], &[dividends(), divisors()], "[4] inf 3 -1 NaN");
    check_operator("Mod", &[("fmod", Int(1))], &[dividends(), divisors()], "[4] -3 3 -1 NaN");
    let gated = run_operator("SwiGLU", &[("alpha", Float(2.0))], &[X(&[1], &[0.5]), X(&[1], &[4.0])], 1, 28);
    assert_eq!(gated, "[1] 1.4621");
    check_operator("Clip", &[], &[x(), Nothing, X(&[], &[0.0])], "[4] -1.5 -0.5 0 0");
    check_operator("Shrink", &[("bias", Float(0.5)), ("lambd", Float(1.0))], &[x()], "[4] -1 0 0 2");
    check_operator("Celu", &[("alpha", Float(2.0))], &[x()], "[4] -1.0553 -0.4424 0.5 2.5");
    check_operator("Mean", &[], &[X(&[2], &[1.0, 2.0]), X(&[1], &[4.0])], "[2] 2.5 3");
    check_operator("IsInf", &[("detect_negative", Int(0))], &[X(&[2], &[f64::NEG_INFINITY, f64::INFINITY])], "[2] 0 1");
    check_operator(
        "Add",
        &[],
        &[X(&[2], &[1.0, 2.0]), K(&[1])],
        "node `y0` (Add): the model is not valid: operands are of types Float32 and Int64",
    );
}

/// A constant whose elements are equal is stored as one number. Zeros of both signs compare as equal, but differ.
#[test]
fn constants_keep_the_signs_of_their_zeros() {
    for (zeros, expected) in
        [([0.0, -0.0], "[2] inf -inf"), ([-0.0, 0.0], "[2] -inf inf"), ([-0.0; 2], "[2] -inf -inf")]
    {
        let value = AttributeProto {
            name: "value_floats".to_owned(),
            kind: 6,
            floats: zeros.to_vec(),
            ..AttributeProto::default()
        };
        let constant = NodeProto { attribute: vec![value], ..node("Constant", &[], &["zeros"]) };
        let graph = GraphProto {
            node: vec![constant, node("Div", &["x", "zeros"], &["y"])],
            input: vec![port("x", &[2])],
            output: vec![port("y", &[])],
            ..GraphProto::default()
        };
        let ones =
            InterpTensor::from_numbers(DType::F32, Shape::new([2]).expect("small"), &[1.0, 1.0]).expect("as many");
        assert_eq!(run_graph(graph, &BTreeMap::from([("x".to_owned(), ones)]), 20), expected);
    }
}

#[test]
fn inverse_functions_match_onnx() {
    let x = || X(&[3], &[-0.9, 1e-4, 0.7]);
    check_operator("Asin", &[], &[x()], "[3] -1.1198 0.0001 0.7754");
    check_operator("Acos", &[], &[x()], "[3] 2.6906 1.5707 0.7954");
    check_operator("Atan", &[], &[X(&[3], &[-1e6, 0.3, 2.0])], "[3] -1.5708 0.2915 1.1071");
    check_operator("Atanh", &[], &[x()], "[3] -1.4722 0.0001 0.8673");
    check_operator("Asinh", &[], &[X(&[2], &[-3.0, 1e15])], "[2] -1.8184 35.2319");
    check_operator("Acosh", &[], &[X(&[2], &[1.0, 3.0])], "[2] 0 1.7627");
    check_operator("Sinh", &[], &[X(&[2], &[0.001, -2.0])], "[2] 0.001 -3.6269");
}

#[test]
fn reductions_match_onnx() {
    let x = || X(&[2, 3], &[3.0, 1.0, 2.0, 4.0, 4.0, 0.0]);
    check_operator("ReduceSum", &[("keepdims", Int(0))], &[x(), K(&[-1])], "[2] 6 8");
    check_operator("ReduceSum", &[("noop_with_empty_axes", Int(1))], &[X(&[2], &[1.0, 2.0])], "[2] 1 2");
    check_operator("ReduceMax", &[], &[x()], "[1, 1] 4");
    check_operator(
        "ArgMax",
        &[("axis", Int(1)), ("select_last_index", Int(1)), ("keepdims", Int(0))],
        &[x()],
        "[2] 0 1",
    );
    check_operator("CumSum", &[("exclusive", Int(1)), ("reverse", Int(1))], &[x(), K(&[1])], "[2, 3] 3 2 0 4 0 0");
    let top = run_operator("TopK", &[("largest", Int(0))], &[x(), K(&[2])], 2, 20);
    assert_eq!(top, "[2, 2] 1 2 0 4; [2, 2] 1 2 2 0");
    check_operator(
        "TopK",
        &[],
        &[x(), X(&[1], &[1.0])],
        "node `y0` (TopK): `x1` (the k of TopK) must be known when the model is imported; give it by --constant x1=VALUE, or the option {\"constants\": {\"x1\": VALUE}}",
    );
}

#[test]
fn movement_operators_match_onnx() {
    let x = || X(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    check_operator("Reshape", &[], &[x(), K(&[0, -1, 1])], "[2, 3, 1] 1 2 3 4 5 6");
    check_operator("Slice", &[], &[x(), K(&[-1]), K(&[-9]), K(&[1]), K(&[-2])], "[2, 2] 3 1 6 4");
    check_operator("Pad", &[("mode", Text("reflect"))], &[x(), K(&[0, 2, 0, 0])], "[2, 5] 3 2 1 2 3 6 5 4 5 6");
    check_operator("Pad", &[("mode", Text("wrap"))], &[x(), K(&[0, 1, 0, 1])], "[2, 5] 3 1 2 3 1 6 4 5 6 4");
    check_operator(
        "Pad",
        &[],
        &[x(), K(&[0, -1, 0, 1]), X(&[], &[9.0])],
        "node `y0` (Pad): `x2` (the value of Pad) must be known when the model is imported; give it by --constant x2=VALUE, or the option {\"constants\": {\"x2\": VALUE}}",
    );
    check_operator("Pad", &[], &[x(), K(&[0, -1, 0, 1])], "[2, 3] 2 3 0 5 6 0");
    let split = run_operator("Split", &[("axis", Int(1)), ("num_outputs", Int(2))], &[x()], 2, 20);
    assert_eq!(split, "[2, 2] 1 2 4 5; [2, 1] 3 6");
    check_operator("Tile", &[], &[X(&[2], &[1.0, 2.0]), K(&[2])], "[4] 1 2 1 2");
    check_operator("Trilu", &[("upper", Int(0))], &[x(), K(&[1])], "[2, 3] 1 2 0 4 5 6");
    check_operator("CenterCropPad", &[], &[x(), K(&[1, 5])], "[1, 5] 0 1 2 3 0");
    check_operator(
        "DepthToSpace",
        &[("blocksize", Int(2))],
        &[X(&[1, 4, 1, 1], &[1.0, 2.0, 3.0, 4.0])],
        "[1, 1, 2, 2] 1 2 3 4",
    );
}

#[test]
fn matrix_products_match_onnx() {
    let (a, b) = (|| X(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), || X(&[2, 2], &[0.0, 1.0, 1.0, 0.0]));
    check_operator(
        "Gemm",
        &[("transA", Int(1)), ("alpha", Float(0.5))],
        &[a(), b(), X(&[2], &[10.0, 20.0])],
        "[2, 2] 11.5 20.5 12 21",
    );
    check_operator("Einsum", &[("equation", Text("ij,kj->ik"))], &[a(), b()], "[2, 2] 2 1 4 3");
    check_operator("Einsum", &[("equation", Text("ii->"))], &[a()], "[] 5");
    check_operator("Einsum", &[("equation", Text("...j,j"))], &[a(), X(&[2], &[1.0, 10.0])], "[2] 21 43");
    check_operator(
        "Einsum",
        &[("equation", Text("ij,j,i->j"))],
        &[a(), X(&[2], &[1.0, 2.0]), X(&[2], &[1.0, 1.0])],
        "[2] 4 12",
    );
    check_operator("MatMul", &[], &[a(), X(&[2], &[1.0, 1.0])], "[2] 3 7");
}

#[test]
fn convolutions_and_pools_match_onnx() {
    let line: Vec<f64> = (1..=5).map(f64::from).collect();
    let x = || X(&[1, 1, 5], &line);
    let size = |k: &'static [i64]| ("kernel_shape", Ints(k));
    check_operator(
        "Conv",
        &[("auto_pad", Text("SAME_UPPER"))],
        &[x(), X(&[1, 1, 2], &[1.0, 1.0])],
        "[1, 1, 5] 3 5 7 9 5",
    );
    check_operator(
        "Conv",
        &[("auto_pad", Text("SAME_LOWER"))],
        &[x(), X(&[1, 1, 2], &[1.0, 1.0])],
        "[1, 1, 5] 1 3 5 7 9",
    );
    let ceil = || ("ceil_mode", Int(1));
    check_operator("MaxPool", &[size(&[2]), ("strides", Ints(&[2])), ceil()], &[x()], "[1, 1, 3] 2 4 5");
    let padded = || ("pads", Ints(&[1, 1]));
    check_operator("AveragePool", &[size(&[3]), ("strides", Ints(&[2])), padded()], &[x()], "[1, 1, 3] 1.5 3 4.5");
    let counted = ("count_include_pad", Int(1));
    check_operator("AveragePool", &[size(&[3]), ("strides", Ints(&[2])), padded(), counted], &[x()], "[1, 1, 3] 1 3 3");
    let places =
        run_operator("MaxPool", &[size(&[2]), ("strides", Ints(&[2]))], &[X(&[2, 1, 2], &[1.0, 0.0, 0.0, 3.0])], 2, 20);
    assert_eq!(places, "[2, 1, 1] 1 3; [2, 1, 1] 0 3");
    check_operator(
        "ConvTranspose",
        &[("strides", Ints(&[2]))],
        &[X(&[1, 1, 2], &[1.0, 2.0]), X(&[1, 1, 3], &[1.0, 1.0, 1.0])],
        "[1, 1, 5] 1 1 3 2 2",
    );
    let solid = X(&[1, 1, 2, 1, 1], &[1.0, 2.0]);
    check_operator("Conv", &[], &[solid, X(&[1, 1, 2, 1, 1], &[10.0, 1.0])], "[1, 1, 1, 1, 1] 12");
}

#[test]
fn selecting_operators_match_onnx() {
    let x = || X(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    check_operator("Gather", &[("axis", Int(1))], &[x(), K(&[-1, 0])], "[2, 2] 2 1 4 3");
    check_operator("OneHot", &[], &[K(&[1, -1]), K(&[3]), X(&[2], &[0.0, 5.0])], "[2, 3] 0 5 0 0 0 5");
    check_operator("Compress", &[("axis", Int(1))], &[x(), K(&[0, 1])], "[2, 1] 2 4");
    check_operator(
        "Compress",
        &[("axis", Int(1))],
        &[x(), X(&[2], &[0.0, 1.0])],
        "node `y0` (Compress): `x1` (the condition of Compress) must be known when the model is imported; give it by --constant x1=VALUE, or the option {\"constants\": {\"x1\": VALUE}}",
    );
    let softmax = |opset| run_operator("Hardmax", &[], &[X(&[1, 2, 2], &[1.0, 2.0, 4.0, 3.0])], 1, opset);
    assert_eq!(softmax(20), "[1, 2, 2] 0 1 1 0");
    // Axes from the first on were treated as one.
    assert_eq!(softmax(11), "[1, 2, 2] 0 0 1 0");
}

#[test]
fn resizing_operators_match_onnx() {
    let x = || X(&[1, 1, 2], &[1.0, 3.0]);
    let scales = |op: &str, mode: &'static str, how: &'static str| {
        run_operator(
            op,
            &[("mode", Text(mode)), ("coordinate_transformation_mode", Text(how))],
            &[x(), Nothing, Nothing, K(&[1, 1, 4])],
            1,
            20,
        )
    };
    assert_eq!(scales("Resize", "nearest", "asymmetric"), "[1, 1, 4] 1 1 3 3");
    assert_eq!(scales("Resize", "linear", "half_pixel"), "[1, 1, 4] 1 1.5 2.5 3");
    assert_eq!(scales("Resize", "linear", "align_corners"), "[1, 1, 4] 1 1.6667 2.3333 3");
    assert_eq!(scales("Resize", "cubic", "half_pixel"), "[1, 1, 4] 0.7891 1.4531 2.5469 3.2109");
}
