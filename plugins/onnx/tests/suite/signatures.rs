//! Nodes that do not match the operator's signature are refused with the name of the mismatch.

use crate::operator_rules::{TestAttribute, TestOperand, run_operator};
use TestAttribute::{Float, Int, Ints, Text};
use TestOperand::X;

/// Returns the error message for a node of one operator over an image.
fn refusal(op: &str, attributes: &[(&str, TestAttribute<'_>)], opset: i64) -> String {
    let image = || X(&[1, 1, 4, 4], &[0.5; 16]);
    let operands = if op == "Conv" { vec![image(), X(&[1, 1, 1, 1], &[2.0])] } else { vec![image()] };
    run_operator(op, attributes, &operands, 1, opset)
}

#[test]
fn unknown_attributes_are_refused() {
    for (op, attribute, has) in [
        ("Softmax", ("temperature", Float(2.0)), "`axis`"),
        (
            "Conv",
            ("dilation_rate", Ints(&[2, 2])),
            "`auto_pad`, `dilations`, `group`, `kernel_shape`, `pads`, `strides`",
        ),
        ("Relu", ("made_up", Int(3)), "none"),
    ] {
        let name = attribute.0;
        let expected = format!(
            "node `y0` ({op}): the model is not valid: attribute `{name}` is not one of {op} in version 20, which has {has}"
        );
        assert_eq!(refusal(op, &[attribute], 20), expected);
    }
}

#[test]
fn every_operator_refuses_an_unknown_attribute() {
    for op in onnx::ops::operator_names() {
        let message = run_operator(op, &[("made_up", Int(1))], &[X(&[2, 2], &[1.0; 4])], 1, 28);
        assert!(
            message.contains("attribute `made_up` is not one of") || message.contains("operands, not 1"),
            "{op}: {message}"
        );
        assert!(message.starts_with(&format!("node `y0` ({op})")), "{op}: {message}");
    }
}

#[test]
fn attributes_of_later_opsets_or_wrong_kinds_are_refused() {
    let window = [("left_window_size", Int(1))];
    let tokens = || X(&[1, 1, 2, 4], &[0.5; 8]);
    let message = run_operator("Attention", &window, &[tokens(), tokens(), tokens()], 1, 24);
    assert!(message.contains("attribute `left_window_size` is not one of Attention in version 24"), "{message}");
    let message = refusal("Softmax", &[("axis", Text("1"))], 20);
    assert!(message.ends_with("attribute `axis` of Softmax must be an integer, not a text"), "{message}");
    let message = refusal("Cast", &[], 20);
    assert!(message.ends_with("attribute `to` of Cast is missing"), "{message}");
    let message = refusal("Gelu", &[("approximate", Text("fast"))], 20);
    assert!(message.ends_with("attribute `approximate` of Gelu must be none or tanh, not `fast`"), "{message}");
}

#[test]
fn operators_outside_their_opset_range_are_refused_by_name() {
    let message = refusal("Softmax", &[], 29);
    assert!(message.starts_with("node `y0` (Softmax): not supported: operator Softmax of version 29"), "{message}");
    assert!(message.contains("opset_version=28"), "{message}");
    let message = refusal("Gelu", &[], 19);
    assert!(message.ends_with("Gelu exists from version 20 of ai.onnx on, and the model names 19"), "{message}");
}

#[test]
fn extra_operands_and_results_are_refused() {
    let x = || X(&[2], &[1.0, 2.0]);
    let message = run_operator("Relu", &[], &[x(), x()], 1, 20);
    assert!(message.ends_with("Relu of version 20 has at most 1 operands, not 2"), "{message}");
    let message = run_operator("Relu", &[], &[x()], 2, 20);
    assert!(message.ends_with("Relu of version 20 has at most 1 results, not 2"), "{message}");
}
