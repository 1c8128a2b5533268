//! Tests of the builder as text: inserted nodes and errors.

use expect_test::{Expect, expect};

use super::GraphBuilder;
use crate::limits::{GRAPH_CONSTANT_BYTES_MAX, GRAPH_NODES_MAX, GRAPH_OUTPUTS_MAX};
use crate::op::{Conv2d, Op, Pool2d, PoolKind, RandomDistribution, Scalar, SourceOp, UnaryOp};
use crate::{DType, Descriptor, GraphError, NodeId, Shape, text, verify};

/// Builds a graph with inputs of these descriptors and compares the nodes after them, or the error.
fn check(
    inputs: &[&str],
    build: impl Fn(&mut GraphBuilder, &[NodeId]) -> Result<NodeId, GraphError>,
    expected: Expect,
) {
    let mut g = GraphBuilder::new();
    let ids: Vec<NodeId> = inputs
        .iter()
        .enumerate()
        .map(|(index, input)| g.input(&format!("x{index}"), descriptor(input)).unwrap())
        .collect();
    let answer = match build(&mut g, &ids) {
        Ok(id) => {
            g.output("y", id).unwrap();
            let graph = verify(g.finish()).unwrap().into_graph();
            let printed = text::print(&graph);
            printed.lines().skip(2 * ids.len()).map(|line| format!("{line}\n")).collect()
        }
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&answer);
}

fn descriptor(text: &str) -> Descriptor {
    text::parse(&format!("input \"x\": {text}")).unwrap().inputs.remove(0).descriptor
}

#[test]
fn element_wise_operators_broadcast() {
    check(
        &["float32[2, 3]", "float32[3]"],
        |g, x| g.add(x[0], x[1]),
        expect![[r#"
        %2: float32[1, 3] = reshape %1 {shape=[1, 3]}
        %3: float32[2, 3] = expand %2 {shape=[2, 3]}
        %4: float32[2, 3] = add %0, %3
        output "y" = %4
    "#]],
    );
    check(
        &["float32[2, 1]", "float32[3]"],
        |g, x| g.mul(x[0], x[1]),
        expect![[r#"
        %2: float32[2, 3] = expand %0 {shape=[2, 3]}
        %3: float32[1, 3] = reshape %1 {shape=[1, 3]}
        %4: float32[2, 3] = expand %3 {shape=[2, 3]}
        %5: float32[2, 3] = mul %2, %4
        output "y" = %5
    "#]],
    );
    check(
        &["float32[2, 3]", "float32[4]"],
        |g, x| g.add(x[0], x[1]),
        expect!["add: cannot broadcast float32[2, 3] with float32[4]"],
    );
    check(
        &["float32[2]", "int32[2]"],
        |g, x| g.greater(x[0], x[1]),
        expect!["greater: operands differ in data type: float32[2] and int32[2]"],
    );
    check(
        &["float32[2]", "float32[]"],
        |g, x| g.greater(x[0], x[1]),
        expect![[r#"
        %2: float32[1] = reshape %1 {shape=[1]}
        %3: float32[2] = expand %2 {shape=[2]}
        %4: uint8[2] = lesser %3, %0
        output "y" = %4
    "#]],
    );
    check(
        &["float32[2]", "float32[2]"],
        |g, x| g.not_equal(x[0], x[1]),
        expect![[r#"
        %2: uint8[2] = equal %0, %1
        %3: uint8[2] = logical-not %2
        output "y" = %3
    "#]],
    );
}

#[test]
fn select_broadcasts_all_three_operands() {
    check(
        &["uint8[3]", "float32[2, 1]", "float32[]"],
        |g, x| g.select(x[0], x[1], x[2]),
        expect![[r#"
            %3: uint8[1, 3] = reshape %0 {shape=[1, 3]}
            %4: uint8[2, 3] = expand %3 {shape=[2, 3]}
            %5: float32[2, 3] = expand %1 {shape=[2, 3]}
            %6: float32[1, 1] = reshape %2 {shape=[1, 1]}
            %7: float32[2, 3] = expand %6 {shape=[2, 3]}
            %8: float32[2, 3] = where %4, %5, %7
            output "y" = %8
        "#]],
    );
    check(
        &["float32[0]", "float32[1]"],
        |g, x| g.max(x[0], x[1]),
        expect![[r#"
        %2: float32[0] = expand %1 {shape=[0]}
        %3: float32[0] = max %0, %2
        output "y" = %3
    "#]],
    );
    check(
        &["float32[2]"],
        |g, x| g.cast(x[0], DType::F32),
        expect![[r#"
        output "y" = %0
    "#]],
    );
}

#[test]
fn errors_contain_the_labels_of_operands() {
    let labelled = |g: &mut GraphBuilder, x: &[NodeId]| {
        g.label(x[0], "hidden")?;
        g.label(x[1], "bias")?;
        g.sub(x[0], x[1])
    };
    check(
        &["float32[2, 3]", "float32[4]"],
        labelled,
        expect!["sub: cannot broadcast float32[2, 3] with float32[4] (at hidden, bias)"],
    );
    let unary = |g: &mut GraphBuilder, x: &[NodeId]| {
        g.label(x[0], "digits")?;
        g.exp(x[0])
    };
    check(&["uint8[2]"], unary, expect!["exp: input must be float32 or float16, not uint8 (at digits)"]);
}

#[test]
fn reductions_keep_or_drop_axes() {
    check(
        &["float32[2, 3, 4]"],
        |g, x| g.reduce_sum(x[0], &[2, 0], false),
        expect![[r#"
        %1: float32[1, 3, 1] = reduce-sum %0 {axes=[0, 2]}
        %2: float32[3] = reshape %1 {shape=[3]}
        output "y" = %2
    "#]],
    );
    check(
        &["float32[2, 3, 4]"],
        |g, x| g.reduce_max(x[0], &[1], true),
        expect![[r#"
        %1: float32[2, 1, 4] = reduce-max %0 {axes=[1]}
        output "y" = %1
    "#]],
    );
    check(
        &["float32[2, 3]"],
        |g, x| g.arg_max(x[0], 1, false),
        expect![[r#"
        %1: int32[2, 1] = arg-max %0 {axis=1}
        %2: int32[2] = reshape %1 {shape=[2]}
        output "y" = %2
    "#]],
    );
    check(
        &["float32[2, 3]"],
        |g, x| g.reduce_min(x[0], &[1, 1], false),
        expect!["reduce-min: axes [1, 1] must be sorted and distinct"],
    );
}

#[test]
fn identity_movements_add_no_node() {
    let still = |g: &mut GraphBuilder, x: &[NodeId]| {
        let y = g.reshape(x[0], &[2, 3])?;
        let y = g.transpose(y, &[0, 1])?;
        g.broadcast_to(y, Shape::new([2, 3])?)
    };
    check(
        &["float32[2, 3]"],
        still,
        expect![[r#"
        output "y" = %0
    "#]],
    );
    check(
        &["float32[2, 3]"],
        |g, x| g.broadcast_to(x[0], Shape::new([3])?),
        expect!["expand: cannot broadcast float32[2, 3] to [3]"],
    );
    check(
        &["float32[2, 3]"],
        |g, x| g.broadcast_to(x[0], Shape::new([5, 2, 4])?),
        expect!["expand: cannot broadcast float32[2, 3] to [5, 2, 4]"],
    );
    check(
        &["int8[2, 3]"],
        |g, x| g.pad(x[0], &[1, 0], &[0, 1], Scalar::Float(2.0)),
        expect![[r#"
        %1: int8[3, 4] = pad %0 {low=[1, 0], high=[0, 1], value=2}
        output "y" = %1
    "#]],
    );
    check(
        &["float32[9, 3]"],
        |g, x| g.narrow(x[0], 0, 4, 2),
        expect![[r#"
        %1: float32[2, 3] = slice %0 {starts=[4, 0], sizes=[2, 3], strides=[1, 1]}
        output "y" = %1
    "#]],
    );
    check(
        &["float32[9, 3]"],
        |g, x| g.narrow(x[0], 2, 4, 2),
        expect!["slice: axis 2 is out of range for float32[9, 3]"],
    );
}

#[test]
fn matmul_broadcasts_batches() {
    check(
        &["float32[2, 3]", "float32[3, 4]"],
        |g, x| g.matmul(x[0], x[1]),
        expect![[r#"
        %2: float32[2, 4] = matmul %0, %1 {transpose-a=false, transpose-b=false}
        output "y" = %2
    "#]],
    );
    check(
        &["float32[5, 2, 3]", "float32[3, 4]"],
        |g, x| g.matmul(x[0], x[1]),
        expect![[r#"
        %2: float32[10, 3] = reshape %0 {shape=[10, 3]}
        %3: float32[10, 4] = matmul %2, %1 {transpose-a=false, transpose-b=false}
        %4: float32[5, 2, 4] = reshape %3 {shape=[5, 2, 4]}
        output "y" = %4
    "#]],
    );
    check(
        &["float32[2, 3]", "float32[5, 3, 4]"],
        |g, x| g.matmul(x[0], x[1]),
        expect![[r#"
        %2: float32[1, 2, 3] = reshape %0 {shape=[1, 2, 3]}
        %3: float32[5, 2, 3] = expand %2 {shape=[5, 2, 3]}
        %4: float32[5, 2, 4] = matmul %3, %1 {transpose-a=false, transpose-b=false}
        output "y" = %4
    "#]],
    );
    check(
        &["float32[5, 1, 2, 3]", "float32[6, 3, 4]"],
        |g, x| g.matmul(x[0], x[1]),
        expect![[r#"
        %2: float32[5, 6, 2, 3] = expand %0 {shape=[5, 6, 2, 3]}
        %3: float32[1, 6, 3, 4] = reshape %1 {shape=[1, 6, 3, 4]}
        %4: float32[5, 6, 3, 4] = expand %3 {shape=[5, 6, 3, 4]}
        %5: float32[5, 6, 2, 4] = matmul %2, %4 {transpose-a=false, transpose-b=false}
        output "y" = %5
    "#]],
    );
    check(
        &["float32[5, 2, 3]", "float32[6, 3, 4]"],
        |g, x| g.matmul(x[0], x[1]),
        expect!["matmul: cannot broadcast float32[5, 2, 3] with float32[6, 3, 4]"],
    );
    check(
        &["float32[5, 2, 3]", "float32[4, 4]"],
        |g, x| g.matmul(x[0], x[1]),
        expect!["matmul: inner dimensions 3 and 4 differ"],
    );
    check(
        &["float32[3]", "float32[3, 4]"],
        |g, x| g.matmul(x[0], x[1]),
        expect!["matmul: a must have at least 2 dimension(s), not float32[3]"],
    );
    check(
        &["int32[2, 3]", "int32[3, 4]"],
        |g, x| g.matmul(x[0], x[1]),
        expect!["matmul: a must be float32 or float16, not int32"],
    );
}

#[test]
fn windowed_and_index_operators_check_their_operands() {
    let conv = Conv2d { padding: [1; 4], strides: [1; 2], dilations: [1; 2], groups: 1 };
    let pool = Pool2d { window: [2; 2], padding: [0; 4], strides: [2; 2], dilations: [1; 2] };
    let network = |g: &mut GraphBuilder, x: &[NodeId]| {
        let y = g.conv2d(x[0], x[1], conv)?;
        g.pool2d(y, PoolKind::Max, pool)
    };
    check(
        &["float32[1, 1, 8, 8]", "float32[4, 1, 3, 3]"],
        network,
        expect![[r#"
        %2: float32[1, 4, 8, 8] = conv2d %0, %1 {padding=[1, 1, 1, 1], strides=[1, 1], dilations=[1, 1], groups=1}
        %3: float32[1, 4, 4, 4] = max-pool2d %2 {window=[2, 2], padding=[0, 0, 0, 0], strides=[2, 2], dilations=[1, 1]}
        output "y" = %3
    "#]],
    );
    check(
        &["float32[5, 3]", "int64[2]"],
        |g, x| g.gather(x[0], x[1], 0),
        expect![[r#"
        %2: float32[2, 3] = gather %0, %1 {axis=0}
        output "y" = %2
    "#]],
    );
    check(
        &["int64[2]", "float32[2, 3]"],
        |g, x| g.scatter_add(x[0], x[1], 0, 5),
        expect![[r#"
        %2: float32[5, 3] = scatter-add %0, %1 {axis=0, size=5}
        output "y" = %2
    "#]],
    );
}

#[test]
fn sources_check_their_descriptors() {
    check(
        &[],
        |g, _| g.scalar(DType::F32, Scalar::Int(2)),
        expect![[r#"
        %0: float32[] = fill {value=2.0}
        output "y" = %0
    "#]],
    );
    check(&[], |g, _| g.scalar(DType::U8, Scalar::Float(2.5)), expect!["fill: 2.5 is not a value of uint8"]);
    check(&[], |g, _| g.scalar(DType::I64, Scalar::Float(f64::NAN)), expect!["fill: NaN is not a value of int64"]);
    check(&[], |g, _| g.scalar(DType::I64, Scalar::Float(1e300)), expect!["fill: 1e300 is not a value of int64"]);
    check(
        &["uint32[4]"],
        |g, x| g.random(Shape::new([3])?, x[0], 7, RandomDistribution::Uniform),
        expect![[r#"
        %1: float32[3] = random %0 {stream=7, distribution=uniform}
        output "y" = %1
    "#]],
    );
    check(
        &[],
        |g, _| g.constant(descriptor("uint8[3]"), vec![1, 2]),
        expect!["constant: uint8[3] takes 3 bytes, not 2"],
    );
    check(
        &[],
        |g, _| g.add_node(Op::Source(SourceOp::Fill(Scalar::Int(0))), &[]),
        expect!["fill: needs a declared data type and shape"],
    );
    check(
        &[],
        |g, _| g.add_node(Op::Source(SourceOp::Input(3)), &[]),
        expect!["input: there is no input 3, the graph has 0"],
    );
    check(
        &[],
        |g, _| g.add_node(Op::Unary(UnaryOp::Neg), &[NodeId(9)]),
        expect!["neg: operand 0 is node 9, which is not among the 0 nodes before it"],
    );
    check(&[], |g, _| g.add(NodeId(9), NodeId(u32::MAX)), expect!["there is no node 9, the graph has 0"]);
}

#[test]
fn each_variable_is_one_node() {
    let mut g = GraphBuilder::new();
    let w = g.variable("w", descriptor("float32[2]")).unwrap();
    assert_eq!(g.variable("w", descriptor("float32[2]")), Ok(w));
    let refusals = [
        g.variable("w", descriptor("float32[3]")).unwrap_err(),
        g.input("", descriptor("float32[]")).unwrap_err(),
        g.assign("v", w).unwrap_err(),
        g.assign("w", NodeId(5)).unwrap_err(),
    ];
    let x = g.input("x", descriptor("float32[]")).unwrap();
    g.assign("w", w).unwrap();
    g.output("y", x).unwrap();
    let later = [
        g.assign_to(x, w).unwrap_err(),
        g.assign("w", x).unwrap_err(),
        g.assign_to(w, w).unwrap_err(),
        g.input("x", descriptor("float32[]")).unwrap_err(),
        g.output("y", x).unwrap_err(),
        g.output("z", NodeId(2)).unwrap_err(),
        g.label(x, "").unwrap_err(),
    ];
    let all: Vec<String> = refusals.iter().chain(&later).map(|error| format!("{error}\n")).collect();
    expect![[r#"
        variable "w" is float32[2], not float32[3]
        input names have 1 to 256 bytes, not 0
        there is no variable "v"
        there is no node 5, the graph has 1
        node 1 is not a variable
        variable "w" is float32[2] and cannot hold float32[]
        variable "w" is assigned twice
        input "x" exists already
        output "y" exists already
        there is no node 2, the graph has 2
        label names have 1 to 256 bytes, not 0
    "#]]
    .assert_eq(&all.concat());
    assert_eq!(g.graph().nodes.len(), 2);
    verify(g.finish()).unwrap();
}

#[test]
fn the_builder_enforces_graph_limits() {
    let mut g = GraphBuilder::new();
    let x = g.scalar(DType::F32, Scalar::Float(0.0)).unwrap();
    for number in 0..GRAPH_OUTPUTS_MAX {
        g.output(&number.to_string(), x).unwrap();
    }
    assert_eq!(g.output("one more", x), Err(GraphError::TooManyOutputs));
    let half = Descriptor::new(DType::U8, Shape::new([GRAPH_CONSTANT_BYTES_MAX / 2]).unwrap());
    let bytes: std::sync::Arc<[u8]> = vec![0; half.bytes()].into();
    g.constant(half.clone(), bytes.clone()).unwrap();
    g.constant(half.clone(), bytes).unwrap();
    let error = g.constant(descriptor("uint8[1]"), vec![0]).unwrap_err();
    assert_eq!(error, GraphError::TooManyConstantBytes { bytes: GRAPH_CONSTANT_BYTES_MAX + 1 });
    for _ in g.graph().nodes.len()..GRAPH_NODES_MAX {
        g.neg(x).unwrap();
    }
    assert_eq!(g.neg(x), Err(GraphError::TooManyNodes));
    assert_eq!(g.input("late", descriptor("float32[]")), Err(GraphError::TooManyNodes));
    assert!(g.graph().inputs.is_empty());
}
