//! The options that import errors propose, and that they work.

use onnx::import::import;
use onnx::proto::{AttributeProto, DimensionProto, GraphProto, ModelProto, ValueInfoProto};
use prost::Message;
use saggar_plugin::Params;

use crate::interpreter::TestWeightStore;
use crate::test_models::{ints, node, port, small_network, wrap_model};

/// Returns a port. Each dimension is a size, or the name of an open dimension.
fn open_port(name: &str, dims: &[&str]) -> ValueInfoProto {
    let mut port = port(name, &[]);
    let dim = |dim: &&str| match dim.parse::<i64>() {
        Ok(size) => DimensionProto { dim_value: Some(size), dim_param: None },
        Err(_) => DimensionProto { dim_value: None, dim_param: Some((*dim).to_owned()) },
    };
    let tensor = port.r#type.as_mut().and_then(|of| of.tensor_type.as_mut());
    let shape = tensor.and_then(|tensor| tensor.shape.as_mut()).expect("a port has a shape");
    shape.dim = dims.iter().map(dim).collect();
    port
}

fn import_result(model: &ModelProto, options: &str) -> Result<Params, String> {
    let options = Params::parse(options).expect("the test writes JSON");
    import(&model.encode_to_vec(), &options, &mut TestWeightStore::default()).map_err(|error| error.to_string())
}

/// Returns the options that a message proposes as JSON.
fn proposed_json(message: &str) -> &str {
    let (_, json) = message.split_once("(as JSON: ").expect("the message proposes options");
    json.strip_suffix(')').expect("and nothing after them")
}

fn sum_model(a: &[&str], b: &[&str]) -> ModelProto {
    wrap_model(GraphProto {
        node: vec![node("Add", &["a", "b"], &["y"])],
        input: vec![open_port("a", a), open_port("b", b)],
        output: vec![port("y", &[])],
        ..GraphProto::default()
    })
}

#[test]
fn all_open_dimensions_are_reported_at_once() {
    let model = sum_model(&["batch", "sequence", "4"], &["batch", "sequence", "4"]);
    let message = import_result(&model, "{}").unwrap_err();
    assert_eq!(
        message,
        "option `shapes`: must give the sizes that the model leaves open: input `a` is [batch, sequence, 4], input `b` is \
         [batch, sequence, 4]; such as --shape a=?x128x4 --shape b=?x128x4 (as JSON: {\"shapes\": {\"a\": [null, 128, 4], \
         \"b\": [null, 128, 4]}})"
    );
    import_result(&model, proposed_json(&message)).unwrap();
    // Options that were given are repeated.
    let message = import_result(&model, r#"{"shapes": {"a": [null, 7, 4]}}"#).unwrap_err();
    assert!(message.contains("leaves open: input `b` is [batch, sequence, 4];"), "{message}");
    assert!(message.contains("such as --shape a=?x7x4 --shape b=?x7x4 "), "{message}");
    import_result(&model, proposed_json(&message)).unwrap();
}

#[test]
fn only_working_options_are_proposed() {
    // `b` must have 5 columns, but its name does not say so.
    let message = import_result(&sum_model(&["2", "5"], &["2", "columns"]), "{}").unwrap_err();
    assert!(message.contains("such as --shape b=2x1 "), "a size of 1 is repeated along the other operand: {message}");
    let never = wrap_model(GraphProto {
        node: vec![node("Add", &["a", "b"], &["y"]), node("Bogus", &["y"], &["z"])],
        input: vec![open_port("a", &["2", "c"]), open_port("b", &["2", "c"])],
        output: vec![port("z", &[])],
        ..GraphProto::default()
    });
    let message = import_result(&never, "{}").unwrap_err();
    assert!(
        message.ends_with("on the command line as --shape INPUT=SIZExSIZE, with ? for a size that stays"),
        "{message}"
    );
}

/// Returns a network whose computed shape only fits one image.
fn single_image_model() -> ModelProto {
    let mut single = small_network();
    let graph = single.graph.as_mut().expect("the network is a graph");
    graph.input[0] = open_port("x", &["n", "1", "4", "4"]);
    for node in graph.node.iter_mut().filter(|node| node.op_type == "Reshape") {
        node.input[1] = "one".to_owned();
    }
    graph.initializer.push(ints("one", &[1, 8]));
    single
}

#[test]
fn a_single_item_model_error_explains_how_to_import_it() {
    let message = import_result(&single_image_model(), "{}").unwrap_err();
    assert!(
        message.starts_with("the model computes batches of 1 only: for a batch of 8, node `flat` (Reshape): "),
        "{message}"
    );
    assert!(message.ends_with("Import it with --batch 1, or the option {\"batch\": [1]}"), "{message}");
    import_result(&single_image_model(), r#"{"batch": [1]}"#).unwrap();
    // Proposed options take the single-item limit into account.
    let mut open = single_image_model();
    open.graph.as_mut().unwrap().input[0] = open_port("x", &["n", "1", "height", "4"]);
    let message = import_result(&open, "{}").unwrap_err();
    assert!(message.contains("such as --shape x=?x1x4x4 --batch 1 (as JSON: "), "{message}");
    import_result(&open, proposed_json(&message)).unwrap();
}

#[test]
fn batch_sizes_are_refused_for_a_fixed_batch() {
    let message = import_result(&small_network(), r#"{"batch": [4]}"#).unwrap_err();
    assert!(
        message.starts_with("option `batch`: must be left out: the model's shapes are fixed (`x` [1, 1, 4, 4])"),
        "{message}"
    );
    import_result(&small_network(), r#"{"batch": [1]}"#).unwrap();
}

#[test]
fn a_value_that_must_be_constant_is_traced_to_its_inputs() {
    let top = |how_many: &str, nodes: &[onnx::proto::NodeProto]| {
        let mut all = nodes.to_vec();
        all.push(node("TopK", &["x", how_many], &["y", "at"]));
        let mut k = open_port("k", &["1"]);
        k.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().elem_type = 7;
        wrap_model(GraphProto {
            node: all,
            input: vec![open_port("x", &["2", "200"]), k],
            output: vec![port("y", &[])],
            ..GraphProto::default()
        })
    };
    let settable = top("more", &[node("Add", &["k", "k"], &["more"])]);
    let message = import_result(&settable, "{}").unwrap_err();
    assert!(
        message.ends_with(
            "`more` (the k of TopK) must be known when the model is imported; give it by --constant k=VALUE, or the \
             option {\"constants\": {\"k\": VALUE}}"
        ),
        "{message}"
    );
    import_result(&settable, r#"{"constants": {"k": [2]}}"#).unwrap();
    let mut cast = node("Cast", &["largest"], &["most"]);
    cast.attribute.push(AttributeProto { name: "to".to_owned(), kind: 2, i: 7, ..AttributeProto::default() });
    let computed = top("most", &[node("ReduceMax", &["x"], &["largest"]), cast]);
    let message = import_result(&computed, "{}").unwrap_err();
    assert!(
        message.ends_with(
            "`most` (the k of TopK) must be known when the model is imported, but follows from the data of each request \
             (input `x`): such a model cannot be imported"
        ),
        "{message}"
    );
}
