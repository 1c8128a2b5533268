//! Cases of element-wise operators: every data type that each of them takes.

use super::case_builder::single_op_case;
use super::values::{CaseRng, ValueDistribution};
use super::{CaseBuilder, GraphCase};
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::op::{BinaryOp, Op, UnaryOp};
use saggar_tensor::{DType, Shape};

const FLOATS: [DType; 2] = [DType::F32, DType::F16];
const SIGNED: [DType; 5] = [DType::F32, DType::F16, DType::I64, DType::I32, DType::I8];

pub(super) fn cases(random: &mut CaseRng, cases: &mut Vec<GraphCase>) {
    for op in UNARIES {
        unary_cases(random, op, cases);
    }
    for from in DType::ALL {
        for to in DType::ALL {
            cast_case(random, from, to, cases);
        }
    }
    for op in BINARIES {
        binary_cases(random, op, cases);
    }
    select_cases(random, cases);
}

/// All operators except `Cast`, which has separate cases.
const UNARIES: [UnaryOp; 16] = [
    UnaryOp::Neg,
    UnaryOp::Abs,
    UnaryOp::Sign,
    UnaryOp::Exp,
    UnaryOp::Log,
    UnaryOp::Sqrt,
    UnaryOp::Reciprocal,
    UnaryOp::Sin,
    UnaryOp::Cos,
    UnaryOp::Tanh,
    UnaryOp::Erf,
    UnaryOp::Floor,
    UnaryOp::Ceil,
    UnaryOp::RoundEven,
    UnaryOp::LogicalNot,
    UnaryOp::StopGradient,
];

fn unary_cases(random: &mut CaseRng, op: UnaryOp, cases: &mut Vec<GraphCase>) {
    let (dtypes, values, smooth): (&[DType], ValueDistribution, bool) = match op {
        UnaryOp::Neg => (&SIGNED, ValueDistribution::Any, true),
        UnaryOp::Abs | UnaryOp::Sign => (&SIGNED, ValueDistribution::NonZero, true),
        UnaryOp::Exp | UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tanh | UnaryOp::Erf => {
            (&FLOATS, ValueDistribution::Any, true)
        }
        UnaryOp::Log | UnaryOp::Sqrt => (&FLOATS, ValueDistribution::Positive, true),
        UnaryOp::Reciprocal => (&FLOATS, ValueDistribution::NonZero, true),
        UnaryOp::Floor | UnaryOp::Ceil => (&FLOATS, ValueDistribution::Distinct, true),
        // Rounding changes at halves; distinct values stay away from them.
        UnaryOp::RoundEven => (&FLOATS, ValueDistribution::Distinct, true),
        UnaryOp::LogicalNot => (&[DType::U8], ValueDistribution::Boolean, false),
        // The identity as a function, but a constant for gradients.
        UnaryOp::StopGradient => (&DType::ALL, ValueDistribution::Any, false),
        UnaryOp::Cast(_) => (&[], ValueDistribution::Any, false),
    };
    for &dtype in dtypes {
        let rank = random.below(5);
        let dims = random.random_dims(rank);
        let name = format!("{} {dtype}", op.name());
        cases.push(single_op_case(random, name, Op::Unary(op), &[(dtype, &dims, values)], smooth && dtype.is_float()));
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
    if let UnaryOp::RoundEven | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Sign | UnaryOp::Abs = op {
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

const BINARIES: [BinaryOp; 13] = [
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Pow,
    BinaryOp::Max,
    BinaryOp::Min,
    BinaryOp::Equal,
    BinaryOp::Less,
    BinaryOp::LessOrEqual,
    BinaryOp::LogicalAnd,
    BinaryOp::LogicalOr,
    BinaryOp::LogicalXor,
];

fn binary_cases(random: &mut CaseRng, op: BinaryOp, cases: &mut Vec<GraphCase>) {
    let (dtypes, a, b): (&[DType], ValueDistribution, ValueDistribution) = match op {
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul => (&DType::ALL, ValueDistribution::Any, ValueDistribution::Any),
        BinaryOp::Div => (&DType::ALL, ValueDistribution::Any, ValueDistribution::NonZero),
        BinaryOp::Pow => (&FLOATS, ValueDistribution::Positive, ValueDistribution::Any),
        // `Distinct` is below 1 for few elements and `Positive` is drawn freely, so these values need not contain equal
        // pairs. The cases at kinks cover equal operands.
        BinaryOp::Max | BinaryOp::Min | BinaryOp::Equal | BinaryOp::Less | BinaryOp::LessOrEqual => {
            (&DType::ALL, ValueDistribution::Coarse, ValueDistribution::Distinct)
        }
        BinaryOp::LogicalAnd | BinaryOp::LogicalOr | BinaryOp::LogicalXor => {
            (&[DType::U8], ValueDistribution::Boolean, ValueDistribution::Boolean)
        }
    };
    for &dtype in dtypes {
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
    if let BinaryOp::Max | BinaryOp::Min | BinaryOp::Equal | BinaryOp::Less | BinaryOp::LessOrEqual = op {
        let operands = [
            (DType::F32, &[5, 7][..], ValueDistribution::Coarse),
            (DType::F32, &[5, 7][..], ValueDistribution::Coarse),
        ];
        cases.push(single_op_case(random, format!("{} of equals", op.name()), Op::Binary(op), &operands, false));
    }
    if let BinaryOp::Mul | BinaryOp::Add = op {
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
