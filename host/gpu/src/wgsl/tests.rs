use std::sync::Arc;

use expect_test::{Expect, expect};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use saggar_tensor::op::{BinaryOp, Conv2d, Pool2d, PoolKind, ReduceKind, Scalar, ScatterCombine};
use saggar_tensor::{DType, Descriptor, Shape};

use super::{Shader, ShaderTuning, WORKGROUPS_MAX, shader_passes};
use saggar_compile::DisabledOptimizations;
use saggar_compile::program::expr::{AffineView, CoordinateBound, Instruction, Register, ScalarExpr};
use saggar_compile::program::{
    ChannelLayout, Epilogue, Kernel, KernelBody, Program, ProgramValue, ResultStore, Slab, ValueId, ValueLocation,
};
use saggar_compile::target::StorageClass;

mod cooperative_matrix;
mod fused_matmul;
mod types;

const TUNINGS: [ShaderTuning; 3] = [
    ShaderTuning { workgroup_memory: false, half_storage: false, ..ShaderTuning::UNLIMITED },
    ShaderTuning::UNLIMITED,
    ShaderTuning { wide_integers: false, ..ShaderTuning::UNLIMITED },
];

fn program(values: &[(DType, &[usize], ValueLocation)]) -> Program {
    let value = |(dtype, dims, place): &(DType, &[usize], ValueLocation)| ProgramValue {
        descriptor: Descriptor::new(*dtype, Shape::new(*dims).unwrap()),
        place: *place,
    };
    Program {
        values: values.iter().map(value).collect(),
        slabs: vec![Slab { class: StorageClass::F32, bytes: 1 << 12 }; 4],
        kernels: Vec::new(),
        inputs: Vec::new(),
        variables: Vec::new(),
        written_variables: Vec::new(),
        constants: Vec::<(Descriptor, Arc<[u8]>)>::new(),
        outputs: Vec::new(),
        without: DisabledOptimizations::NONE,
    }
}

/// Returns a program with tensors of `dtype` in inputs 0, 1, ... and, last, in output 0.
fn tensors(dtype: DType, shapes: &[&[usize]]) -> Program {
    let last = shapes.len() - 1;
    let place = |i: usize| if i == last { ValueLocation::Output(0) } else { ValueLocation::Input(i as u32) };
    let values: Vec<_> = shapes.iter().enumerate().map(|(i, dims)| (dtype, *dims, place(i))).collect();
    program(&values)
}

fn floats(shapes: &[&[usize]]) -> Program {
    tensors(DType::F32, shapes)
}

/// Returns the first pass of the kernel. naga has parsed and validated all passes, with no capability except the 64-bit
/// integers and 16-bit floats that their text names.
fn validated_shader(program: &Program, body: KernelBody, tuning: ShaderTuning) -> Shader {
    let kernel = Kernel { label: "test".to_owned(), body };
    let passes = shader_passes(program, &kernel, tuning).unwrap();
    passes.iter().for_each(check_valid);
    passes.into_iter().next().unwrap()
}

/// Returns the bytes of workgroup memory of a shader.
fn shared_bytes(shader: &Shader) -> usize {
    let module = naga::front::wgsl::parse_str(&shader.source).unwrap();
    let shared = module.global_variables.iter().filter(|(_, v)| v.space == naga::AddressSpace::WorkGroup);
    shared.map(|(_, v)| module.types[v.ty].inner.size(module.to_ctx()) as usize).sum()
}

fn check_valid(shader: &Shader) {
    let module = naga::front::wgsl::parse_str(&shader.source)
        .unwrap_or_else(|error| panic!("{}\n{}", error.emit_to_string(&shader.source), shader.source));
    let wide = ["i64", "u64"].iter().any(|name| shader.source.contains(name));
    let mut capabilities = if wide { Capabilities::SHADER_INT64 } else { Capabilities::empty() };
    capabilities.set(Capabilities::SHADER_FLOAT16, shader.source.starts_with("enable f16;"));
    let matrices = shader.source.contains("enable wgpu_cooperative_matrix;");
    capabilities.set(Capabilities::COOPERATIVE_MATRIX, matrices);
    capabilities.set(Capabilities::SUBGROUP, shader.source.contains("subgroup_id"));
    Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .unwrap_or_else(|error| panic!("{}\n{}", error.emit_to_string(&shader.source), shader.source));
    assert!(shader.workgroups.iter().all(|&groups| groups <= WORKGROUPS_MAX));
}

fn check(program: &Program, body: KernelBody, expected: &Expect) {
    expected.assert_eq(&validated_shader(program, body, TUNINGS[0]).source);
}

fn identity(dims: &[usize]) -> AffineView {
    let strides = Shape::new(dims).unwrap().strides().iter().map(|&stride| stride as i64).collect();
    AffineView { offset: 0, strides, bounds: Vec::new() }
}

fn load(value: u32, view: AffineView) -> (Instruction, DType) {
    (Instruction::Load { value: ValueId(value), view, fill: None }, DType::F32)
}

fn plain(dtype: DType, value: u32) -> Epilogue {
    Epilogue {
        expr: ScalarExpr { instructions: vec![(Instruction::Accumulated, dtype)] },
        stores: vec![ResultStore { value: ValueId(value), register: Register(0) }],
    }
}

#[test]
fn a_map_reads_a_padded_slab() {
    let slab = ValueLocation::Slab { slab: 2, offset_bytes: 256 };
    let program = program(&[(DType::F32, &[2, 3], slab), (DType::F32, &[2, 5], ValueLocation::Output(0))]);
    let view =
        AffineView { offset: -1, strides: vec![3, 1], bounds: vec![CoordinateBound { dim: 1, low: 1, high: 4 }] };
    let padded = Instruction::Load { value: ValueId(0), view, fill: Some(Scalar::Float(f64::NEG_INFINITY)) };
    let instructions = vec![
        (padded, DType::F32),
        (Instruction::Immediate(Scalar::Float(0.5)), DType::F32),
        (Instruction::Binary(BinaryOp::Mul, Register(0), Register(1)), DType::F32),
    ];
    let stores = vec![ResultStore { value: ValueId(1), register: Register(2) }];
    let body = KernelBody::Map { dims: vec![2, 5], expr: ScalarExpr { instructions }, stores };
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
fn a_row_fold_has_the_expected_source() {
    let program = floats(&[&[4, 6], &[4]]);
    let body = KernelBody::Fold {
        kind: ReduceKind::Max,
        outer: vec![4],
        inner: vec![6],
        prologue: ScalarExpr { instructions: vec![load(0, identity(&[4, 6]))] },
        epilogue: plain(DType::F32, 1),
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

fn mat_mul(dtype: DType, sizes: [usize; 4], transpose_a: bool, transpose_b: bool) -> KernelBody {
    let [_, m, n, k] = sizes;
    KernelBody::MatMul {
        sizes,
        a: ValueId(0),
        b: ValueId(1),
        transpose_a,
        transpose_b,
        batch_stride_a: m * k,
        batch_stride_b: if transpose_b { 0 } else { k * n },
        epilogue: plain(dtype, 2),
    }
}

#[test]
fn matmul_shaders_are_valid() {
    for sizes in [[1usize, 1, 1, 1], [2, 5, 3, 7], [1, 64, 64, 64], [3, 100, 33, 17], [1, 40, 40, 0], [1, 0, 3, 3]] {
        let [batch, m, n, k] = sizes;
        for dtype in [DType::F32, DType::F16] {
            let program = tensors(dtype, &[&[batch, m, k], &[batch, k, n], &[batch, m, n]]);
            for tuning in TUNINGS {
                for transposes in 0..4 {
                    validated_shader(&program, mat_mul(dtype, sizes, transposes & 1 == 1, transposes & 2 == 2), tuning);
                }
            }
        }
    }
}

#[test]
fn a_small_matmul_has_the_expected_source() {
    check(
        &floats(&[&[1, 3, 5], &[1, 5, 2], &[1, 3, 2]]),
        mat_mul(DType::F32, [1, 3, 2, 5], false, false),
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
fn large_dispatches_use_two_grid_dimensions() {
    let count = 100_000_000;
    let program = floats(&[&[count], &[count]]);
    let stores = vec![ResultStore { value: ValueId(1), register: Register(0) }];
    let expr = ScalarExpr { instructions: vec![load(0, identity(&[count]))] };
    let shader = validated_shader(&program, KernelBody::Map { dims: vec![count], expr, stores }, TUNINGS[0]);
    assert!(shader.workgroups[1] > 1);
    assert!(shader.workgroups[0] as usize * shader.workgroups[1] as usize * 256 >= count);
}

#[test]
fn windowed_operator_shaders_are_valid() {
    for (groups, strides, padding) in [(1, [1, 1], [0, 0, 0, 0]), (2, [2, 1], [1, 0, 2, 1])] {
        let conv = Conv2d { padding, strides, dilations: [1, 2], groups };
        let size = |i: usize, k: usize, a: usize| {
            (9 + padding[2 * a] + padding[2 * a + 1] - conv.dilations[a] * (k - 1) - 1) / strides[a] + i
        };
        let result = [2, 6, size(1, 3, 0), size(1, 3, 1)];
        let (x, f) = ([2usize, 4, 9, 9], [6, 4 / groups, 3, 3]);
        let ids = [ValueId(0), ValueId(1), ValueId(2)];
        let [input, filter, output] = ids;
        let layout = ChannelLayout::ChannelsFirst;
        for (tuning, dtype) in TUNINGS.into_iter().flat_map(|tuning| [(tuning, DType::F32), (tuning, DType::F16)]) {
            let valid = |shapes: &[&[usize]], body| self::validated_shader(&tensors(dtype, shapes), body, tuning);
            let epilogue = plain(dtype, 2);
            valid(&[&x, &f, &result], KernelBody::Conv2d { conv, layout, input, filter, result, epilogue });
            valid(&[&result, &f, &x], KernelBody::Conv2dInputGrad { conv, layout, gradient: input, filter, output });
            valid(&[&x, &result, &f], KernelBody::Conv2dFilterGrad { conv, layout, input, gradient: filter, output });
            let pool = Pool2d { window: [3, 3], padding, strides, dilations: conv.dilations };
            let pooled = [2, 4, result[2], result[3]];
            for kind in [PoolKind::Max, PoolKind::Sum] {
                valid(&[&x, &pooled], KernelBody::Pool2d { kind, pool, layout, input, output: filter });
            }
            valid(&[&x, &pooled, &x], KernelBody::MaxPool2dGrad { pool, layout, input, gradient: filter, output });
            valid(&[&pooled, &x], KernelBody::SumPool2dGrad { pool, layout, gradient: input, output: filter });
        }
    }
}

#[test]
fn gather_scatter_and_arg_fold_shaders_are_valid() {
    let indices = [DType::I32, DType::U32, DType::I64, DType::U64, DType::U8];
    for (dtype, indices) in DType::ALL.into_iter().flat_map(|dtype| indices.map(|indices| (dtype, indices))) {
        for count in [0usize, 3] {
            let input = (dtype, &[2usize, 5, 4][..], ValueLocation::Input(0));
            let chosen = (dtype, &[2, count, 4][..], ValueLocation::Output(0));
            let indices = (indices, &[count][..], ValueLocation::Input(1));
            let (dims, ids) = ([2, 5, 4], [ValueId(0), ValueId(1), ValueId(2)]);
            let body = KernelBody::Gather { dims, input: ids[0], indices: ids[1], output: ids[2] };
            validated_shader(&program(&[input, indices, chosen]), body, TUNINGS[0]);
            let updates = (dtype, &[2, count, 4][..], ValueLocation::Input(0));
            let result = (dtype, &[2, 5, 4][..], ValueLocation::Output(0));
            let (base, combine) = (None, ScatterCombine::Add);
            let body = KernelBody::Scatter { dims, combine, base, indices: ids[1], updates: ids[0], output: ids[2] };
            validated_shader(&program(&[updates, indices, result]), body, TUNINGS[0]);
        }
    }
    let program =
        program(&[(DType::F32, &[2, 5, 4], ValueLocation::Input(0)), (DType::I32, &[2, 4], ValueLocation::Output(0))]);
    let body = KernelBody::ArgFold { largest: true, dims: [2, 5, 4], input: ValueId(0), output: ValueId(1) };
    check(
        &program,
        body,
        &expect![[r#"
            @group(0) @binding(0) var<storage, read_write> b0: array<f32>;
            @group(0) @binding(1) var<storage, read_write> b1: array<i32>;

            fn choose(condition: u32, yes: f32, no: f32) -> f32 {
                let other = bitcast<u32>(no);
                let mask = select(0u, 0xffffffffu, condition != 0u);
                return bitcast<f32>(other ^ ((bitcast<u32>(yes) ^ other) & mask));
            }

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
                    let beats = select(0u, 1u, best < value);
                    best = choose(beats, value, best);
                    best_index = select(best_index, i, beats != 0u);
                }
                b1[id] = i32(best_index);
            }
        "#]],
    );
}
