//! Files that are damaged, inconsistent or too large: each is refused with the place of the error, and none crashes the
//! plugin.

use crate::interpreter::TestWeightStore;
use crate::test_models::{floats, ints, node, port, single_node_model, small_network};
use onnx::import::{import, restore};
use onnx::proto::{
    AttributeProto, DimensionProto, FunctionProto, GraphProto, ModelProto, NodeProto, SkippedMessage,
    StringStringEntryProto, TensorProto,
};
use prost::Message;
use saggar_plugin::Params;

fn import_outcome(model: &ModelProto, options: &str) -> String {
    let options = Params::parse(options).expect("options are JSON");
    match import(&model.encode_to_vec(), &options, &mut TestWeightStore::default()) {
        Ok(config) => config.to_string(),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn assert_refused(model: &ModelProto, expected: &str) {
    let outcome = import_outcome(model, "");
    assert!(outcome.contains(expected), "{outcome}");
}

fn changed_network(change: impl FnOnce(&mut GraphProto)) -> ModelProto {
    let mut model = small_network();
    change(model.graph.as_mut().expect("a network has a graph"));
    model
}

#[test]
fn the_unmodified_network_is_imported() {
    let mut variables = TestWeightStore::default();
    let config = import(&small_network().encode_to_vec(), &Params::new(), &mut variables).unwrap();
    let names: Vec<&str> = variables.0.keys().map(String::as_str).collect();
    assert_eq!(names, ["bias", "filter", "weight"]);
    let (model, plan) = restore(&config).unwrap();
    assert_eq!(plan.batch, [1]);
    assert_eq!(plan.inputs[0].item, [1, 4, 4]);
    assert_eq!(plan.outputs[0].item, [3]);
    let initializers = &model.graph().initializer;
    assert!(initializers.iter().all(|tensor| tensor.float_data.is_empty() && tensor.raw_data.is_empty()));
}

#[test]
fn bytes_that_are_not_onnx_are_refused() {
    let import = |bytes: &[u8]| import(bytes, &Params::new(), &mut TestWeightStore::default()).unwrap_err().to_string();
    assert_eq!(import(b""), "not an ONNX file: there is no graph in it");
    assert!(import(b"GIF89a").starts_with("not an ONNX file: "));
    assert!(import(&[0xff; 100]).starts_with("not an ONNX file: "));
    // The length is beyond the end of the file.
    assert!(import(&[0x3a, 0xff, 0xff, 0xff, 0xff, 0x07]).starts_with("not an ONNX file: "));
}

#[test]
fn inconsistent_tensors_are_refused() {
    let with = |change: fn(&mut TensorProto)| changed_network(|graph| change(&mut graph.initializer[4]));
    assert_refused(
        &with(|t| t.dims = vec![8, 4]),
        "initializer `weight`: the model is not valid: shape [8, 4] takes 128 bytes",
    );
    assert_refused(
        &with(|t| t.dims = vec![-8, -3]),
        "initializer `weight`: the model is not valid: a dimension must be",
    );
    assert_refused(
        &with(|t| t.dims = vec![1 << 30, 1 << 30]),
        "initializer `weight`: the model is not valid: a tensor of shape",
    );
    assert_refused(&with(|t| t.dims = vec![4_194_305, 4_194_305, 211_106_198_978_564]), "initializer `weight`: ");
    assert_refused(&with(|t| t.dims = vec![0, 1 << 40]), "initializer `weight`: ");
    assert_refused(&with(|t| t.raw_data = vec![0; 5]), "takes 96 bytes of elements, not 5");
    assert_refused(&with(|t| t.data_type = 16), "initializer `weight`: not supported: elements of type bfloat16");
    assert_refused(&with(|t| t.data_type = 77), "there is no element type 77");
    assert_refused(
        &with(|t| t.data_location = 1),
        "initializer `weight`: the model is not valid: external_data names no location",
    );
    // Only a configuration can refer to a variable.
    let entry = StringStringEntryProto { key: "variable".to_owned(), value: "filter".to_owned() };
    let lent = changed_network(|graph| graph.initializer[4].external_data.push(entry));
    assert_refused(&lent, "initializer `weight`: the model is not valid: its elements are in another file");
}

#[test]
fn inconsistent_graphs_are_refused() {
    assert_refused(
        &changed_network(|g| g.initializer.push(floats("bias", &[2]))),
        "initializer `bias`: the model is not valid: there are two",
    );
    assert_refused(
        &changed_network(|g| g.input.push(port("x", &[1]))),
        "input `x`: the model is not valid: there are two",
    );
    assert_refused(
        &changed_network(|g| g.sparse_initializer.push(SkippedMessage {})),
        "not supported: sparse initializers",
    );
    let twice = changed_network(|g| g.node.push(node("Relu", &["x"], &["r"])));
    assert_refused(&twice, "node `r` (Relu): the model is not valid: `r` is made twice");
    let cycle = changed_network(|g| g.node[1].input[0] = "y".to_owned());
    assert_refused(&cycle, "node `r` (Relu): the model is not valid: `y` is used before it is made");
    let missing = changed_network(|g| g.node[7].input[1] = "nothing".to_owned());
    assert_refused(&missing, "node `logits` (MatMul): the model is not valid: `nothing` is used before it is made");
    assert_refused(
        &changed_network(|g| g.output[0].name = "z".to_owned()),
        "output `z`: the model is not valid: `z` is used before",
    );
    assert_refused(
        &changed_network(|g| g.node[1].op_type = "Reluu".to_owned()),
        "node `r` (Reluu): not supported: operator Reluu of ai.onnx",
    );
    assert_refused(
        &changed_network(|g| g.node[1].domain = "mine".to_owned()),
        "node `r` (mine.Relu): not supported: operator Relu of mine",
    );
    assert_refused(
        &changed_network(|g| g.node[7].input.truncate(1)),
        "node `logits` (MatMul): the model is not valid: operand 1 is missing",
    );
    assert_refused(&changed_network(|g| g.initializer[0].dims = vec![2, 9]), "node `c` (Conv): ");
    let mut old = small_network();
    old.opset_import[0].version = 5;
    assert_refused(&old, "not supported: version 5 of the operator set");
    old.opset_import.clear();
    assert_refused(&old, "names no operator set");
}

#[test]
fn huge_tensors_are_refused_without_allocating_them() {
    let shape = |values: &[i64]| vec![ints("shape", values)];
    let fill = node("ConstantOfShape", &["shape"], &["y"]);
    assert_refused(&single_node_model(fill.clone(), shape(&[1 << 20, 1 << 20])), "node `y` (ConstantOfShape): ");
    assert_refused(&single_node_model(fill.clone(), shape(&[-1])), "node `y` (ConstantOfShape): ");
    assert_refused(
        &single_node_model(node("Expand", &["x", "shape"], &["y"]), shape(&[1 << 30, 2, 3])),
        "node `y` (Expand): ",
    );
    assert_refused(
        &single_node_model(node("Tile", &["x", "shape"], &["y"]), shape(&[1 << 30, 1 << 30])),
        "node `y` (Tile): ",
    );
    assert_refused(&single_node_model(node("Pad", &["x", "shape"], &["y"]), shape(&[1 << 30; 4])), "node `y` (Pad): ");
    let mut edge = node("Pad", &["x", "shape"], &["y"]);
    edge.attribute.push(AttributeProto {
        name: "mode".to_owned(),
        kind: 3,
        s: b"edge".to_vec(),
        ..AttributeProto::default()
    });
    assert_refused(&single_node_model(edge, shape(&[1 << 30, 0, 1, 1])), "node `y` (Pad): not supported: padding");
    let range = node("Range", &["zero", "most", "one"], &["y"]);
    let scalar = |name: &str, value| TensorProto { dims: Vec::new(), ..ints(name, &[value]) };
    assert_refused(
        &single_node_model(range, vec![scalar("zero", 0), scalar("most", 1 << 40), scalar("one", 1)]),
        "node `y` (Range): ",
    );
    let mut resize = node("Resize", &["x", "", "", "shape"], &["y"]);
    resize.attribute.push(AttributeProto {
        name: "mode".to_owned(),
        kind: 3,
        s: b"linear".to_vec(),
        ..AttributeProto::default()
    });
    assert_refused(
        &single_node_model(resize, shape(&[1 << 30, 1 << 30])),
        "node `y` (Resize): not supported: resizing",
    );
}

#[test]
fn unbounded_loops_and_recursion_are_refused() {
    let body = |nodes: Vec<NodeProto>| GraphProto {
        node: nodes,
        input: vec![port("i", &[]), port("go", &[])],
        output: vec![port("on", &[])],
        ..GraphProto::default()
    };
    let mut repeat = node("Loop", &["many", ""], &["y"]);
    let g = Some(body(vec![node("Identity", &["go"], &["on"])]));
    repeat.attribute.push(AttributeProto { name: "body".to_owned(), kind: 5, g, ..AttributeProto::default() });
    assert_refused(&single_node_model(repeat, vec![ints("many", &[i64::MAX])]), "more than 200000 nodes");

    // A function that calls itself.
    let mut model =
        single_node_model(NodeProto { domain: "mine".to_owned(), ..node("Again", &["x"], &["y"]) }, Vec::new());
    let call = NodeProto { domain: "mine".to_owned(), ..node("Again", &["a"], &["b"]) };
    model.functions.push(FunctionProto {
        name: "Again".to_owned(),
        domain: "mine".to_owned(),
        input: vec!["a".to_owned()],
        output: vec!["b".to_owned()],
        node: vec![call],
        ..FunctionProto::default()
    });
    assert_refused(&model, "nested deeper than");

    let nested = |depth: usize| {
        let mut graph = GraphProto::default();
        for _ in 0..depth {
            let mut branch = node("If", &["c"], &["y"]);
            let g = Some(graph);
            branch.attribute.push(AttributeProto { name: "then_branch".to_owned(), g, ..AttributeProto::default() });
            graph = GraphProto { node: vec![branch], ..GraphProto::default() };
        }
        crate::test_models::wrap_model(graph)
    };
    assert_refused(&nested(30), "nested deeper than");
    assert_refused(&nested(60), "not an ONNX file: ");
}

#[test]
fn open_shapes_must_be_given_as_options() {
    let open = changed_network(|graph| {
        let tensor = graph.input[0].r#type.as_mut().unwrap().tensor_type.as_mut().unwrap();
        let dims = &mut tensor.shape.as_mut().unwrap().dim;
        dims[0] = DimensionProto { dim_value: None, dim_param: Some("n".to_owned()) };
        dims[2] = DimensionProto { dim_value: None, dim_param: Some("height".to_owned()) };
        // The shape that the network computes: one row per image.
        graph.initializer[3] = ints("rest", &[8]);
    });
    assert_eq!(
        import_outcome(&open, ""),
        "option `shapes`: must give the sizes that the model leaves open: input `x` is [n, 1, height, 4]; such as \
         --shape x=?x1x4x4 (as JSON: {\"shapes\": {\"x\": [null, 1, 4, 4]}})"
    );
    let config = |options: &str| {
        let options = Params::parse(options).unwrap();
        restore(&import(&open.encode_to_vec(), &options, &mut TestWeightStore::default()).unwrap()).unwrap().1
    };
    assert_eq!(config(r#"{"shapes": {"x": [null, null, 4, null]}}"#).batch, [1, 8, 32]);
    assert_eq!(config(r#"{"shapes": {"x": [null, 1, 4, 4]}, "batch": [2, 3]}"#).batch, [2, 3]);
    assert_eq!(config(r#"{"shapes": {"x": [1, 1, 4, 4]}}"#).batch, [1]);
    let whole = config(r#"{"shapes": {"x": [2, 1, 4, 4]}}"#);
    assert_eq!((whole.batch.len(), &whole.inputs[0].item[..]), (0, &[2, 1, 4, 4][..]));
    assert_eq!(config(r#"{"shapes": {"x": [null, 1, 4, 4]}}"#).batch, [1, 8, 32], "what the message proposes");
    let wrong = |options: &str, expected: &str| {
        let outcome = import_outcome(&open, options);
        assert!(outcome.contains(expected), "{outcome}");
    };
    wrong(r#"{"shapes": {"x": [1, 3, 4, 4]}}"#, "option `shapes`, `x`: must be 1, not 3");
    wrong(r#"{"shapes": {"x": [1, 1]}}"#, "option `shapes`, `x`: must be of 4 dimensions");
    wrong(r#"{"shapes": {"z": [1]}}"#, "there is no `z` among x");
    wrong(r#"{"shapes": {"x": [null, 1, 4, 4]}, "batch": [8, 1]}"#, "option `batch`: must be 1 to 16 ascending sizes");
    wrong(r#"{"constants": {"x": [1, 2]}}"#, "option `constants`, `x`: must be of the input's shape");
    wrong(r#"{"constants": {"x": [1, [2]]}}"#, "parameter `constants` must be");
}

/// A deterministic source of numbers.
struct SeededNumbers(u64);

impl SeededNumbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }
}

#[test]
fn randomly_damaged_files_never_panic() {
    let whole = small_network().encode_to_vec();
    for end in 0..whole.len() {
        let _ = import(&whole[..end], &Params::new(), &mut TestWeightStore::default());
    }
    for bit in 0..8 * whole.len() {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_no_panic(&bytes);
    }
    let mut numbers = SeededNumbers(1);
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + numbers.below(3) {
            let at = numbers.below(bytes.len());
            match numbers.below(4) {
                0 => bytes[at] ^= 1 << numbers.below(8),
                1 => bytes[at] = numbers.below(256) as u8,
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, numbers.below(256) as u8),
            }
        }
        assert_no_panic(&bytes);
    }
}

/// Checks that importing `bytes` returns a result instead of panicking, and that an imported model can be restored.
fn assert_no_panic(bytes: &[u8]) {
    if let Ok(config) = import(bytes, &Params::new(), &mut TestWeightStore::default()) {
        restore(&config).expect("what is imported can be restored");
    }
}
