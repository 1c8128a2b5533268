//! Small models for tests.

use onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

pub(crate) fn port(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dim = dims.iter().map(|&dim| DimensionProto { dim_value: Some(dim), dim_param: None }).collect();
    let tensor_type = Some(TensorTypeProto { elem_type: 1, shape: Some(TensorShapeProto { dim }) });
    ValueInfoProto { name: name.to_owned(), r#type: Some(TypeProto { tensor_type }) }
}

pub(crate) fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    NodeProto { op_type: op.to_owned(), input: names(inputs), output: names(outputs), ..NodeProto::default() }
}

pub(crate) fn floats(name: &str, dims: &[i64]) -> TensorProto {
    let count = dims.iter().product::<i64>();
    let float_data = (0..count).map(|i| i as f32).collect();
    TensorProto { name: name.to_owned(), dims: dims.to_vec(), data_type: 1, float_data, ..TensorProto::default() }
}

pub(crate) fn ints(name: &str, values: &[i64]) -> TensorProto {
    let (dims, int64_data) = (vec![values.len() as i64], values.to_vec());
    TensorProto { name: name.to_owned(), dims, data_type: 7, int64_data, ..TensorProto::default() }
}

fn attribute(name: &str, kind: i32, ints: &[i64]) -> AttributeProto {
    AttributeProto { name: name.to_owned(), kind, ints: ints.to_vec(), ..AttributeProto::default() }
}

/// Returns a network: a convolution, a pooling, a reshape to a computed shape, a linear layer and a softmax.
pub(crate) fn small_network() -> ModelProto {
    let mut conv = node("Conv", &["x", "filter", "bias"], &["c"]);
    conv.attribute.push(attribute("pads", 7, &[1, 1, 1, 1]));
    let mut pool = node("MaxPool", &["r"], &["p"]);
    pool.attribute = vec![attribute("kernel_shape", 7, &[2, 2]), attribute("strides", 7, &[2, 2])];
    let mut concat = node("Concat", &["batch", "rest"], &["shape"]);
    concat.attribute.push(attribute("axis", 2, &[]));
    let nodes = vec![
        conv,
        node("Relu", &["c"], &["r"]),
        pool,
        node("Shape", &["p"], &["s"]),
        node("Gather", &["s", "first"], &["batch"]),
        concat,
        node("Reshape", &["p", "shape"], &["flat"]),
        node("MatMul", &["flat", "weight"], &["logits"]),
        node("Softmax", &["logits"], &["y"]),
    ];
    let graph = GraphProto {
        node: nodes,
        name: "network".to_owned(),
        initializer: vec![
            floats("filter", &[2, 1, 3, 3]),
            floats("bias", &[2]),
            ints("first", &[0]),
            ints("rest", &[-1]),
            floats("weight", &[8, 3]),
        ],
        input: vec![port("x", &[1, 1, 4, 4])],
        output: vec![port("y", &[1, 3])],
        ..GraphProto::default()
    };
    wrap_model(graph)
}

pub(crate) fn wrap_model(graph: GraphProto) -> ModelProto {
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
    ModelProto { ir_version: 8, graph: Some(graph), opset_import, ..ModelProto::default() }
}

/// Returns a model of one node with one input.
pub(crate) fn single_node_model(node: NodeProto, initializers: Vec<TensorProto>) -> ModelProto {
    let output = vec![port(&node.output[0], &[])];
    let input = vec![port("x", &[2, 3])];
    wrap_model(GraphProto { node: vec![node], initializer: initializers, input, output, ..GraphProto::default() })
}
