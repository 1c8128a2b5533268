//! Every operator on every data type.

use expect_test::expect;
use saggar_tensor::DType;
use saggar_tensor::op::{BinaryOp, RandomDistribution, ReduceKind, Scalar, UnaryOp};

use super::{TUNINGS, check, identity, load, plain, program, tensors, validated_shader};
use crate::wgsl::{ShaderError, ShaderResource, ShaderTuning, shader_passes};
use saggar_compile::program::expr::{AffineView, CoordinateBound, Instruction, Register, ScalarExpr};
use saggar_compile::program::{Kernel, KernelBody, ResultStore, ValueId, ValueLocation};

#[test]
fn every_fold_shader_is_valid() {
    for (dtype, kind) in DType::ALL.into_iter().flat_map(|dtype| ReduceKind::ALL.map(|kind| (dtype, kind))) {
        for (outer, inner) in [(70usize, 5usize), (3, 4000), (3, 0), (1, 1), (200, 300), (0, 3)] {
            for tuning in TUNINGS {
                for transposed in [false, true] {
                    let program = tensors(dtype, &[&[outer, inner], &[outer]]);
                    let mut view = identity(&[outer, inner]);
                    if transposed {
                        view.strides = vec![1, outer as i64];
                    }
                    let element = Instruction::Load { value: ValueId(0), view, fill: None };
                    let body = KernelBody::Fold {
                        kind,
                        outer: vec![outer],
                        inner: vec![inner],
                        prologue: ScalarExpr { instructions: vec![(element, dtype)] },
                        epilogue: plain(dtype, 1),
                    };
                    let shader = validated_shader(&program, body, tuning);
                    assert_eq!(shader.workgroups[0] == 0, outer == 0);
                }
            }
        }
    }
}

#[test]
fn every_arg_fold_shader_is_valid() {
    for dtype in DType::ALL {
        for (largest, dims) in [(true, [2usize, 5, 4]), (false, [3, 7, 1])] {
            let outputs = [dims[0], dims[2]];
            let program =
                program(&[(dtype, &dims, ValueLocation::Input(0)), (DType::I32, &outputs, ValueLocation::Output(0))]);
            for tuning in TUNINGS {
                validated_shader(
                    &program,
                    KernelBody::ArgFold { largest, dims, input: ValueId(0), output: ValueId(1) },
                    tuning,
                );
            }
        }
    }
}

#[test]
fn every_scalar_operation_shader_is_valid() {
    let narrow = DType::ALL.into_iter().filter(|dtype| dtype.bytes() < 8).collect::<Vec<_>>();
    for dtypes in [&narrow[..], &DType::ALL] {
        for tuning in TUNINGS {
            check_scalar_operations(dtypes, tuning);
        }
    }
}

/// Checks every scalar operation on these types, `uint8` the last, in one shader.
fn check_scalar_operations(dtypes: &[DType], tuning: ShaderTuning) {
    let mut instructions = vec![load(0, identity(&[8])), load(1, identity(&[8]))];
    let (a, b) = (Register(0), Register(1));
    instructions.push((Instruction::Binary(BinaryOp::Pow, a, b), DType::F32));
    for &dtype in dtypes {
        let x = Register(instructions.len() as u32);
        instructions.push((Instruction::Unary(UnaryOp::Cast(dtype), a), dtype));
        for op in BinaryOp::ALL.iter().filter(|op| op.facts().operands.contains(dtype)) {
            let result = if op.facts().is_boolean { DType::U8 } else { dtype };
            instructions.push((Instruction::Binary(*op, x, x), result));
        }
        for op in UnaryOp::WITHOUT_ATTRIBUTES.iter().filter(|op| op.facts().operands.contains(dtype)) {
            instructions.push((Instruction::Unary(*op, x), dtype));
        }
        for &to in dtypes {
            instructions.push((Instruction::Unary(UnaryOp::Cast(to), x), to));
        }
        instructions.push((Instruction::Index(identity(&[8])), dtype));
        for value in [Scalar::Int(0), Scalar::Int(100)] {
            instructions.push((Instruction::Immediate(value), dtype));
        }
    }
    let truth = Register(instructions.len() as u32 - 1);
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
    for (distribution, dtype) in [(RandomDistribution::Bits, DType::U32), (RandomDistribution::Uniform, DType::F32)] {
        let random = Instruction::Random { key: ValueId(2), stream: 7, distribution, view: identity(&[8]) };
        instructions.push((random, dtype));
    }
    let last = Register(instructions.len() as u32 - 1);
    instructions.push((Instruction::Select(truth, a, last), DType::F32));
    let program = program(&[
        (DType::F32, &[8], ValueLocation::Input(0)),
        (DType::F32, &[8], ValueLocation::Variable(0)),
        (DType::U32, &[4], ValueLocation::Constant(0)),
        (DType::F32, &[8], ValueLocation::Output(0)),
    ]);
    let stores = vec![ResultStore { value: ValueId(3), register: Register(instructions.len() as u32 - 1) }];
    let shader = validated_shader(
        &program,
        KernelBody::Map { dims: vec![8], expr: ScalarExpr { instructions }, stores },
        tuning,
    );
    let bindings =
        [ShaderResource::Input(0), ShaderResource::Variable(0), ShaderResource::Constant(0), ShaderResource::Output(0)];
    let resources: Vec<ShaderResource> = shader.bindings.iter().map(|window| window.resource).collect();
    assert_eq!(resources, bindings);
}

/// Sums of half-precision numbers are rounded once, and every later operation is rounded.
#[test]
fn f16_results_are_rounded_after_every_operation() {
    let body = KernelBody::Fold {
        kind: ReduceKind::Sum,
        outer: vec![4],
        inner: vec![6],
        prologue: ScalarExpr {
            instructions: vec![
                (Instruction::Load { value: ValueId(0), view: identity(&[4, 6]), fill: None }, DType::F16),
                (Instruction::Binary(BinaryOp::Mul, Register(0), Register(0)), DType::F16),
            ],
        },
        epilogue: plain(DType::F16, 1),
    };
    let program = tensors(DType::F16, &[&[4, 6], &[4]]);
    let source = validated_shader(&program, body, TUNINGS[0]).source;
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
fn native_64_bit_integers_read_a_padded_slab() {
    let slab = ValueLocation::Slab { slab: 2, offset_bytes: 256 };
    let program = program(&[(DType::I64, &[3], slab), (DType::U8, &[5], ValueLocation::Output(0))]);
    let view = AffineView { offset: -1, strides: vec![1], bounds: vec![CoordinateBound { dim: 0, low: 1, high: 4 }] };
    let fill = Some(Scalar::Int(i64::MIN.into()));
    let instructions = vec![
        (Instruction::Load { value: ValueId(0), view, fill }, DType::I64),
        (Instruction::Unary(UnaryOp::Cast(DType::U8), Register(0)), DType::U8),
    ];
    let stores = vec![ResultStore { value: ValueId(1), register: Register(1) }];
    let body = KernelBody::Map { dims: vec![5], expr: ScalarExpr { instructions }, stores };
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
fn emulated_64_bit_integers_are_two_words() {
    let program = tensors(DType::I64, &[&[5, 3], &[5]]);
    let halved = (Instruction::Binary(BinaryOp::Div, Register(0), Register(1)), DType::I64);
    let body = KernelBody::Fold {
        kind: ReduceKind::Max,
        outer: vec![5],
        inner: vec![3],
        prologue: ScalarExpr {
            instructions: vec![
                (Instruction::Load { value: ValueId(0), view: identity(&[5, 3]), fill: None }, DType::I64),
                (Instruction::Immediate(Scalar::Int(-2)), DType::I64),
                halved,
            ],
        },
        epilogue: plain(DType::I64, 1),
    };
    let source = validated_shader(&program, body, TUNINGS[2]).source;
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
fn emulated_64_bit_divisions_count_as_loop_iterations() {
    let program = tensors(DType::U64, &[&[4, 100], &[4]]);
    let load = Instruction::Load { value: ValueId(0), view: identity(&[4, 100]), fill: None };
    let divided = Instruction::Binary(BinaryOp::Div, Register(0), Register(0));
    let body = KernelBody::Fold {
        kind: ReduceKind::Sum,
        outer: vec![4],
        inner: vec![100],
        prologue: ScalarExpr { instructions: vec![(load, DType::U64), (divided, DType::U64)] },
        epilogue: plain(DType::U64, 1),
    };
    let kernel = Kernel { label: "fold".to_owned(), body };
    let least = 100 + 100 * 32;
    let with =
        |iterations_max| shader_passes(&program, &kernel, ShaderTuning { iterations_max, ..TUNINGS[2] }).map(drop);
    let refused = ShaderError::Iterations { kernel: "fold".to_owned(), iterations: least, limit: least - 1 };
    assert_eq!(with(least - 1), Err(refused));
    assert_eq!(with(least), Ok(()));
}
