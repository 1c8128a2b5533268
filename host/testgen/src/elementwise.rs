//! Cases of element-wise operators: every data type that each of them takes.

use super::case_builder::single_op_case;
use super::values::{CaseRng, ValueDistribution};
use super::{CaseBuilder, GraphCase};
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::op::{BinaryOp, NeutralOperand, Op, OperandTypes, OperatorSmoothness, RealDomain, UnaryOp};
use saggar_tensor::{DType, Shape};

pub(super) fn cases(random: &mut CaseRng, cases: &mut Vec<GraphCase>) {
    for &op in UnaryOp::WITHOUT_ATTRIBUTES {
        unary_cases(random, op, cases);
    }
    for from in DType::ALL {
        for to in DType::ALL {
            cast_case(random, from, to, cases);
        }
    }
    for &op in BinaryOp::ALL {
        binary_cases(random, op, cases);
    }
    select_cases(random, cases);
}

/// Returns values with a finite result.
fn domain_values(domain: RealDomain) -> ValueDistribution {
    match domain {
        RealDomain::All => ValueDistribution::Any,
        RealDomain::NonZero => ValueDistribution::NonZero,
        RealDomain::Positive => ValueDistribution::Positive,
    }
}

fn unary_cases(random: &mut CaseRng, op: UnaryOp, cases: &mut Vec<GraphCase>) {
    let facts = op.facts();
    let values = match (facts.operands, facts.smoothness) {
        (OperandTypes::Boolean, _) => ValueDistribution::Boolean,
        (_, OperatorSmoothness::Smooth) => domain_values(facts.domain),
        (_, OperatorSmoothness::Kinked) => ValueDistribution::NonZero,
        // Steps are at integers and halves.
        (_, OperatorSmoothness::Stepped) => ValueDistribution::Distinct,
    };
    // The identity as a function, but a constant for gradients.
    let is_smooth = op != UnaryOp::StopGradient;
    for dtype in facts.operands.dtypes() {
        let rank = random.below(5);
        let dims = random.random_dims(rank);
        let name = format!("{} {dtype}", op.name());
        let is_smooth = is_smooth && dtype.is_float();
        cases.push(single_op_case(random, name, Op::Unary(op), &[(dtype, &dims, values)], is_smooth));
        if !dtype.is_float() {
            let name = format!("{} {dtype} extremes", op.name());
            cases.push(single_op_case(
                random,
                name,
                Op::Unary(op),
                &[(dtype, &[13], ValueDistribution::Extreme)],
                false,
            ));
        }
    }
    if facts.smoothness != OperatorSmoothness::Smooth && facts.operands.contains(DType::F32) {
        let name = format!("{} at kinks", op.name());
        cases.push(single_op_case(
            random,
            name,
            Op::Unary(op),
            &[(DType::F32, &[3, 5], ValueDistribution::Coarse)],
            false,
        ));
    }
}

fn cast_case(random: &mut CaseRng, from: DType, to: DType, cases: &mut Vec<GraphCase>) {
    let smooth = from.is_float() && to.is_float();
    let op = Op::Unary(UnaryOp::Cast(to));
    // Distinct floats stay away from integers, so no rounding difference changes the converted integer.
    let values = if from.is_float() && !to.is_float() { ValueDistribution::Distinct } else { ValueDistribution::Any };
    cases.push(single_op_case(random, format!("cast {from} to {to}"), op.clone(), &[(from, &[3, 7], values)], smooth));
    if !from.is_float() {
        let name = format!("cast {from} extremes to {to}");
        // Half precision ends at 65504: larger integers become infinite.
        cases.push(single_op_case(random, name, op, &[(from, &[17], ValueDistribution::Extreme)], false));
    } else if !to.is_float() {
        let mut draft = CaseBuilder::default();
        let bounds = [0.0, -0.9, 0.9, 127.5, -128.5, 256.5, 65504.0, -65504.0, f64::INFINITY, f64::NEG_INFINITY];
        let wide = [3e9, -3e9, 1e19, -1e19, 3e38, -3e38, f64::NAN];
        let numbers: Vec<f64> =
            if from == DType::F32 { [&bounds[..], &wide[..]].concat() } else { [&bounds[..], &[f64::NAN]].concat() };
        let shape = Shape::new([numbers.len()]).expect("a short vector");
        let x =
            draft.input_with_value(InterpTensor::from_numbers(from, shape, &numbers).expect("one number an element"));
        let y = draft.node(op, &[x]);
        cases.push(draft.finish(format!("cast {from} out of range to {to}"), &[y], false));
    }
}

fn binary_cases(random: &mut CaseRng, op: BinaryOp, cases: &mut Vec<GraphCase>) {
    let facts = op.facts();
    let [a, b] = match (facts.operands, facts.smoothness) {
        (OperandTypes::Boolean, _) => [ValueDistribution::Boolean; 2],
        (_, OperatorSmoothness::Smooth) => facts.domains.map(domain_values),
        // `Distinct` is below 1 for few elements and `Positive` is drawn freely, so these values need not contain equal
        // pairs. The cases at kinks cover equal operands.
        (_, OperatorSmoothness::Kinked | OperatorSmoothness::Stepped) => {
            [ValueDistribution::Coarse, ValueDistribution::Distinct]
        }
    };
    for dtype in facts.operands.dtypes() {
        let rank = random.below(5);
        let dims = random.random_dims(rank);
        let float = dtype.is_float();
        let a = if float { a } else { integer_values(a) };
        let name = format!("{} {dtype}", op.name());
        cases.push(single_op_case(random, name, Op::Binary(op), &[(dtype, &dims, a), (dtype, &dims, b)], float));
        if !float {
            let operands =
                [(dtype, &[41][..], ValueDistribution::Extreme), (dtype, &[41][..], ValueDistribution::Extreme)];
            cases.push(single_op_case(
                random,
                format!("{} {dtype} extremes", op.name()),
                Op::Binary(op),
                &operands,
                false,
            ));
        }
    }
    if facts.smoothness != OperatorSmoothness::Smooth && facts.operands.contains(DType::F32) {
        let operands = [
            (DType::F32, &[5, 7][..], ValueDistribution::Coarse),
            (DType::F32, &[5, 7][..], ValueDistribution::Coarse),
        ];
        cases.push(single_op_case(random, format!("{} of equals", op.name()), Op::Binary(op), &operands, false));
    }
    if let NeutralOperand::Either { .. } = facts.neutral {
        // One node as both operands.
        let mut draft = CaseBuilder::default();
        let x = draft.input(random, DType::F32, &[4, 3], ValueDistribution::Any);
        let y = draft.node(Op::Binary(op), &[x, x]);
        cases.push(draft.finish(format!("{} of a node with itself", op.name()), &[y], true));
    }
}

/// Returns values that are not all truncated to zero when converted to integers.
fn integer_values(values: ValueDistribution) -> ValueDistribution {
    match values {
        ValueDistribution::Coarse => ValueDistribution::Any,
        other @ (ValueDistribution::Any
        | ValueDistribution::Positive
        | ValueDistribution::NonZero
        | ValueDistribution::Distinct
        | ValueDistribution::Extreme
        | ValueDistribution::Boolean
        | ValueDistribution::Index(_)) => other,
    }
}

fn select_cases(random: &mut CaseRng, cases: &mut Vec<GraphCase>) {
    for dtype in DType::ALL {
        let dims = random.random_dims(3);
        let operands = [
            (DType::U8, &dims[..], ValueDistribution::Boolean),
            (dtype, &dims, ValueDistribution::Any),
            (dtype, &dims, ValueDistribution::Any),
        ];
        cases.push(single_op_case(random, format!("where {dtype}"), Op::Select, &operands, dtype.is_float()));
    }
}
