//! One table per family: operators with operands and attributes, and the result of inference.

use std::fmt::Write;

use expect_test::{Expect, expect};

use super::infer;
use crate::{NodeId, text};

/// Checks cases of the form `operator(operand, ..) {attributes}`. Operands are descriptors; for sources, the operand is
/// the declared descriptor.
fn check(cases: &[&str], expected: Expect) {
    let mut table = String::new();
    for case in cases {
        writeln!(table, "{case} -> {}", infer_text(case)).unwrap();
    }
    expected.assert_eq(&table);
}

fn infer_text(case: &str) -> String {
    let (op, rest) = case.split_once('(').unwrap();
    let (operands, attributes) = rest.split_once(')').unwrap();
    let (operands, declared) = match operands.split_once(" as ") {
        Some((operands, declared)) => (operands, declared),
        None => (operands, "float32[]"),
    };
    let mut source = String::new();
    let mut references = Vec::new();
    for (index, operand) in operands.split_inclusive(']').enumerate() {
        let descriptor = operand.trim_start_matches(", ");
        writeln!(source, "%{index}: {descriptor} = iota {{axis=0}}").unwrap();
        references.push(format!("%{index}"));
    }
    let count = references.len();
    writeln!(source, "%{count}: {declared} = {op} {}{attributes}", references.join(", ")).unwrap();
    let graph = text::parse(&source).unwrap();
    let operands: Vec<_> = (0..count).map(|id| graph.descriptor(NodeId(id as u32))).collect();
    let node = &graph.nodes[count];
    match infer(&node.op, &operands, Some(&node.descriptor)) {
        Ok(descriptor) => descriptor.to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn unary_operators_are_inferred() {
    check(
        &[
            "neg(float16[2, 3])",
            "neg(int8[])",
            "neg(uint8[2])",
            "abs(uint64[2])",
            "exp(float32[0, 3])",
            "erf(int32[2])",
            "logical-not(uint8[2])",
            "logical-not(float32[2])",
            "stop-gradient(uint32[2])",
            "cast(float32[2]) {to=int64}",
            "tanh()",
            "tanh(float32[2], float32[2])",
        ],
        expect![[r#"
            neg(float16[2, 3]) -> float16[2, 3]
            neg(int8[]) -> int8[]
            neg(uint8[2]) -> neg: input must be a float or signed integer type, not uint8
            abs(uint64[2]) -> abs: input must be a float or signed integer type, not uint64
            exp(float32[0, 3]) -> float32[0, 3]
            erf(int32[2]) -> erf: input must be float32 or float16, not int32
            logical-not(uint8[2]) -> uint8[2]
            logical-not(float32[2]) -> logical-not: input must be uint8, not float32
            stop-gradient(uint32[2]) -> uint32[2]
            cast(float32[2]) {to=int64} -> int64[2]
            tanh() -> tanh: takes 1 operand(s), not 0
            tanh(float32[2], float32[2]) -> tanh: takes 1 operand(s), not 2
        "#]],
    );
}

#[test]
fn binary_operators_are_inferred() {
    check(
        &[
            "add(float32[2, 3], float32[2, 3])",
            "add(float32[2, 3], float32[3])",
            "add(float32[2], float16[2])",
            "div(uint8[2], uint8[2])",
            "pow(int32[2], int32[2])",
            "equal(float32[2], float32[2])",
            "lesser(uint64[], uint64[])",
            "logical-and(uint8[2], uint8[2])",
            "logical-or(float32[2], float32[2])",
            "max(float32[2])",
            "where(uint8[2], int32[2], int32[2])",
            "where(int32[2], int32[2], int32[2])",
            "where(uint8[3], int32[2], int32[2])",
            "where(uint8[2], int32[2], int64[2])",
        ],
        expect![[r#"
            add(float32[2, 3], float32[2, 3]) -> float32[2, 3]
            add(float32[2, 3], float32[3]) -> add: operands differ in shape: float32[2, 3] and float32[3]
            add(float32[2], float16[2]) -> add: operands differ in data type: float32[2] and float16[2]
            div(uint8[2], uint8[2]) -> uint8[2]
            pow(int32[2], int32[2]) -> pow: operands must be float32 or float16, not int32
            equal(float32[2], float32[2]) -> uint8[2]
            lesser(uint64[], uint64[]) -> uint8[]
            logical-and(uint8[2], uint8[2]) -> uint8[2]
            logical-or(float32[2], float32[2]) -> logical-or: operands must be uint8, not float32
            max(float32[2]) -> max: takes 2 operand(s), not 1
            where(uint8[2], int32[2], int32[2]) -> int32[2]
            where(int32[2], int32[2], int32[2]) -> where: condition must be uint8, not int32
            where(uint8[3], int32[2], int32[2]) -> where: operands differ in shape: uint8[3] and int32[2]
            where(uint8[2], int32[2], int64[2]) -> where: operands differ in data type: int32[2] and int64[2]
        "#]],
    );
}

#[test]
fn reductions_are_inferred() {
    check(
        &[
            "reduce-sum(float32[2, 3, 4]) {axes=[0, 2]}",
            "reduce-sum(float32[2, 3]) {axes=[]}",
            "reduce-max(float32[0, 3]) {axes=[0]}",
            "reduce-min(uint8[2, 3]) {axes=[1]}",
            "reduce-product(float32[2, 3]) {axes=[2]}",
            "reduce-sum(float32[2, 3]) {axes=[1, 0]}",
            "reduce-sum(float32[2, 3]) {axes=[1, 1]}",
            "reduce-sum(float32[2, 3]) {axes=[18446744073709551615]}",
            "arg-max(float32[2, 3]) {axis=1}",
            "arg-min(float32[2, 0]) {axis=1}",
            "arg-min(float32[2, 0]) {axis=0}",
            "arg-max(float32[]) {axis=0}",
        ],
        expect![[r#"
            reduce-sum(float32[2, 3, 4]) {axes=[0, 2]} -> float32[1, 3, 1]
            reduce-sum(float32[2, 3]) {axes=[]} -> float32[2, 3]
            reduce-max(float32[0, 3]) {axes=[0]} -> float32[1, 3]
            reduce-min(uint8[2, 3]) {axes=[1]} -> uint8[2, 1]
            reduce-product(float32[2, 3]) {axes=[2]} -> reduce-product: axis 2 is out of range for float32[2, 3]
            reduce-sum(float32[2, 3]) {axes=[1, 0]} -> reduce-sum: axes [1, 0] must be sorted and distinct
            reduce-sum(float32[2, 3]) {axes=[1, 1]} -> reduce-sum: axes [1, 1] must be sorted and distinct
            reduce-sum(float32[2, 3]) {axes=[18446744073709551615]} -> reduce-sum: axis 18446744073709551615 is out of range for float32[2, 3]
            arg-max(float32[2, 3]) {axis=1} -> int32[2, 1]
            arg-min(float32[2, 0]) {axis=1} -> arg-min: axis 1 of float32[2, 0] has size 0
            arg-min(float32[2, 0]) {axis=0} -> int32[1, 0]
            arg-max(float32[]) {axis=0} -> arg-max: axis 0 is out of range for float32[]
        "#]],
    );
}

#[test]
fn movements_are_inferred() {
    check(
        &[
            "reshape(float32[2, 3]) {shape=[3, 2]}",
            "reshape(float32[]) {shape=[1, 1]}",
            "reshape(float32[2, 0]) {shape=[0, 7]}",
            "reshape(float32[2, 3]) {shape=[5]}",
            "expand(float32[2, 1]) {shape=[2, 3]}",
            "expand(float32[1]) {shape=[0]}",
            "expand(float32[2, 2]) {shape=[2, 3]}",
            "expand(float32[3]) {shape=[2, 3]}",
            "transpose(float32[2, 3, 4]) {permutation=[2, 0, 1]}",
            "transpose(float32[2, 3]) {permutation=[0, 0]}",
            "transpose(float32[2, 3]) {permutation=[0, 2]}",
            "transpose(float32[2, 3]) {permutation=[0]}",
            "reverse(uint8[2, 3]) {axes=[0, 1]}",
            "reverse(uint8[2, 3]) {axes=[2]}",
            "concat(float32[2, 3], float32[5, 3]) {axis=0}",
            "concat(float32[2, 3]) {axis=1}",
            "concat() {axis=0}",
            "concat(float32[2, 3], float32[2, 4]) {axis=0}",
            "concat(float32[2, 3], float32[2]) {axis=1}",
            "concat(float32[2], int32[2]) {axis=0}",
            "concat(float32[2]) {axis=1}",
            "concat(uint8[2147483647], uint8[1]) {axis=0}",
        ],
        expect![[r#"
            reshape(float32[2, 3]) {shape=[3, 2]} -> float32[3, 2]
            reshape(float32[]) {shape=[1, 1]} -> float32[1, 1]
            reshape(float32[2, 0]) {shape=[0, 7]} -> float32[0, 7]
            reshape(float32[2, 3]) {shape=[5]} -> reshape: float32[2, 3] has 6 elements and cannot become [5], which has 5
            expand(float32[2, 1]) {shape=[2, 3]} -> float32[2, 3]
            expand(float32[1]) {shape=[0]} -> float32[0]
            expand(float32[2, 2]) {shape=[2, 3]} -> expand: cannot broadcast float32[2, 2] to [2, 3]
            expand(float32[3]) {shape=[2, 3]} -> expand: cannot broadcast float32[3] to [2, 3]
            transpose(float32[2, 3, 4]) {permutation=[2, 0, 1]} -> float32[4, 2, 3]
            transpose(float32[2, 3]) {permutation=[0, 0]} -> transpose: [0, 0] is not a permutation of the axes of float32[2, 3]
            transpose(float32[2, 3]) {permutation=[0, 2]} -> transpose: [0, 2] is not a permutation of the axes of float32[2, 3]
            transpose(float32[2, 3]) {permutation=[0]} -> transpose: permutation has 1 entries for 2 axes
            reverse(uint8[2, 3]) {axes=[0, 1]} -> uint8[2, 3]
            reverse(uint8[2, 3]) {axes=[2]} -> reverse: axis 2 is out of range for uint8[2, 3]
            concat(float32[2, 3], float32[5, 3]) {axis=0} -> float32[7, 3]
            concat(float32[2, 3]) {axis=1} -> float32[2, 3]
            concat() {axis=0} -> concat: takes 1 to 256 operand(s), not 0
            concat(float32[2, 3], float32[2, 4]) {axis=0} -> concat: operands differ in shape: float32[2, 3] and float32[2, 4]
            concat(float32[2, 3], float32[2]) {axis=1} -> concat: operands differ in shape: float32[2, 3] and float32[2]
            concat(float32[2], int32[2]) {axis=0} -> concat: operands differ in data type: float32[2] and int32[2]
            concat(float32[2]) {axis=1} -> concat: axis 1 is out of range for float32[2]
            concat(uint8[2147483647], uint8[1]) {axis=0} -> a tensor has at most 2147483647 elements, and [2147483648] has more
        "#]],
    );
}

#[test]
fn slice_and_pad_are_inferred() {
    check(
        &[
            "slice(float32[10, 4]) {starts=[1, 0], sizes=[3, 4], strides=[3, 1]}",
            "slice(float32[10]) {starts=[1], sizes=[4], strides=[3]}",
            "slice(float32[10]) {starts=[10], sizes=[0], strides=[1]}",
            "slice(float32[10]) {starts=[11], sizes=[0], strides=[1]}",
            "slice(float32[10]) {starts=[0], sizes=[1], strides=[0]}",
            "slice(float32[10]) {starts=[0], sizes=[18446744073709551615], strides=[2]}",
            "slice(float32[10]) {starts=[18446744073709551615], sizes=[1], strides=[1]}",
            "slice(float32[10]) {starts=[0], sizes=[1], strides=[18446744073709551615]}",
            "slice(float32[10]) {starts=[0, 0], sizes=[1], strides=[1]}",
            "pad(float32[2, 3]) {low=[1, 0], high=[0, 2], value=-inf}",
            "pad(int8[2]) {low=[1], high=[0], value=-128}",
            "pad(int8[2]) {low=[1], high=[0], value=128}",
            "pad(float32[2]) {low=[1], high=[0], value=1}",
            "pad(int8[2]) {low=[1], high=[0], value=0.5}",
            "pad(uint8[2]) {low=[2147483647], high=[2147483647], value=0}",
            "pad(uint8[2]) {low=[18446744073709551615], high=[1], value=0}",
            "pad(uint8[2]) {low=[], high=[1], value=0}",
        ],
        expect![[r#"
            slice(float32[10, 4]) {starts=[1, 0], sizes=[3, 4], strides=[3, 1]} -> float32[3, 4]
            slice(float32[10]) {starts=[1], sizes=[4], strides=[3]} -> slice: 4 element(s) from 1 by 3 leave axis 0 of float32[10]
            slice(float32[10]) {starts=[10], sizes=[0], strides=[1]} -> float32[0]
            slice(float32[10]) {starts=[11], sizes=[0], strides=[1]} -> slice: 0 element(s) from 11 by 1 leave axis 0 of float32[10]
            slice(float32[10]) {starts=[0], sizes=[1], strides=[0]} -> slice: stride must be from 1 to 2147483647, not 0
            slice(float32[10]) {starts=[0], sizes=[18446744073709551615], strides=[2]} -> slice: 18446744073709551615 element(s) from 0 by 2 leave axis 0 of float32[10]
            slice(float32[10]) {starts=[18446744073709551615], sizes=[1], strides=[1]} -> slice: 1 element(s) from 18446744073709551615 by 1 leave axis 0 of float32[10]
            slice(float32[10]) {starts=[0], sizes=[1], strides=[18446744073709551615]} -> slice: stride must be from 1 to 2147483647, not 18446744073709551615
            slice(float32[10]) {starts=[0, 0], sizes=[1], strides=[1]} -> slice: starts has 2 entries for 1 axes
            pad(float32[2, 3]) {low=[1, 0], high=[0, 2], value=-inf} -> float32[3, 5]
            pad(int8[2]) {low=[1], high=[0], value=-128} -> int8[3]
            pad(int8[2]) {low=[1], high=[0], value=128} -> pad: 128 is not a value of int8
            pad(float32[2]) {low=[1], high=[0], value=1} -> pad: 1 is not a value of float32
            pad(int8[2]) {low=[1], high=[0], value=0.5} -> pad: 0.5 is not a value of int8
            pad(uint8[2]) {low=[2147483647], high=[2147483647], value=0} -> a tensor has at most 2147483647 elements, and [4294967296] has more
            pad(uint8[2]) {low=[18446744073709551615], high=[1], value=0} -> pad: low must be from 0 to 2147483647, not 18446744073709551615
            pad(uint8[2]) {low=[], high=[1], value=0} -> pad: low has 0 entries for 1 axes
        "#]],
    );
}

#[test]
fn contractions_are_inferred() {
    check(
        &[
            "matmul(float32[2, 3], float32[3, 4]) {transpose-a=false, transpose-b=false}",
            "matmul(float16[5, 3, 2], float16[5, 4, 3]) {transpose-a=true, transpose-b=true}",
            "matmul(float32[2, 0], float32[0, 4]) {transpose-a=false, transpose-b=false}",
            "matmul(float32[2, 3], float32[4, 3]) {transpose-a=false, transpose-b=false}",
            "matmul(float32[2, 2, 3], float32[3, 4]) {transpose-a=false, transpose-b=false}",
            "matmul(float32[2, 2, 3], float32[1, 3, 4]) {transpose-a=false, transpose-b=false}",
            "matmul(float32[3], float32[3]) {transpose-a=false, transpose-b=false}",
            "matmul(int32[2, 3], int32[3, 4]) {transpose-a=false, transpose-b=false}",
            "matmul(float32[2, 3], float16[3, 4]) {transpose-a=false, transpose-b=false}",
            "matmul(float32[65536, 1], float32[1, 65536]) {transpose-a=false, transpose-b=false}",
        ],
        expect![[r#"
            matmul(float32[2, 3], float32[3, 4]) {transpose-a=false, transpose-b=false} -> float32[2, 4]
            matmul(float16[5, 3, 2], float16[5, 4, 3]) {transpose-a=true, transpose-b=true} -> float16[5, 2, 4]
            matmul(float32[2, 0], float32[0, 4]) {transpose-a=false, transpose-b=false} -> float32[2, 4]
            matmul(float32[2, 3], float32[4, 3]) {transpose-a=false, transpose-b=false} -> matmul: dimension 0 of b must be 3, not 4 as in float32[4, 3]
            matmul(float32[2, 2, 3], float32[3, 4]) {transpose-a=false, transpose-b=false} -> matmul: b must have 3 dimension(s), not float32[3, 4]
            matmul(float32[2, 2, 3], float32[1, 3, 4]) {transpose-a=false, transpose-b=false} -> matmul: dimension 0 of b must be 2, not 1 as in float32[1, 3, 4]
            matmul(float32[3], float32[3]) {transpose-a=false, transpose-b=false} -> matmul: a must have at least 2 dimension(s), not float32[3]
            matmul(int32[2, 3], int32[3, 4]) {transpose-a=false, transpose-b=false} -> matmul: a must be float32 or float16, not int32
            matmul(float32[2, 3], float16[3, 4]) {transpose-a=false, transpose-b=false} -> matmul: operands differ in data type: float32[2, 3] and float16[3, 4]
            matmul(float32[65536, 1], float32[1, 65536]) {transpose-a=false, transpose-b=false} -> a tensor has at most 2147483647 elements, and [65536, 65536] has more
        "#]],
    );
}

#[test]
fn convolutions_are_inferred() {
    const PLAIN: &str = "padding=[0, 0, 0, 0], strides=[1, 1], dilations=[1, 1], groups=1";
    const SAME: &str = "padding=[1, 1, 1, 1], strides=[2, 2], dilations=[1, 1], groups=2";
    const HUGE: &str = "padding=[18446744073709551615, 1, 0, 0], strides=[1, 1], dilations=[1, 1], groups=1";
    const WIDE: &str = "padding=[0, 0, 0, 0], strides=[1, 1], dilations=[2147483647, 2147483647], groups=1";
    const STUCK: &str = "padding=[0, 0, 0, 0], strides=[0, 1], dilations=[1, 1], groups=1";
    const SPLIT: &str = "padding=[0, 0, 0, 0], strides=[1, 1], dilations=[1, 1], groups=0";
    let cases = [
        format!("conv2d(float32[2, 3, 8, 9], float32[4, 3, 3, 5]) {{{PLAIN}}}"),
        format!("conv2d(float32[2, 4, 8, 9], float32[6, 2, 3, 3]) {{{SAME}}}"),
        format!("conv2d(float32[2, 3, 8, 9], float32[6, 2, 3, 3]) {{{SAME}}}"),
        format!("conv2d(float32[2, 4, 8, 9], float32[5, 2, 3, 3]) {{{SAME}}}"),
        format!("conv2d(float32[2, 4, 8, 9], float32[6, 4, 3, 3]) {{{SAME}}}"),
        format!("conv2d(float32[2, 3, 2, 2], float32[4, 3, 3, 3]) {{{PLAIN}}}"),
        format!("conv2d(float32[2, 3, 2, 2], float32[4, 3, 0, 1]) {{{PLAIN}}}"),
        format!("conv2d(float32[2, 3, 2, 2], float32[4, 3, 1, 1]) {{{HUGE}}}"),
        format!("conv2d(float32[2, 3, 2, 2], float32[4, 3, 2, 2]) {{{WIDE}}}"),
        format!("conv2d(float32[2, 3, 2, 2], float32[4, 3, 1, 1]) {{{STUCK}}}"),
        format!("conv2d(float32[2, 3, 2, 2], float32[4, 3, 1, 1]) {{{SPLIT}}}"),
        format!("conv2d(float32[2, 3, 2], float32[4, 3, 1, 1]) {{{PLAIN}}}"),
        format!("conv2d(int32[2, 3, 2, 2], int32[4, 3, 1, 1]) {{{PLAIN}}}"),
        format!("conv2d-input-grad(float32[2, 6, 4, 5], float32[6, 2, 3, 3]) {{{SAME}, size=[8, 9]}}"),
        format!("conv2d-input-grad(float32[2, 6, 4, 5], float32[6, 2, 3, 3]) {{{SAME}, size=[9, 9]}}"),
        format!("conv2d-input-grad(float32[2, 4, 4, 5], float32[6, 2, 3, 3]) {{{SAME}, size=[8, 9]}}"),
        format!(
            "conv2d-input-grad(float32[0, 2, 1, 1], float32[2, 9, 1, 1]) {{{PLAIN}, size=[18446744073709551615, 1]}}"
        ),
        format!("conv2d-filter-grad(float32[2, 4, 8, 9], float32[2, 6, 4, 5]) {{{SAME}, window=[3, 3]}}"),
        format!("conv2d-filter-grad(float32[2, 4, 8, 9], float32[2, 6, 4, 5]) {{{SAME}, window=[5, 3]}}"),
        format!("conv2d-filter-grad(float32[3, 4, 8, 9], float32[2, 6, 4, 5]) {{{SAME}, window=[3, 3]}}"),
        format!("conv2d-filter-grad(float32[2, 4, 8, 9], float32[2, 6, 4, 5]) {{{SAME}, window=[0, 3]}}"),
    ];
    check(
        &cases.each_ref().map(String::as_str),
        expect![[r#"
        conv2d(float32[2, 3, 8, 9], float32[4, 3, 3, 5]) {padding=[0, 0, 0, 0], strides=[1, 1], dilations=[1, 1], groups=1} -> float32[2, 4, 6, 5]
        conv2d(float32[2, 4, 8, 9], float32[6, 2, 3, 3]) {padding=[1, 1, 1, 1], strides=[2, 2], dilations=[1, 1], groups=2} -> float32[2, 6, 4, 5]
        conv2d(float32[2, 3, 8, 9], float32[6, 2, 3, 3]) {padding=[1, 1, 1, 1], strides=[2, 2], dilations=[1, 1], groups=2} -> conv2d: 2 groups do not divide 3 input channels
        conv2d(float32[2, 4, 8, 9], float32[5, 2, 3, 3]) {padding=[1, 1, 1, 1], strides=[2, 2], dilations=[1, 1], groups=2} -> conv2d: 2 groups do not divide 5 output channels
        conv2d(float32[2, 4, 8, 9], float32[6, 4, 3, 3]) {padding=[1, 1, 1, 1], strides=[2, 2], dilations=[1, 1], groups=2} -> conv2d: dimension 1 of filter must be 2, not 4 as in float32[6, 4, 3, 3]
        conv2d(float32[2, 3, 2, 2], float32[4, 3, 3, 3]) {padding=[0, 0, 0, 0], strides=[1, 1], dilations=[1, 1], groups=1} -> conv2d: a window of 3 with dilation 1 does not fit 2 padded element(s)
        conv2d(float32[2, 3, 2, 2], float32[4, 3, 0, 1]) {padding=[0, 0, 0, 0], strides=[1, 1], dilations=[1, 1], groups=1} -> conv2d: window must be from 1 to 2147483647, not 0
        conv2d(float32[2, 3, 2, 2], float32[4, 3, 1, 1]) {padding=[18446744073709551615, 1, 0, 0], strides=[1, 1], dilations=[1, 1], groups=1} -> conv2d: padding must be from 0 to 2147483647, not 18446744073709551615
        conv2d(float32[2, 3, 2, 2], float32[4, 3, 2, 2]) {padding=[0, 0, 0, 0], strides=[1, 1], dilations=[2147483647, 2147483647], groups=1} -> conv2d: a window of 2 with dilation 2147483647 does not fit 2 padded element(s)
        conv2d(float32[2, 3, 2, 2], float32[4, 3, 1, 1]) {padding=[0, 0, 0, 0], strides=[0, 1], dilations=[1, 1], groups=1} -> conv2d: stride must be from 1 to 2147483647, not 0
        conv2d(float32[2, 3, 2, 2], float32[4, 3, 1, 1]) {padding=[0, 0, 0, 0], strides=[1, 1], dilations=[1, 1], groups=0} -> conv2d: groups must be from 1 to 2147483647, not 0
        conv2d(float32[2, 3, 2], float32[4, 3, 1, 1]) {padding=[0, 0, 0, 0], strides=[1, 1], dilations=[1, 1], groups=1} -> conv2d: input must have 4 dimension(s), not float32[2, 3, 2]
        conv2d(int32[2, 3, 2, 2], int32[4, 3, 1, 1]) {padding=[0, 0, 0, 0], strides=[1, 1], dilations=[1, 1], groups=1} -> conv2d: input must be float32 or float16, not int32
        conv2d-input-grad(float32[2, 6, 4, 5], float32[6, 2, 3, 3]) {padding=[1, 1, 1, 1], strides=[2, 2], dilations=[1, 1], groups=2, size=[8, 9]} -> float32[2, 4, 8, 9]
        conv2d-input-grad(float32[2, 6, 4, 5], float32[6, 2, 3, 3]) {padding=[1, 1, 1, 1], strides=[2, 2], dilations=[1, 1], groups=2, size=[9, 9]} -> conv2d-input-grad: dimension 2 of output gradient must be 5, not 4 as in float32[2, 6, 4, 5]
        conv2d-input-grad(float32[2, 4, 4, 5], float32[6, 2, 3, 3]) {padding=[1, 1, 1, 1], strides=[2, 2], dilations=[1, 1], groups=2, size=[8, 9]} -> conv2d-input-grad: dimension 1 of output gradient must be 6, not 4 as in float32[2, 4, 4, 5]
        conv2d-input-grad(float32[0, 2, 1, 1], float32[2, 9, 1, 1]) {padding=[0, 0, 0, 0], strides=[1, 1], dilations=[1, 1], groups=1, size=[18446744073709551615, 1]} -> conv2d-input-grad: size must be from 0 to 2147483647, not 18446744073709551615
        conv2d-filter-grad(float32[2, 4, 8, 9], float32[2, 6, 4, 5]) {padding=[1, 1, 1, 1], strides=[2, 2], dilations=[1, 1], groups=2, window=[3, 3]} -> float32[6, 2, 3, 3]
        conv2d-filter-grad(float32[2, 4, 8, 9], float32[2, 6, 4, 5]) {padding=[1, 1, 1, 1], strides=[2, 2], dilations=[1, 1], groups=2, window=[5, 3]} -> conv2d-filter-grad: dimension 2 of output gradient must be 3, not 4 as in float32[2, 6, 4, 5]
        conv2d-filter-grad(float32[3, 4, 8, 9], float32[2, 6, 4, 5]) {padding=[1, 1, 1, 1], strides=[2, 2], dilations=[1, 1], groups=2, window=[3, 3]} -> conv2d-filter-grad: dimension 0 of output gradient must be 3, not 2 as in float32[2, 6, 4, 5]
        conv2d-filter-grad(float32[2, 4, 8, 9], float32[2, 6, 4, 5]) {padding=[1, 1, 1, 1], strides=[2, 2], dilations=[1, 1], groups=2, window=[0, 3]} -> conv2d-filter-grad: window must be from 1 to 2147483647, not 0
    "#]],
    );
}

#[test]
fn pooling_is_inferred() {
    const HALF: &str = "window=[2, 2], padding=[0, 0, 0, 0], strides=[2, 2], dilations=[1, 1]";
    const THICK: &str = "window=[2, 2], padding=[2, 0, 0, 0], strides=[2, 2], dilations=[1, 1]";
    const NONE: &str = "window=[0, 2], padding=[0, 0, 0, 0], strides=[2, 2], dilations=[1, 1]";
    let cases = [
        format!("max-pool2d(float32[2, 3, 8, 9]) {{{HALF}}}"),
        format!("sum-pool2d(float16[2, 3, 2, 2]) {{{HALF}}}"),
        format!("max-pool2d(float32[2, 3, 1, 2]) {{{HALF}}}"),
        format!("max-pool2d(float32[2, 3, 8, 8]) {{{THICK}}}"),
        format!("max-pool2d(float32[2, 3, 8, 8]) {{{NONE}}}"),
        format!("max-pool2d(uint8[2, 3, 8, 8]) {{{HALF}}}"),
        format!("max-pool2d-grad(float32[2, 3, 8, 9], float32[2, 3, 4, 4]) {{{HALF}}}"),
        format!("max-pool2d-grad(float32[2, 3, 8, 9], float32[2, 4, 4, 4]) {{{HALF}}}"),
        format!("sum-pool2d-grad(float32[2, 3, 4, 4]) {{{HALF}, size=[8, 9]}}"),
        format!("sum-pool2d-grad(float32[2, 3, 4, 4]) {{{HALF}, size=[8, 10]}}"),
    ];
    check(
        &cases.each_ref().map(String::as_str),
        expect![[r#"
        max-pool2d(float32[2, 3, 8, 9]) {window=[2, 2], padding=[0, 0, 0, 0], strides=[2, 2], dilations=[1, 1]} -> float32[2, 3, 4, 4]
        sum-pool2d(float16[2, 3, 2, 2]) {window=[2, 2], padding=[0, 0, 0, 0], strides=[2, 2], dilations=[1, 1]} -> float16[2, 3, 1, 1]
        max-pool2d(float32[2, 3, 1, 2]) {window=[2, 2], padding=[0, 0, 0, 0], strides=[2, 2], dilations=[1, 1]} -> max-pool2d: a window of 2 with dilation 1 does not fit 1 padded element(s)
        max-pool2d(float32[2, 3, 8, 8]) {window=[2, 2], padding=[2, 0, 0, 0], strides=[2, 2], dilations=[1, 1]} -> max-pool2d: padding must be from 0 to 1, not 2
        max-pool2d(float32[2, 3, 8, 8]) {window=[0, 2], padding=[0, 0, 0, 0], strides=[2, 2], dilations=[1, 1]} -> max-pool2d: window must be from 1 to 2147483647, not 0
        max-pool2d(uint8[2, 3, 8, 8]) {window=[2, 2], padding=[0, 0, 0, 0], strides=[2, 2], dilations=[1, 1]} -> max-pool2d: input must be float32 or float16, not uint8
        max-pool2d-grad(float32[2, 3, 8, 9], float32[2, 3, 4, 4]) {window=[2, 2], padding=[0, 0, 0, 0], strides=[2, 2], dilations=[1, 1]} -> float32[2, 3, 8, 9]
        max-pool2d-grad(float32[2, 3, 8, 9], float32[2, 4, 4, 4]) {window=[2, 2], padding=[0, 0, 0, 0], strides=[2, 2], dilations=[1, 1]} -> max-pool2d-grad: dimension 1 of output gradient must be 3, not 4 as in float32[2, 4, 4, 4]
        sum-pool2d-grad(float32[2, 3, 4, 4]) {window=[2, 2], padding=[0, 0, 0, 0], strides=[2, 2], dilations=[1, 1], size=[8, 9]} -> float32[2, 3, 8, 9]
        sum-pool2d-grad(float32[2, 3, 4, 4]) {window=[2, 2], padding=[0, 0, 0, 0], strides=[2, 2], dilations=[1, 1], size=[8, 10]} -> sum-pool2d-grad: dimension 3 of output gradient must be 5, not 4 as in float32[2, 3, 4, 4]
    "#]],
    );
}

#[test]
fn index_operators_are_inferred() {
    check(
        &[
            "gather(float32[5, 3], int32[2, 7]) {axis=0}",
            "gather(float32[5, 3], uint8[]) {axis=1}",
            "gather(float32[5, 3], float32[2]) {axis=0}",
            "gather(float32[5, 3], int32[2]) {axis=2}",
            "gather(float32[0, 3], int32[2]) {axis=0}",
            "gather(float32[1, 1, 1, 1, 1], int32[1, 1, 1, 1, 1]) {axis=0}",
            "scatter-add(int32[2, 7], float32[2, 7, 3]) {axis=0, size=5}",
            "scatter-add(int64[], float32[5, 3]) {axis=2, size=4}",
            "scatter-add(int64[], float32[5, 3]) {axis=3, size=4}",
            "scatter-add(int32[2], float32[3, 2]) {axis=0, size=4}",
            "scatter-add(int32[2, 3], float32[2]) {axis=0, size=4}",
            "scatter-add(int32[2], float32[2]) {axis=0, size=0}",
            "scatter-add(int8[2], float32[2]) {axis=0, size=4}",
            "scatter-add(int32[2], float32[2]) {axis=0, size=18446744073709551615}",
        ],
        expect![[r#"
            gather(float32[5, 3], int32[2, 7]) {axis=0} -> float32[2, 7, 3]
            gather(float32[5, 3], uint8[]) {axis=1} -> float32[5]
            gather(float32[5, 3], float32[2]) {axis=0} -> gather: indices must be int32, uint32, int64 or uint8, not float32
            gather(float32[5, 3], int32[2]) {axis=2} -> gather: axis 2 is out of range for float32[5, 3]
            gather(float32[0, 3], int32[2]) {axis=0} -> gather: axis 0 of float32[0, 3] has size 0
            gather(float32[1, 1, 1, 1, 1], int32[1, 1, 1, 1, 1]) {axis=0} -> a tensor has at most 8 dimensions, not 9
            scatter-add(int32[2, 7], float32[2, 7, 3]) {axis=0, size=5} -> float32[5, 3]
            scatter-add(int64[], float32[5, 3]) {axis=2, size=4} -> float32[5, 3, 4]
            scatter-add(int64[], float32[5, 3]) {axis=3, size=4} -> scatter-add: axis 3 is out of range for float32[5, 3]
            scatter-add(int32[2], float32[3, 2]) {axis=0, size=4} -> scatter-add: dimension 0 of updates must be 2, not 3 as in float32[3, 2]
            scatter-add(int32[2, 3], float32[2]) {axis=0, size=4} -> scatter-add: updates must have at least 2 dimension(s), not float32[2]
            scatter-add(int32[2], float32[2]) {axis=0, size=0} -> scatter-add: size must be from 1 to 2147483647, not 0
            scatter-add(int8[2], float32[2]) {axis=0, size=4} -> scatter-add: indices must be int32, uint32, int64 or uint8, not int8
            scatter-add(int32[2], float32[2]) {axis=0, size=18446744073709551615} -> scatter-add: size must be from 1 to 2147483647, not 18446744073709551615
        "#]],
    );
}

#[test]
fn sources_are_inferred() {
    check(
        &[
            "fill( as float32[2, 3]) {value=1.5}",
            "fill( as int64[2]) {value=9223372036854775807}",
            "fill( as int64[2]) {value=9223372036854775808}",
            "fill( as uint8[2]) {value=-1}",
            "fill( as uint8[2]) {value=1.0}",
            "fill( as float32[2]) {value=1}",
            "iota( as uint8[256, 2]) {axis=0}",
            "iota( as uint8[257]) {axis=0}",
            "iota( as float32[0]) {axis=0}",
            "iota( as float32[]) {axis=0}",
            "random(uint32[4] as float32[7]) {stream=0, distribution=uniform}",
            "random(uint32[4] as uint32[7]) {stream=4294967295, distribution=bits}",
            "random(uint32[4] as float32[7]) {stream=0, distribution=bits}",
            "random(uint32[2] as float32[7]) {stream=0, distribution=uniform}",
            "random(int32[4] as float32[7]) {stream=0, distribution=uniform}",
        ],
        expect![[r#"
            fill( as float32[2, 3]) {value=1.5} -> float32[2, 3]
            fill( as int64[2]) {value=9223372036854775807} -> int64[2]
            fill( as int64[2]) {value=9223372036854775808} -> fill: 9223372036854775808 is not a value of int64
            fill( as uint8[2]) {value=-1} -> fill: -1 is not a value of uint8
            fill( as uint8[2]) {value=1.0} -> fill: 1.0 is not a value of uint8
            fill( as float32[2]) {value=1} -> fill: 1 is not a value of float32
            iota( as uint8[256, 2]) {axis=0} -> uint8[256, 2]
            iota( as uint8[257]) {axis=0} -> iota: 256 is not a value of uint8
            iota( as float32[0]) {axis=0} -> float32[0]
            iota( as float32[]) {axis=0} -> iota: axis 0 is out of range for float32[]
            random(uint32[4] as float32[7]) {stream=0, distribution=uniform} -> float32[7]
            random(uint32[4] as uint32[7]) {stream=4294967295, distribution=bits} -> uint32[7]
            random(uint32[4] as float32[7]) {stream=0, distribution=bits} -> random: declared as float32[7], but it is uint32[7]
            random(uint32[2] as float32[7]) {stream=0, distribution=uniform} -> random: dimension 0 of key must be 4, not 2 as in uint32[2]
            random(int32[4] as float32[7]) {stream=0, distribution=uniform} -> random: key must be uint32, not int32
        "#]],
    );
}
