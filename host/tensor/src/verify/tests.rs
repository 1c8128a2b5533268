//! Graphs that no builder would create, each refused with a named error.

use std::sync::Arc;

use expect_test::{Expect, expect};

use super::verify;
use crate::limits::{
    GRAPH_CONSTANT_BYTES_MAX, GRAPH_NODES_MAX, GRAPH_OPERANDS_MAX, GRAPH_OUTPUTS_MAX, NAME_BYTES_MAX, OPERANDS_MAX,
};
use crate::op::{Op, Scalar, SourceOp};
use crate::{DType, Descriptor, Graph, GraphError, GraphNode, GraphPort, NodeId, Shape, text};

fn check(graph: &str, expected: Expect) {
    let answer = match verify(text::parse(graph).unwrap()) {
        Ok(verified) => format!("{} nodes", verified.nodes.len()),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&answer);
}

fn float(dims: &[usize]) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new(dims).unwrap())
}

fn fill() -> GraphNode {
    let op = Op::Source(SourceOp::Fill(Scalar::Float(0.0)));
    GraphNode { op, inputs: Vec::new(), descriptor: float(&[]), label: None }
}

#[test]
fn a_valid_graph_passes() {
    check(
        r#"
            input "x": float32[2]
            variable "w": float32[2]
            constant #0: 0000803f0000803f
            %0: float32[2] = input "x"
            %1: float32[2] = variable "w"
            %2: float32[2] = constant #0
            %3: float32[2] = add %0, %1
            %4 "sum": float32[2] = add %3, %2
            output "y" = %4
            output "again" = %4
            assign "w" = %4
        "#,
        expect!["5 nodes"],
    );
    check("", expect!["0 nodes"]);
}

#[test]
fn operands_must_precede_their_node() {
    check(
        "%0: float32[] = neg %0",
        expect!["neg: operand 0 is node 0, which is not among the 0 nodes before it (at node 0)"],
    );
    check(
        "%0: float32[] = fill {value=1.0}\n%1: float32[] = add %0, %2",
        expect!["add: operand 1 is node 2, which is not among the 1 nodes before it (at node 1)"],
    );
    check(
        "%0: float32[] = add %4294967295, %4294967295",
        expect!["add: operand 0 is node 4294967295, which is not among the 0 nodes before it (at node 0)"],
    );
}

#[test]
fn descriptors_are_inferred_again() {
    check(
        "%0: float32[] = fill {value=1.0}\n%1 \"minus\": float32[2] = neg %0",
        expect!["neg: declared as float32[2], but it is float32[] (at node 1, minus)"],
    );
    check(
        "%0: float32[] = fill {value=1.0}\n%1: uint8[] = neg %0",
        expect!["neg: declared as uint8[], but it is float32[] (at node 1)"],
    );
    check(
        "%0: uint8[] = fill {value=1}\n%1: uint8[] = neg %0",
        expect!["neg: input must be a float or signed integer type, not uint8 (at node 1)"],
    );
    check(
        "input \"x\": float32[2]\n%0: float32[3] = input \"x\"",
        expect!["input: declared as float32[3], but it is float32[2] (at node 0)"],
    );
    check(
        "variable \"w\": float32[2]\n%0: int32[2] = variable \"w\"",
        expect!["variable: declared as int32[2], but it is float32[2] (at node 0)"],
    );
    check("%0: uint8[] = fill {value=256}", expect!["fill: 256 is not a value of uint8 (at node 0)"]);
}

#[test]
fn sources_must_name_existing_ports_and_constants() {
    check("%0: float32[3] = input #0", expect!["input: there is no input 0, the graph has 0 (at node 0)"]);
    check(
        "input \"x\": float32[3]\n%0: float32[3] = input #1",
        expect!["input: there is no input 1, the graph has 1 (at node 0)"],
    );
    check("%0: float32[3] = variable #7", expect!["variable: there is no variable 7, the graph has 0 (at node 0)"]);
    check("%0: float32[3] = constant #0", expect!["constant: there is no constant 0, the graph has 0 (at node 0)"]);
    check(
        "constant #0: 00\n%0: float32[] = constant #0",
        expect!["constant: float32[] takes 4 bytes, not 1 (at node 0)"],
    );
    check("constant #0: 00000000\n%0: float32[] = constant #0\n%1: uint8[4] = constant #0", expect!["2 nodes"]);
    check(
        "input \"x\": float32[]\n%0: float32[] = fill {value=0.0}\n%1: float32[] = input \"x\" %0",
        expect!["input: takes 0 operand(s), not 1 (at node 1)"],
    );
}

#[test]
fn port_names_must_be_distinct_and_bounded() {
    check("input \"x\": float32[]\ninput \"x\": float32[2]", expect![[r#"input "x" exists already"#]]);
    check("variable \"w\": float32[]\nvariable \"w\": float32[]", expect![[r#"variable "w" exists already"#]]);
    check("input \"x\": float32[]\nvariable \"x\": float32[]", expect!["0 nodes"]);
    check("input \"\": float32[]", expect!["input names have 1 to 256 bytes, not 0"]);
    check(
        "%0: float32[] = fill {value=0.0}\noutput \"y\" = %0\noutput \"y\" = %0",
        expect![[r#"output "y" exists already"#]],
    );
    check("%0 \"\": float32[] = fill {value=0.0}", expect!["label names have 1 to 256 bytes, not 0 (at node 0, )"]);
    let long = "n".repeat(NAME_BYTES_MAX + 1);
    check(&format!("variable \"{long}\": float32[]"), expect!["variable names have 1 to 256 bytes, not 257"]);
}

#[test]
fn outputs_and_assignments_must_match_their_nodes() {
    check("output \"y\" = %0", expect!["there is no node 0, the graph has 0"]);
    check("assign #0 = %0", expect!["variable: there is no variable 0, the graph has 0"]);
    check("variable \"w\": float32[]\nassign \"w\" = %0", expect!["there is no node 0, the graph has 0"]);
    check(
        "variable \"w\": float32[]\n%0: float32[1] = fill {value=0.0}\nassign \"w\" = %0",
        expect![[r#"variable "w" is float32[] and cannot hold float32[1]"#]],
    );
    check(
        "variable \"w\": float32[]\n%0: float16[] = fill {value=0.0}\nassign \"w\" = %0",
        expect![[r#"variable "w" is float32[] and cannot hold float16[]"#]],
    );
    check(
        "variable \"w\": float32[]\n%0: float32[] = fill {value=0.0}\nassign \"w\" = %0\nassign \"w\" = %0",
        expect![[r#"variable "w" is assigned twice"#]],
    );
}

#[test]
fn verification_enforces_graph_limits() {
    let nodes = vec![fill(); GRAPH_NODES_MAX];
    let mut graph = Graph { nodes, ..Graph::default() };
    verify(graph.clone()).unwrap();
    graph.nodes.push(fill());
    assert_eq!(verify(graph), Err(GraphError::TooManyNodes));

    let port = GraphPort { name: "x".into(), descriptor: float(&[]) };
    let inputs = vec![port; GRAPH_NODES_MAX + 1];
    assert_eq!(verify(Graph { inputs, ..Graph::default() }), Err(GraphError::TooManyPorts));

    let outputs = (0..=GRAPH_OUTPUTS_MAX).map(|number| (number.to_string(), NodeId(0))).collect();
    let graph = Graph { nodes: vec![fill()], outputs, ..Graph::default() };
    assert_eq!(verify(graph), Err(GraphError::TooManyOutputs));

    // All constants share one block of bytes; the limit counts the bytes of each constant.
    let block: Arc<[u8]> = vec![0; 1 << 20].into();
    let constants = vec![block; GRAPH_CONSTANT_BYTES_MAX / (1 << 20) + 1];
    let bytes = constants.len() << 20;
    let answer = verify(Graph { constants, ..Graph::default() });
    assert_eq!(answer, Err(GraphError::TooManyConstantBytes { bytes }));

    let mut wide = fill();
    wide.inputs = vec![NodeId(0); OPERANDS_MAX + 1];
    let error = verify(Graph { nodes: vec![fill(), wide.clone()], ..Graph::default() }).unwrap_err();
    assert!(matches!(error.kind(), GraphError::OperandCount { most: OPERANDS_MAX, .. }));
    let nodes = vec![wide; GRAPH_OPERANDS_MAX / OPERANDS_MAX];
    assert_eq!(verify(Graph { nodes, ..Graph::default() }), Err(GraphError::TooManyOperands));
}
