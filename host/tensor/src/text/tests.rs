//! Printed graphs parse back to the same graph, and parsing never panics.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::{CONSTANT_TEXT_BYTES_MAX, parse, print};
use crate::op::{
    BinaryOp, ContractOp, Conv2d, ConvolutionOp, IndexOp, MovementOp, Op, Pool2d, PoolKind, RandomDistribution,
    ReduceKind, ReduceOp, Scalar, ScatterCombine, SourceOp, UnaryOp,
};
use crate::{DType, Descriptor, Graph, GraphNode, GraphPort, NodeId, Shape};

fn check(text: &str, expected: Expect) {
    let answer = match parse(text) {
        Ok(graph) => print(&graph),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&answer);
}

fn float(dims: &[usize]) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new(dims).unwrap())
}

/// Returns every operator except sources, with attributes that differ from each other.
fn computations() -> Vec<Op> {
    let shape = Shape::new([2, 0, 3]).unwrap();
    let conv = Conv2d { padding: [1, 2, 3, 4], strides: [5, 6], dilations: [7, 8], groups: 9 };
    let pool = Pool2d { window: [9, 10], padding: [1, 2, 3, 4], strides: [5, 6], dilations: [7, 8] };
    let fold = |kind| Op::Reduce(ReduceOp::Fold { kind, axes: vec![0, 2] });
    let mut ops: Vec<Op> = UnaryOp::WITHOUT_ATTRIBUTES.iter().copied().map(Op::Unary).collect();
    ops.extend(BinaryOp::ALL.iter().copied().map(Op::Binary));
    ops.extend(DType::ALL.into_iter().map(|dtype| Op::Unary(UnaryOp::Cast(dtype))));
    ops.extend(ReduceKind::ALL.map(fold));
    ops.extend(
        [
            MovementOp::Reshape(Shape::scalar()),
            MovementOp::Broadcast(shape),
            MovementOp::Transpose(vec![2, 1, 0]),
            MovementOp::Slice { starts: vec![1], sizes: vec![2], strides: vec![3] },
            MovementOp::Reverse(vec![1, 2]),
            MovementOp::Pad { low: vec![1], high: vec![2], value: Scalar::Float(f64::NEG_INFINITY) },
            MovementOp::Concat { axis: 3 },
        ]
        .map(Op::Movement),
    );
    ops.extend(
        [
            ConvolutionOp::Conv2d(conv),
            ConvolutionOp::Conv2dInputGrad { conv, size: [11, 12] },
            ConvolutionOp::Conv2dFilterGrad { conv, window: [11, 12] },
            ConvolutionOp::Pool2d { kind: PoolKind::Max, pool },
            ConvolutionOp::Pool2d { kind: PoolKind::Sum, pool },
            ConvolutionOp::MaxPool2dGrad(pool),
            ConvolutionOp::SumPool2dGrad { pool, size: [usize::MAX, 12] },
        ]
        .map(Op::Convolution),
    );
    ops.extend([
        Op::Select,
        Op::Reduce(ReduceOp::ArgMax { axis: 1 }),
        Op::Reduce(ReduceOp::ArgMin { axis: 2 }),
        Op::Contract(ContractOp::MatMul { transpose_a: true, transpose_b: false }),
        Op::Index(IndexOp::Gather { axis: 1 }),
        Op::Index(IndexOp::ScatterAdd { axis: 1, size: 2 }),
    ]);
    ops.extend(ScatterCombine::ALL.map(|combine| Op::Index(IndexOp::Scatter { axis: 2, combine })));
    ops
}

fn sources() -> Vec<Op> {
    let floats = [0.0, -0.0, 1.5, 1e-300, f64::MAX, f64::MIN_POSITIVE, f64::INFINITY, 0.1, 1e16];
    let integers = [0, -1, u64::MAX.into(), i64::MIN.into()];
    let mut sources: Vec<SourceOp> = floats.map(|value| SourceOp::Fill(Scalar::Float(value))).into();
    sources.extend(integers.map(|value| SourceOp::Fill(Scalar::Int(value))));
    sources.extend([
        SourceOp::Input(0),
        SourceOp::Input(1),
        SourceOp::Input(7),
        SourceOp::Variable(0),
        SourceOp::Constant(1),
        SourceOp::Iota { axis: 2 },
        SourceOp::Random { stream: u32::MAX, distribution: RandomDistribution::Bits },
        SourceOp::Random { stream: 0, distribution: RandomDistribution::Uniform },
    ]);
    sources.into_iter().map(Op::Source).collect()
}

fn graph_of_all_operators() -> Graph {
    let mut graph = Graph::default();
    for name in ["x", "x", "quoted \"name\" \\ \n ; \u{7f} é"] {
        graph.inputs.push(GraphPort { name: name.into(), descriptor: float(&[2, 3]) });
    }
    graph.variables.push(GraphPort { name: "w".into(), descriptor: float(&[]) });
    graph.constants = vec![vec![0, 1, 0xab, 0xff].into(), Vec::new().into()];
    for op in sources().into_iter().chain(computations()) {
        let count = graph.nodes.len() as u32;
        let inputs = (0..count % 4).map(|offset| NodeId(count - offset)).collect();
        let label = count.is_multiple_of(3).then(|| format!("node \"{count}\"").into());
        graph.nodes.push(GraphNode { op, inputs, descriptor: float(&[count as usize]), label });
    }
    graph.outputs = vec![("y".into(), NodeId(3)), (String::new(), NodeId(u32::MAX))];
    graph.assignments = vec![(0, NodeId(2)), (9, NodeId(0))];
    graph
}

#[test]
fn every_operator_round_trips() {
    let graph = graph_of_all_operators();
    let text = print(&graph);
    let read = parse(&text).unwrap();
    assert_eq!(read, graph);
    assert_eq!(print(&read), text);
    // Equality does not distinguish -0.0 from 0.0.
    assert!(text.contains("{value=-0.0}"));
}

#[test]
fn operator_names_are_unique() {
    let mut names: Vec<&str> = computations().iter().map(Op::name).collect();
    names.sort_unstable();
    // The casts to the eight data types share one name, as do the scatters.
    let named = |name: &str| names.iter().filter(|other| **other == name).count();
    let (casts, scatters) = (named("cast"), named("scatter"));
    assert_eq!((casts, scatters), (DType::ALL.len(), 5));
    let count = names.len() - casts - scatters + 2;
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn the_text_form_is_stable() {
    check(
        r#"
            ; a layer
            input "x" : float32[2,3]
            variable "w":float32[3, 4]
            constant #0: 0000803F
            %0: float32[2, 3] = input "x" ; the first
            %1: float32[3, 4] = variable #0
            %2 "product": float32[2, 4] = matmul %0, %1 {transpose-b=false, transpose-a=false}
            %3: float32[] = constant #0
            output "y" = %2
            assign "w" = %1
        "#,
        expect![[r#"
            input "x": float32[2, 3]
            variable "w": float32[3, 4]
            constant #0: 0000803f
            %0: float32[2, 3] = input "x"
            %1: float32[3, 4] = variable "w"
            %2 "product": float32[2, 4] = matmul %0, %1 {transpose-a=false, transpose-b=false}
            %3: float32[] = constant #0
            output "y" = %2
            assign "w" = %1
        "#]],
    );
}

#[test]
fn parse_errors_name_the_line() {
    check("\ninput x: float32[]", expect![[r#"line 2: expected a quoted name, found "x""#]]);
    check("input \"x\" float32[]", expect![[r#"line 1: expected a colon, found "float32""#]]);
    check("input \"x\": float64[]", expect![[r#"line 1: expected a data type, found "float64""#]]);
    check("input \"x\": float32[1, ]", expect![[r#"line 1: expected a size, found "]""#]]);
    check("input \"x\": float32[-1]", expect![[r#"line 1: expected a size, found "-1""#]]);
    check("input \"x\": float32[1 2]", expect![[r#"line 1: expected a comma or a closing mark, found "2""#]]);
    check("input \"x\": float32[] trailing", expect![[r#"line 1: expected the end of the line, found "trailing""#]]);
    check(
        "input \"x\": float32[1, 1, 1, 1, 1, 1, 1, 1, 1]",
        expect!["line 1: a tensor has at most 8 dimensions, not 9"],
    );
    check("input \"x", expect!["line 1: a string is not closed or has an unknown escape"]);
    check("input \"\\n\": float32[]", expect!["line 1: a string is not closed or has an unknown escape"]);
    check("nonsense", expect![[r#"line 1: expected a statement, found "nonsense""#]]);
    check("= 3", expect![[r#"line 1: expected a statement, found "=""#]]);
    check("%1: float32[] = neg %0", expect!["line 1: expected number 0 here, found 1"]);
    check("constant #1: 00", expect!["line 1: expected number 0 here, found 1"]);
    check("constant #0: 0", expect![[r#"line 1: expected bytes in base 16, found "0""#]]);
    check("constant #0: 0g", expect![[r#"line 1: expected bytes in base 16, found "0g""#]]);
    check("%0: float32[] = relu %0", expect![[r#"line 1: there is no operator "relu""#]]);
    check("%0: float32[] = neg 0", expect![[r#"line 1: expected a node such as %0, found "0""#]]);
    check("%0: float32[] = neg %99999999999", expect![[r#"line 1: expected a node such as %0, found "%99999999999""#]]);
    check("%0: float32[] = input \"x\"", expect![[r#"line 1: there is no input "x""#]]);
    check("%0: float32[] = input", expect![[r#"line 1: expected a number such as #0, found """#]]);
    check("%0: float32[] = arg-max %0", expect!["line 1: arg-max needs the attribute axis"]);
    check("%0: float32[] = arg-max %0 {axis=1.5}", expect![[r#"line 1: expected a size, found "1.5""#]]);
    check("%0: float32[] = arg-max %0 {axis=[1]}", expect![[r#"line 1: expected a number, found "[1]""#]]);
    check(
        "%0: float32[] = arg-max %0 {axis=1, axis=1}",
        expect!["line 1: arg-max: attribute axis is unknown or repeated"],
    );
    check("%0: float32[] = neg %0 {axis=1}", expect!["line 1: neg: attribute axis is unknown or repeated"]);
    check("%0: float32[] = cast %0 {to=float64}", expect![[r#"line 1: expected a data type, found "float64""#]]);
    check(
        "%0: float32[] = random %0 {stream=4294967296, distribution=bits}",
        expect![[r#"line 1: expected a stream of 32 bits, found "4294967296""#]],
    );
    check("%0: float32[] = max-pool2d %0 {window=[1]}", expect![[r#"line 1: expected two sizes, found "[1]""#]]);
    check("%0: float32[] = arg-max %0 {axis=1", expect![[r#"line 1: expected a comma or a closing mark, found """#]]);
    check("assign \"w\" = %0", expect![[r#"line 1: there is no variable "w""#]]);
}

#[test]
fn large_constants_are_omitted_from_the_text() {
    let constants = vec![vec![7; CONSTANT_TEXT_BYTES_MAX].into(), vec![7; CONSTANT_TEXT_BYTES_MAX + 1].into()];
    let mut graph = Graph { constants, ..Graph::default() };
    let text = print(&graph);
    assert!(text.ends_with("constant #1: omitted ; 4097 bytes\n"));
    assert_eq!(parse(&text).unwrap_err().to_string(), "line 2: the bytes of this constant were omitted");
    graph.constants.pop();
    assert_eq!(parse(&print(&graph)).unwrap(), graph);
}

proptest! {
    #[test]
    fn any_text_is_answered(text in "([ -~\n]{0,20}|input|%0|output|\"x\"|=|: float32|\\[1\\]|\n){0,9}") {
        match parse(&text) {
            Ok(graph) => prop_assert_eq!(parse(&print(&graph)), Ok(graph)),
            Err(error) => prop_assert!((1..=text.lines().count()).contains(&error.line)),
        }
    }

    #[test]
    fn damaged_text_is_answered(at in any::<prop::sample::Index>(), with in "[ -~]{0,3}") {
        let mut text = print(&graph_of_all_operators());
        let at = at.index(text.len());
        if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
            text.replace_range(at..=at, &with);
        }
        // Every parsed graph can be printed and parsed again.
        if let Ok(graph) = parse(&text) {
            prop_assert_eq!(print(&parse(&print(&graph)).unwrap()), print(&graph));
        }
    }

    #[test]
    fn any_name_reads_back(name in any::<String>()) {
        let outputs = vec![(name, NodeId(0))];
        let graph = Graph { outputs, ..Graph::default() };
        prop_assert_eq!(parse(&print(&graph)).unwrap(), graph);
    }
}
