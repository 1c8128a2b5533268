//! Every operator on every data type.

use expect_test::expect;
use saggar_tensor::DType;
use saggar_tensor::op::{Binary, Distribution, ReduceKind, Scalar, Unary};

use super::{TUNINGS, check, identity, load, plain, program, tensors, valid};
use crate::expr::{Bound, Expr, Instruction, Register, View};
use crate::program::{Body, Kernel, Place, Store, ValueId};
use crate::wgsl::{Binding, ShaderError, Tuning, passes};

const FLOAT: [Unary; 11] = [
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
];
const ARITHMETIC: [Binary; 6] = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min];
const COMPARISONS: [Binary; 3] = [Binary::Equal, Binary::Less, Binary::LessOrEqual];

#[test]
fn every_fold_is_valid() {
    let kinds = [ReduceKind::Sum, ReduceKind::Product, ReduceKind::Max, ReduceKind::Min];
    for (dtype, kind) in DType::ALL.into_iter().flat_map(|dtype| kinds.map(|kind| (dtype, kind))) {
        for (outer, inner) in [(70usize, 5usize), (3, 4000), (3, 0), (1, 1), (200, 300), (0, 3)] {
            for tuning in TUNINGS {
                for transposed in [false, true] {
                    let program = tensors(dtype, &[&[outer, inner], &[outer]]);
                    let mut view = identity(&[outer, inner]);
                    if transposed {
                        view.strides = vec![1, outer as i64];
                    }
                    let element = Instruction::Load { value: ValueId(0), view, fill: None };
                    let body = Body::Fold {
                        kind,
                        outer: vec![outer],
                        inner: vec![inner],
                        prologue: Expr { instructions: vec![(element, dtype)] },
                        epilogue: plain(dtype, 1),
                    };
                    let shader = valid(&program, body, tuning);
                    assert_eq!(shader.workgroups[0] == 0, outer == 0);
                }
            }
        }
    }
}

#[test]
fn every_search_is_valid() {
    for dtype in DType::ALL {
        for (largest, dims) in [(true, [2usize, 5, 4]), (false, [3, 7, 1])] {
            let outputs = [dims[0], dims[2]];
            let program = program(&[(dtype, &dims, Place::Input(0)), (DType::I32, &outputs, Place::Output(0))]);
            for tuning in TUNINGS {
                valid(&program, Body::ArgFold { largest, dims, input: ValueId(0), output: ValueId(1) }, tuning);
            }
        }
    }
}

#[test]
fn every_scalar_operation_is_valid() {
    let narrow = DType::ALL.into_iter().filter(|dtype| dtype.bytes() < 8).collect::<Vec<_>>();
    for dtypes in [&narrow[..], &DType::ALL] {
        for tuning in TUNINGS {
            scalar_operations_are_valid(dtypes, tuning);
        }
    }
}

/// Every scalar operation on these types, `uint8` the last, in one shader.
fn scalar_operations_are_valid(dtypes: &[DType], tuning: Tuning) {
    let mut instructions = vec![load(0, identity(&[8])), load(1, identity(&[8]))];
    let (a, b) = (Register(0), Register(1));
    instructions.push((Instruction::Binary(Binary::Pow, a, b), DType::F32));
    for &dtype in dtypes {
        let x = Register(instructions.len() as u32);
        instructions.push((Instruction::Unary(Unary::Cast(dtype), a), dtype));
        instructions.extend(ARITHMETIC.map(|op| (Instruction::Binary(op, x, x), dtype)));
        instructions.extend(COMPARISONS.map(|op| (Instruction::Binary(op, x, x), DType::U8)));
        if dtype.is_signed_integer() || dtype.is_float() {
            instructions.extend([Unary::Neg, Unary::Abs, Unary::Sign].map(|op| (Instruction::Unary(op, x), dtype)));
        }
        if dtype.is_float() {
            instructions.extend(FLOAT.map(|op| (Instruction::Unary(op, x), dtype)));
            instructions.push((Instruction::Binary(Binary::Pow, x, x), dtype));
        }
        instructions.push((Instruction::Unary(Unary::StopGradient, x), dtype));
        for &to in dtypes {
            instructions.push((Instruction::Unary(Unary::Cast(to), x), to));
        }
        instructions.push((Instruction::Index(identity(&[8])), dtype));
        for value in [Scalar::Int(0), Scalar::Int(100)] {
            instructions.push((Instruction::Immediate(value), dtype));
        }
    }
    let truth = Register(instructions.len() as u32 - 1);
    for op in [Binary::LogicalAnd, Binary::LogicalOr, Binary::LogicalXor] {
        instructions.push((Instruction::Binary(op, truth, truth), DType::U8));
    }
    instructions.push((Instruction::Unary(Unary::LogicalNot, truth), DType::U8));
    let ends: [(DType, i128); 6] = [
        (DType::I32, i32::MIN.into()),
        (DType::I64, i64::MIN.into()),
        (DType::I64, i64::MAX.into()),
        (DType::I64, -5),
        (DType::U64, u64::MAX.into()),
        (DType::U32, u32::MAX.into()),
    ];
    let ends = ends.into_iter().filter(|(dtype, _)| dtypes.contains(dtype));
    instructions.extend(ends.map(|(dtype, end)| (Instruction::Immediate(Scalar::Int(end)), dtype)));
    for value in [f64::NAN, f64::INFINITY, -0.0, 1e-40, f64::from(f32::MAX), 1e300, -1.5] {
        instructions.push((Instruction::Immediate(Scalar::Float(value)), DType::F32));
        instructions.push((Instruction::Immediate(Scalar::Float(value)), DType::F16));
    }
    for (distribution, dtype) in [(Distribution::Bits, DType::U32), (Distribution::Uniform, DType::F32)] {
        let random = Instruction::Random { key: ValueId(2), stream: 7, distribution, view: identity(&[8]) };
        instructions.push((random, dtype));
    }
    let last = Register(instructions.len() as u32 - 1);
    instructions.push((Instruction::Select(truth, a, last), DType::F32));
    let program = program(&[
        (DType::F32, &[8], Place::Input(0)),
        (DType::F32, &[8], Place::Variable(0)),
        (DType::U32, &[4], Place::Constant(0)),
        (DType::F32, &[8], Place::Output(0)),
    ]);
    let stores = vec![Store { value: ValueId(3), register: Register(instructions.len() as u32 - 1) }];
    let shader = valid(&program, Body::Map { dims: vec![8], expr: Expr { instructions }, stores }, tuning);
    let bindings = [Binding::Input(0), Binding::Variable(0), Binding::Constant(0), Binding::Output(0)];
    let shown: Vec<Binding> = shader.bindings.iter().map(|window| window.binding).collect();
    assert_eq!(shown, bindings);
}

/// Sums of half-precision numbers are rounded once, and every operation after them.
#[test]
fn half_precision_is_rounded_after_every_operation() {
    let body = Body::Fold {
        kind: ReduceKind::Sum,
        outer: vec![4],
        inner: vec![6],
        prologue: Expr {
            instructions: vec![
                (Instruction::Load { value: ValueId(0), view: identity(&[4, 6]), fill: None }, DType::F16),
                (Instruction::Binary(Binary::Mul, Register(0), Register(0)), DType::F16),
            ],
        },
        epilogue: plain(DType::F16, 1),
    };
    let program = tensors(DType::F16, &[&[4, 6], &[4]]);
    let source = valid(&program, body, TUNINGS[0]).source;
    let main = &source[source.find("@compute").unwrap()..];
    expect![[r#"
        @compute @workgroup_size(64)
        fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
            let tile = group.x;
            let id = tile * 64u + lane;
            if (id >= 4u) { return; }
            let c0 = id;
            var total0: f32 = 0.0f;
            for (var i0 = 0u; i0 < 6u; i0 += 1u) {
                let p0: f32 = b0[c0 * 6u + i0];
                let p1: f32 = to_half(p0 * p0);
                total0 = total0 + p1;
            }
            let e0: f32 = to_half(total0);
            b1[id] = e0;
        }
    "#]]
    .assert_eq(main);
}

#[test]
fn wide_integers_read_a_padded_slab() {
    let slab = Place::Slab { slab: 2, offset_bytes: 256 };
    let program = program(&[(DType::I64, &[3], slab), (DType::U8, &[5], Place::Output(0))]);
    let view = View { offset: -1, strides: vec![1], bounds: vec![Bound { dim: 0, low: 1, high: 4 }] };
    let fill = Some(Scalar::Int(i64::MIN.into()));
    let instructions = vec![
        (Instruction::Load { value: ValueId(0), view, fill }, DType::I64),
        (Instruction::Unary(Unary::Cast(DType::U8), Register(0)), DType::U8),
    ];
    let stores = vec![Store { value: ValueId(1), register: Register(1) }];
    let body = Body::Map { dims: vec![5], expr: Expr { instructions }, stores };
    check(
        &program,
        body,
        &expect![[r#"
        @group(0) @binding(0) var<storage, read_write> b0: array<i64>;
        @group(0) @binding(1) var<storage, read_write> b1: array<u32>;

        @compute @workgroup_size(64)
        fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
            let tile = group.x;
            let id = tile * 64u + lane;
            if (id >= 5u) { return; }
            let c0 = id;
            var r0 = i64(i64(9223372036854775808lu));
            if (c0 >= 1u && c0 < 4u) { r0 = b0[32u + 4294967295u + c0]; }
            let r1: u32 = (bitcast<u32>(i32(r0))) & 0xffu;
            b1[id] = r1;
        }
    "#]],
    );
}

#[test]
fn wide_integers_are_two_words_where_shaders_have_none() {
    let program = tensors(DType::I64, &[&[5, 3], &[5]]);
    let halved = (Instruction::Binary(Binary::Div, Register(0), Register(1)), DType::I64);
    let body = Body::Fold {
        kind: ReduceKind::Max,
        outer: vec![5],
        inner: vec![3],
        prologue: Expr {
            instructions: vec![
                (Instruction::Load { value: ValueId(0), view: identity(&[5, 3]), fill: None }, DType::I64),
                (Instruction::Immediate(Scalar::Int(-2)), DType::I64),
                halved,
            ],
        },
        epilogue: plain(DType::I64, 1),
    };
    let source = valid(&program, body, TUNINGS[2]).source;
    assert!(source.starts_with("@group(0) @binding(0) var<storage, read_write> b0: array<vec2<u32>>;"));
    expect![[r#"
        @compute @workgroup_size(64)
        fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
            let tile = group.x;
            let id = tile * 64u + lane;
            if (id >= 5u) { return; }
            let c0 = id;
            var total0: vec2<u32> = vec2<u32>(0x0u, 0x80000000u);
            for (var i0 = 0u; i0 < 3u; i0 += 1u) {
                let p0: vec2<u32> = b0[c0 * 3u + i0];
                let p1: vec2<u32> = vec2<u32>(0xfffffffeu, 0xffffffffu);
                let p2: vec2<u32> = wide_divide_signed(p0, p1);
                total0 = select(total0, p2, wide_less_signed(total0, p2));
            }
            let e0: vec2<u32> = total0;
            b1[id] = e0;
        }
    "#]]
    .assert_eq(&source[source.find("@compute").unwrap()..]);
}

/// A 64-bit division calls a function that contains a loop.
#[test]
fn divisions_of_two_words_count_among_the_loops() {
    let program = tensors(DType::U64, &[&[4, 100], &[4]]);
    let load = Instruction::Load { value: ValueId(0), view: identity(&[4, 100]), fill: None };
    let divided = Instruction::Binary(Binary::Div, Register(0), Register(0));
    let body = Body::Fold {
        kind: ReduceKind::Sum,
        outer: vec![4],
        inner: vec![100],
        prologue: Expr { instructions: vec![(load, DType::U64), (divided, DType::U64)] },
        epilogue: plain(DType::U64, 1),
    };
    let kernel = Kernel { label: "fold".to_owned(), body };
    let least = 100 + 100 * 32;
    let with = |iterations_max| passes(&program, &kernel, Tuning { iterations_max, ..TUNINGS[2] }).map(drop);
    let refused = ShaderError::Iterations { kernel: "fold".to_owned(), iterations: least, limit: least - 1 };
    assert_eq!(with(least - 1), Err(refused));
    assert_eq!(with(least), Ok(()));
}
