use std::sync::Arc;

use expect_test::{Expect, expect};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use saggar_tensor::op::{Binary, Combine, Conv2d, Distribution, Pool, Pool2d, ReduceKind, Scalar, Unary};
use saggar_tensor::{DType, Descriptor, Shape};

use super::{Binding, Shader, Tuning, WORKGROUPS_MAX, shader};
use crate::expr::{Bound, Expr, Instruction, Register, View};
use crate::program::{Body, Epilogue, Kernel, Place, Program, Store, Value, ValueId};

const TUNINGS: [Tuning; 2] = [Tuning { workgroup_memory: false }, Tuning { workgroup_memory: true }];

fn program(values: &[(DType, &[usize], Place)]) -> Program {
    let value = |(dtype, dims, place): &(DType, &[usize], Place)| Value {
        descriptor: Descriptor::new(*dtype, Shape::new(*dims).unwrap()),
        place: *place,
    };
    Program {
        values: values.iter().map(value).collect(),
        slabs: Vec::new(),
        kernels: Vec::new(),
        inputs: Vec::new(),
        variables: Vec::new(),
        written_variables: Vec::new(),
        constants: Vec::<(Descriptor, Arc<[u8]>)>::new(),
        outputs: Vec::new(),
    }
}

/// Floats in inputs 0, 1, ... and, last, output 0.
fn floats(shapes: &[&[usize]]) -> Program {
    let last = shapes.len() - 1;
    let place = |i: usize| if i == last { Place::Output(0) } else { Place::Input(i as u32) };
    let values: Vec<_> = shapes.iter().enumerate().map(|(i, dims)| (DType::F32, *dims, place(i))).collect();
    program(&values)
}

/// The kernel's shader after naga has parsed and validated it.
fn valid(program: &Program, body: Body, tuning: Tuning) -> Shader {
    let kernel = Kernel { label: "test".to_owned(), body };
    let shader = shader(program, &kernel, tuning).unwrap();
    let module = naga::front::wgsl::parse_str(&shader.source)
        .unwrap_or_else(|error| panic!("{}\n{}", error.emit_to_string(&shader.source), shader.source));
    Validator::new(ValidationFlags::all(), Capabilities::empty())
        .validate(&module)
        .unwrap_or_else(|error| panic!("{}\n{}", error.emit_to_string(&shader.source), shader.source));
    assert!(shader.workgroups.iter().all(|&groups| groups <= WORKGROUPS_MAX));
    shader
}

fn check(program: &Program, body: Body, expected: &Expect) {
    expected.assert_eq(&valid(program, body, TUNINGS[0]).source);
}

fn identity(dims: &[usize]) -> View {
    let strides = Shape::new(dims).unwrap().strides().iter().map(|&stride| stride as i64).collect();
    View { offset: 0, strides, bounds: Vec::new() }
}

fn load(value: u32, view: View) -> (Instruction, DType) {
    (Instruction::Load { value: ValueId(value), view, fill: None }, DType::F32)
}

fn plain(value: u32) -> Epilogue {
    Epilogue {
        expr: Expr { instructions: vec![(Instruction::Accumulated, DType::F32)] },
        stores: vec![Store { value: ValueId(value), register: Register(0) }],
    }
}

#[test]
fn map_reads_a_padded_slab() {
    let slab = Place::Slab { slab: 2, offset_bytes: 256 };
    let program = program(&[(DType::F32, &[2, 3], slab), (DType::F32, &[2, 5], Place::Output(0))]);
    let view = View { offset: -1, strides: vec![3, 1], bounds: vec![Bound { dim: 1, low: 1, high: 4 }] };
    let padded = Instruction::Load { value: ValueId(0), view, fill: Some(Scalar::Float(f64::NEG_INFINITY)) };
    let instructions = vec![
        (padded, DType::F32),
        (Instruction::Immediate(Scalar::Float(0.5)), DType::F32),
        (Instruction::Binary(Binary::Mul, Register(0), Register(1)), DType::F32),
    ];
    let stores = vec![Store { value: ValueId(1), register: Register(2) }];
    let body = Body::Map { dims: vec![2, 5], expr: Expr { instructions }, stores };
    check(
        &program,
        body,
        &expect![[r#"
        @group(0) @binding(0) var<storage, read_write> b0: array<f32>;
        @group(0) @binding(1) var<storage, read_write> b1: array<f32>;

        fn float_bits(bits: u32) -> f32 {
            return bitcast<f32>(bits);
        }

        @compute @workgroup_size(64)
        fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
            let tile = group.x;
            let id = tile * 64u + lane;
            if (id >= 10u) { return; }
            let c1 = id % 5u;
            let c0 = id / 5u;
            var r0 = f32(float_bits(0xff800000u));
            if (c1 >= 1u && c1 < 4u) { r0 = b0[64u + 4294967295u + c0 * 3u + c1]; }
            let r1: f32 = 0.5f;
            let r2: f32 = r0 * r1;
            b1[id] = r2;
        }
    "#]],
    );
}

#[test]
fn fold_of_a_row() {
    let program = floats(&[&[4, 6], &[4]]);
    let body = Body::Fold {
        kind: ReduceKind::Max,
        outer: vec![4],
        inner: vec![6],
        prologue: Expr { instructions: vec![load(0, identity(&[4, 6]))] },
        epilogue: plain(1),
    };
    check(
        &program,
        body,
        &expect![[r#"
        @group(0) @binding(0) var<storage, read_write> b0: array<f32>;
        @group(0) @binding(1) var<storage, read_write> b1: array<f32>;

        fn float_bits(bits: u32) -> f32 {
            return bitcast<f32>(bits);
        }

        fn is_nan(x: f32) -> bool {
            return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
        }

        fn max_nan(a: f32, b: f32) -> f32 {
            return select(select(max(a, b), b, is_nan(b)), a, is_nan(a));
        }

        @compute @workgroup_size(64)
        fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
            let tile = group.x;
            let id = tile * 64u + lane;
            if (id >= 4u) { return; }
            let c0 = id;
            var total0: f32 = float_bits(0xff800000u);
            for (var i0 = 0u; i0 < 6u; i0 += 1u) {
                let p0: f32 = b0[c0 * 6u + i0];
                total0 = max_nan(total0, p0);
            }
            let e0: f32 = total0;
            b1[id] = e0;
        }
    "#]],
    );
}

#[test]
fn every_fold_is_valid() {
    for kind in [ReduceKind::Sum, ReduceKind::Product, ReduceKind::Max, ReduceKind::Min] {
        for (outer, inner) in [(70usize, 5usize), (3, 4000), (3, 0), (1, 1), (200, 300), (0, 3)] {
            for tuning in TUNINGS {
                for transposed in [false, true] {
                    let program = floats(&[&[outer, inner], &[outer]]);
                    let mut view = identity(&[outer, inner]);
                    if transposed {
                        view.strides = vec![1, outer as i64];
                    }
                    let body = Body::Fold {
                        kind,
                        outer: vec![outer],
                        inner: vec![inner],
                        prologue: Expr { instructions: vec![load(0, view)] },
                        epilogue: plain(1),
                    };
                    let shader = valid(&program, body, tuning);
                    assert_eq!(shader.workgroups[0] == 0, outer == 0);
                }
            }
        }
    }
}

#[test]
fn every_scalar_operation_is_valid() {
    let mut instructions = vec![load(0, identity(&[8])), load(1, identity(&[8]))];
    let (a, b) = (Register(0), Register(1));
    for op in [
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
        Unary::StopGradient,
    ] {
        instructions.push((Instruction::Unary(op, a), DType::F32));
    }
    let arithmetic = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min];
    let comparisons = [Binary::Equal, Binary::Less, Binary::LessOrEqual];
    instructions.push((Instruction::Binary(Binary::Pow, a, b), DType::F32));
    for dtype in [DType::F32, DType::I32, DType::U32, DType::I8, DType::U8] {
        let x = Register(instructions.len() as u32);
        instructions.push((Instruction::Unary(Unary::Cast(dtype), a), dtype));
        instructions.extend(arithmetic.map(|op| (Instruction::Binary(op, x, x), dtype)));
        instructions.extend(comparisons.map(|op| (Instruction::Binary(op, x, x), DType::U8)));
        if dtype.is_signed_integer() {
            instructions.extend([Unary::Neg, Unary::Abs, Unary::Sign].map(|op| (Instruction::Unary(op, x), dtype)));
        }
        for to in [DType::F32, DType::I32, DType::U32, DType::I8, DType::U8] {
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
    instructions.push((Instruction::Immediate(Scalar::Int(i32::MIN.into())), DType::I32));
    for value in [f64::NAN, f64::INFINITY, -0.0, 1e-40, f64::from(f32::MAX), 1e300, -1.5] {
        instructions.push((Instruction::Immediate(Scalar::Float(value)), DType::F32));
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
    let shader = valid(&program, Body::Map { dims: vec![8], expr: Expr { instructions }, stores }, TUNINGS[0]);
    let bindings = [Binding::Input(0), Binding::Variable(0), Binding::Constant(0), Binding::Output(0)];
    assert_eq!(shader.bindings, bindings);
}

fn mat_mul(sizes: [usize; 4], transpose_a: bool, transpose_b: bool) -> Body {
    let [_, m, n, k] = sizes;
    Body::MatMul {
        sizes,
        a: ValueId(0),
        b: ValueId(1),
        transpose_a,
        transpose_b,
        batch_stride_a: m * k,
        batch_stride_b: if transpose_b { 0 } else { k * n },
        epilogue: plain(2),
    }
}

#[test]
fn products_are_valid() {
    for sizes in [[1usize, 1, 1, 1], [2, 5, 3, 7], [1, 64, 64, 64], [3, 100, 33, 17], [1, 40, 40, 0], [1, 0, 3, 3]] {
        let [batch, m, n, k] = sizes;
        let program = floats(&[&[batch, m, k], &[batch, k, n], &[batch, m, n]]);
        for tuning in TUNINGS {
            for transposes in 0..4 {
                valid(&program, mat_mul(sizes, transposes & 1 == 1, transposes & 2 == 2), tuning);
            }
        }
    }
}

#[test]
fn small_product() {
    check(
        &floats(&[&[1, 3, 5], &[1, 5, 2], &[1, 3, 2]]),
        mat_mul([1, 3, 2, 5], false, false),
        &expect![[r#"
            @group(0) @binding(0) var<storage, read_write> b0: array<f32>;
            @group(0) @binding(1) var<storage, read_write> b1: array<f32>;
            @group(0) @binding(2) var<storage, read_write> b2: array<f32>;

            fn finish(c0: u32, c1: u32, c2: u32, linear: u32, accumulated: f32) {
                let e0: f32 = accumulated;
                b0[linear] = e0;
            }

            @compute @workgroup_size(64)
            fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
                let tile = group.x;
                let id = tile * 64u + lane;
                if (id >= 6u) { return; }
                let column = id % 2u;
                let row = ((id / 2u) % 3u) * 1u;
                let batch = id / 6u;
                var a0 = batch * 15u + min(row + 0u, 2u) * 5u;
                var f0 = batch * 10u + min(column + 0u, 1u);
                var sum00 = 0.0;
                for (var i = 0u; i < 5u; i += 1u) {
                    let y0 = b1[f0];
                    f0 += 2u;
                    let x0 = b2[a0];
                    a0 += 1u;
                    sum00 += x0 * y0;
                }
                var sums = array<f32, 1>(sum00);
                for (var i = 0u; i < 1u; i += 1u) {
                    for (var j = 0u; j < 1u; j += 1u) {
                        let y = row + i;
                        let x = column + j * 2u;
                        if (y < 3u && x < 2u) {
                            finish(batch, y, x, (batch * 3u + y) * 2u + x, sums[i * 1u + j]);
                        }
                    }
                }
            }
        "#]],
    );
}

#[test]
fn large_grids_fold_into_two_dimensions() {
    let count = 100_000_000;
    let program = floats(&[&[count], &[count]]);
    let stores = vec![Store { value: ValueId(1), register: Register(0) }];
    let expr = Expr { instructions: vec![load(0, identity(&[count]))] };
    let shader = valid(&program, Body::Map { dims: vec![count], expr, stores }, TUNINGS[0]);
    assert!(shader.workgroups[1] > 1);
    assert!(shader.workgroups[0] as usize * shader.workgroups[1] as usize * 256 >= count);
}

#[test]
fn windows_are_valid() {
    for (groups, strides, padding) in [(1, [1, 1], [0, 0, 0, 0]), (2, [2, 1], [1, 0, 2, 1])] {
        let conv = Conv2d { padding, strides, dilations: [1, 2], groups };
        let size = |i: usize, k: usize, a: usize| {
            (9 + padding[2 * a] + padding[2 * a + 1] - conv.dilations[a] * (k - 1) - 1) / strides[a] + i
        };
        let result = [2, 6, size(1, 3, 0), size(1, 3, 1)];
        let (x, f) = ([2usize, 4, 9, 9], [6, 4 / groups, 3, 3]);
        let ids = [ValueId(0), ValueId(1), ValueId(2)];
        let [input, filter, output] = ids;
        for tuning in TUNINGS {
            let body = Body::Conv2d { conv, input, filter, result, epilogue: plain(2) };
            valid(&floats(&[&x, &f, &result]), body, tuning);
            let body = Body::Conv2dInputGrad { conv, gradient: input, filter, output };
            valid(&floats(&[&result, &f, &x]), body, tuning);
            let body = Body::Conv2dFilterGrad { conv, input, gradient: filter, output };
            valid(&floats(&[&x, &result, &f]), body, tuning);
            let pool = Pool2d { window: [3, 3], padding, strides, dilations: conv.dilations };
            let pooled = [2, 4, result[2], result[3]];
            for kind in [Pool::Max, Pool::Sum] {
                let body = Body::Pool2d { kind, pool, input, output: filter };
                valid(&floats(&[&x, &pooled]), body, tuning);
            }
            valid(&floats(&[&x, &pooled, &x]), Body::MaxPool2dGrad { pool, input, gradient: filter, output }, tuning);
            valid(&floats(&[&pooled, &x]), Body::SumPool2dGrad { pool, gradient: input, output: filter }, tuning);
        }
    }
}

#[test]
fn selections_are_valid() {
    for indices in [DType::I32, DType::U32, DType::U8] {
        for count in [0usize, 3] {
            let input = (DType::F32, &[2usize, 5, 4][..], Place::Input(0));
            let chosen = (DType::F32, &[2, count, 4][..], Place::Output(0));
            let indices = (indices, &[count][..], Place::Input(1));
            let (dims, ids) = ([2, 5, 4], [ValueId(0), ValueId(1), ValueId(2)]);
            let body = Body::Gather { dims, input: ids[0], indices: ids[1], output: ids[2] };
            valid(&program(&[input, indices, chosen]), body, TUNINGS[0]);
            let updates = (DType::F32, &[2, count, 4][..], Place::Input(0));
            let result = (DType::F32, &[2, 5, 4][..], Place::Output(0));
            let body = Body::Scatter {
                dims,
                combine: Combine::Add,
                base: None,
                indices: ids[1],
                updates: ids[0],
                output: ids[2],
            };
            valid(&program(&[updates, indices, result]), body, TUNINGS[0]);
        }
    }
    let program = program(&[(DType::F32, &[2, 5, 4], Place::Input(0)), (DType::I32, &[2, 4], Place::Output(0))]);
    let body = Body::ArgFold { largest: true, dims: [2, 5, 4], input: ValueId(0), output: ValueId(1) };
    check(
        &program,
        body,
        &expect![[r#"
        @group(0) @binding(0) var<storage, read_write> b0: array<f32>;
        @group(0) @binding(1) var<storage, read_write> b1: array<i32>;

        @compute @workgroup_size(64)
        fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
            let tile = group.x;
            let id = tile * 64u + lane;
            if (id >= 8u) { return; }
            let start = (id / 4u) * 20u + id % 4u;
            var best = b0[start];
            var best_index = 0u;
            for (var i = 1u; i < 5u; i += 1u) {
                let value = b0[start + i * 4u];
                if (value > best) { best = value; best_index = i; }
            }
            b1[id] = i32(best_index);
        }
    "#]],
    );
}

#[test]
fn half_floats_are_refused_by_name() {
    let program = program(&[(DType::F16, &[2], Place::Input(0)), (DType::F16, &[2], Place::Output(0))]);
    let load = Instruction::Load { value: ValueId(0), view: identity(&[2]), fill: None };
    let expr = Expr { instructions: vec![(load, DType::F16)] };
    let stores = vec![Store { value: ValueId(1), register: Register(0) }];
    let kernel = Kernel { label: "map".to_owned(), body: Body::Map { dims: vec![2], expr, stores } };
    let error = shader(&program, &kernel, TUNINGS[0]).unwrap_err();
    expect!["map: WGSL has no float16"].assert_eq(&error.to_string());
}
