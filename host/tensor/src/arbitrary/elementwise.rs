//! Cases of element-wise operators: every data type each of them takes.

use super::draft::single;
use super::values::{Random, Values};
use super::{Case, Draft};
use crate::interp::Value;
use crate::op::{Binary, Op, Unary};
use crate::{DType, Shape};

const FLOATS: [DType; 2] = [DType::F32, DType::F16];
const SIGNED: [DType; 5] = [DType::F32, DType::F16, DType::I64, DType::I32, DType::I8];

pub(super) fn cases(random: &mut Random, cases: &mut Vec<Case>) {
    for op in UNARIES {
        unary(random, op, cases);
    }
    for from in DType::ALL {
        for to in DType::ALL {
            cast(random, from, to, cases);
        }
    }
    for op in BINARIES {
        binary(random, op, cases);
    }
    select(random, cases);
}

/// All but `Cast`, which has its own cases.
const UNARIES: [Unary; 16] = [
    Unary::Neg,
    Unary::Abs,
    Unary::Sign,
    Unary::Exp,
    Unary::Log,
    Unary::Sqrt,
    Unary::Reciprocal,
    Unary::Sin,
    Unary::Cos,
    Unary::Tanh,
    Unary::Erf,
    Unary::Floor,
    Unary::Ceil,
    Unary::RoundEven,
    Unary::LogicalNot,
    Unary::StopGradient,
];

fn unary(random: &mut Random, op: Unary, cases: &mut Vec<Case>) {
    let (dtypes, values, smooth): (&[DType], Values, bool) = match op {
        Unary::Neg => (&SIGNED, Values::Any, true),
        Unary::Abs | Unary::Sign => (&SIGNED, Values::NonZero, true),
        Unary::Exp | Unary::Sin | Unary::Cos | Unary::Tanh | Unary::Erf => (&FLOATS, Values::Any, true),
        Unary::Log | Unary::Sqrt => (&FLOATS, Values::Positive, true),
        Unary::Reciprocal => (&FLOATS, Values::NonZero, true),
        Unary::Floor | Unary::Ceil => (&FLOATS, Values::Distinct, true),
        // Halves are where it turns; the spaced values stay clear of them.
        Unary::RoundEven => (&FLOATS, Values::Distinct, true),
        Unary::LogicalNot => (&[DType::U8], Values::Truth, false),
        // The identity as a function, a constant to gradients.
        Unary::StopGradient => (&DType::ALL, Values::Any, false),
        Unary::Cast(_) => (&[], Values::Any, false),
    };
    for &dtype in dtypes {
        let rank = random.below(5);
        let dims = random.dims(rank);
        let name = format!("{} {dtype}", op.name());
        cases.push(single(random, name, Op::Unary(op), &[(dtype, &dims, values)], smooth && dtype.is_float()));
        if !dtype.is_float() {
            let name = format!("{} {dtype} extremes", op.name());
            cases.push(single(random, name, Op::Unary(op), &[(dtype, &[13], Values::Extreme)], false));
        }
    }
    if let Unary::RoundEven | Unary::Floor | Unary::Ceil | Unary::Sign | Unary::Abs = op {
        let name = format!("{} at kinks", op.name());
        cases.push(single(random, name, Op::Unary(op), &[(DType::F32, &[3, 5], Values::Coarse)], false));
    }
}

fn cast(random: &mut Random, from: DType, to: DType, cases: &mut Vec<Case>) {
    let smooth = from.is_float() && to.is_float();
    let op = Op::Unary(Unary::Cast(to));
    // Distinct floats stay clear of integers, so no rounding difference changes the integer they become.
    let values = if from.is_float() && !to.is_float() { Values::Distinct } else { Values::Any };
    cases.push(single(random, format!("cast {from} to {to}"), op.clone(), &[(from, &[3, 7], values)], smooth));
    if !from.is_float() {
        let name = format!("cast {from} extremes to {to}");
        // Half precision ends at 65504: beyond it an integer becomes infinite.
        cases.push(single(random, name, op, &[(from, &[17], Values::Extreme)], false));
    } else if !to.is_float() {
        let mut draft = Draft::default();
        let bounds = [0.0, -0.9, 0.9, 127.5, -128.5, 256.5, 65504.0, -65504.0, f64::INFINITY, f64::NEG_INFINITY];
        let wide = [3e9, -3e9, 1e19, -1e19, 3e38, -3e38, f64::NAN];
        let numbers: Vec<f64> =
            if from == DType::F32 { [&bounds[..], &wide[..]].concat() } else { [&bounds[..], &[f64::NAN]].concat() };
        let shape = Shape::new([numbers.len()]).expect("a short vector");
        let x = draft.given(Value::from_numbers(from, shape, &numbers).expect("one number an element"));
        let y = draft.node(op, &[x]);
        cases.push(draft.done(format!("cast {from} out of range to {to}"), &[y], false));
    }
}

const BINARIES: [Binary; 13] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Pow,
    Binary::Max,
    Binary::Min,
    Binary::Equal,
    Binary::Less,
    Binary::LessOrEqual,
    Binary::LogicalAnd,
    Binary::LogicalOr,
    Binary::LogicalXor,
];

fn binary(random: &mut Random, op: Binary, cases: &mut Vec<Case>) {
    let (dtypes, a, b): (&[DType], Values, Values) = match op {
        Binary::Add | Binary::Sub | Binary::Mul => (&DType::ALL, Values::Any, Values::Any),
        Binary::Div => (&DType::ALL, Values::Any, Values::NonZero),
        Binary::Pow => (&FLOATS, Values::Positive, Values::Any),
        // Two positive ranges that may not meet: `Distinct` lies below 1 for few elements, `Positive` is drawn freely,
        // so equals are left to the cases at kinks.
        Binary::Max | Binary::Min | Binary::Equal | Binary::Less | Binary::LessOrEqual => {
            (&DType::ALL, Values::Coarse, Values::Distinct)
        }
        Binary::LogicalAnd | Binary::LogicalOr | Binary::LogicalXor => (&[DType::U8], Values::Truth, Values::Truth),
    };
    for &dtype in dtypes {
        let rank = random.below(5);
        let dims = random.dims(rank);
        let float = dtype.is_float();
        let a = if float { a } else { integer(a) };
        let name = format!("{} {dtype}", op.name());
        cases.push(single(random, name, Op::Binary(op), &[(dtype, &dims, a), (dtype, &dims, b)], float));
        if !float {
            let operands = [(dtype, &[41][..], Values::Extreme), (dtype, &[41][..], Values::Extreme)];
            cases.push(single(random, format!("{} {dtype} extremes", op.name()), Op::Binary(op), &operands, false));
        }
    }
    if let Binary::Max | Binary::Min | Binary::Equal | Binary::Less | Binary::LessOrEqual = op {
        let operands = [(DType::F32, &[5, 7][..], Values::Coarse), (DType::F32, &[5, 7][..], Values::Coarse)];
        cases.push(single(random, format!("{} of equals", op.name()), Op::Binary(op), &operands, false));
    }
    if let Binary::Mul | Binary::Add = op {
        // One node as both operands.
        let mut draft = Draft::default();
        let x = draft.input(random, DType::F32, &[4, 3], Values::Any);
        let y = draft.node(Op::Binary(op), &[x, x]);
        cases.push(draft.done(format!("{} of a node with itself", op.name()), &[y], true));
    }
}

/// Fractions would all be truncated to zero.
fn integer(values: Values) -> Values {
    match values {
        Values::Coarse => Values::Any,
        other @ (Values::Any
        | Values::Positive
        | Values::NonZero
        | Values::Distinct
        | Values::Extreme
        | Values::Truth
        | Values::Index(_)) => other,
    }
}

fn select(random: &mut Random, cases: &mut Vec<Case>) {
    for dtype in DType::ALL {
        let dims = random.dims(3);
        let operands =
            [(DType::U8, &dims[..], Values::Truth), (dtype, &dims, Values::Any), (dtype, &dims, Values::Any)];
        cases.push(single(random, format!("where {dtype}"), Op::Select, &operands, dtype.is_float()));
    }
}
