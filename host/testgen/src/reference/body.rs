//! Reference implementation of each kind of kernel, on whole tensors.

mod fused_matmul;

use saggar_tensor::interp::{InterpElements, InterpPrecision, InterpTensor, evaluate_op};
use saggar_tensor::op::{
    ContractOp, ConvolutionOp, IndexOp, MovementOp, Op, RandomDistribution, ReduceOp, Scalar, ScatterCombine, SourceOp,
};
use saggar_tensor::{DType, Descriptor, Shape};

use super::ReferenceMemory;
use saggar_compile::program::expr::{AffineView, Instruction, Register, ScalarExpr};
use saggar_compile::program::{ChannelLayout, Epilogue, KernelBody, ProductOperand, ResultStore, ValueId};

/// Computes every value that the kernel writes.
pub(super) fn kernel_results(memory: &ReferenceMemory<'_>, body: &KernelBody) -> Vec<(ValueId, InterpTensor)> {
    let read = |value: &ValueId| memory.read_value(*value);
    match body {
        KernelBody::Map { dims, expr, stores } => evaluate_stores(memory, expr, dims, &[], stores),
        KernelBody::Fold { kind, outer, inner, prologue, epilogue } => {
            let all: Vec<usize> = outer.iter().chain(inner).copied().collect();
            let elements =
                evaluate_registers(memory, prologue, &all, &[]).pop().expect("a prologue has an instruction");
            let [outer_len, inner_len] = [outer, inner].map(|dims| dims.iter().product::<usize>());
            let operand = reshape(&elements, &[outer_len, inner_len]);
            let op = Op::Reduce(ReduceOp::Fold { kind: *kind, axes: vec![1] });
            let result = descriptor(operand.descriptor().dtype, &[outer_len, 1]);
            apply_epilogue(memory, outer, evaluate_op(&op, &[&operand], &result, InterpPrecision::Stored), epilogue)
        }
        KernelBody::MatMul { sizes, epilogue, .. } => {
            let [batch, m, n, _] = *sizes;
            apply_epilogue(memory, &[batch, m, n], matmul_result(memory, body), epilogue)
        }
        KernelBody::Chain { .. } => fused_matmul::fused_matmul_results(memory, body),
        KernelBody::Conv2d { conv, layout, input, filter, result, epilogue } => {
            let operands = [to_channels_first(*layout, read(input)), read(filter)];
            let op = Op::Convolution(ConvolutionOp::Conv2d(*conv));
            let first = permute_dims(result, channels_first_axes(*layout));
            let result_descriptor = descriptor(operands[0].descriptor().dtype, &first);
            let accumulated =
                evaluate_op(&op, &[&operands[0], &operands[1]], &result_descriptor, InterpPrecision::Stored);
            apply_epilogue(memory, result, permute_axes(&accumulated, channels_last_axes(*layout)), epilogue)
        }
        KernelBody::ArgFold { largest, dims, input, output } => {
            let reduce = if *largest { ReduceOp::ArgMax { axis: 1 } } else { ReduceOp::ArgMin { axis: 1 } };
            let operand = reshape(&read(input), dims);
            let result = descriptor(DType::I32, &[dims[0], 1, dims[2]]);
            vec![(*output, evaluate_op(&Op::Reduce(reduce), &[&operand], &result, InterpPrecision::Stored))]
        }
        KernelBody::Conv2dInputGrad { .. }
        | KernelBody::Conv2dFilterGrad { .. }
        | KernelBody::Pool2d { .. }
        | KernelBody::MaxPool2dGrad { .. }
        | KernelBody::SumPool2dGrad { .. } => vec![windowed_result(memory, body)],
        KernelBody::Gather { dims, input, indices, output } => {
            let (operand, indices) = (reshape(&read(input), dims), flatten(&read(indices)));
            let count = indices.elements().len();
            let result = descriptor(operand.descriptor().dtype, &[dims[0], count, dims[2]]);
            let op = Op::Index(IndexOp::Gather { axis: 1 });
            vec![(*output, evaluate_op(&op, &[&operand, &indices], &result, InterpPrecision::Stored))]
        }
        KernelBody::Scatter { dims, combine, base, indices, updates, output } => {
            let base = base.as_ref().map(|base| reshape(&read(base), dims));
            vec![(*output, scatter_updates(dims, *combine, base, &flatten(&read(indices)), &read(updates)))]
        }
    }
}

/// Computes the result of a windowed kernel without an epilogue.
fn windowed_result(memory: &ReferenceMemory<'_>, body: &KernelBody) -> (ValueId, InterpTensor) {
    let layout = body.layout();
    let first = |value: &ValueId| to_channels_first(layout, memory.read_value(*value));
    let dims = |value: &ValueId| {
        let shape = &memory.program.values[value.index()].descriptor.shape;
        permute_dims(shape.dims(), channels_first_axes(layout))
    };
    let (op, operands, output) = match body {
        KernelBody::Conv2dInputGrad { conv, gradient, filter, output, .. } => {
            let size = [dims(output)[2], dims(output)[3]];
            let operands = vec![first(gradient), memory.read_value(*filter)];
            (ConvolutionOp::Conv2dInputGrad { conv: *conv, size }, operands, output)
        }
        KernelBody::Conv2dFilterGrad { conv, input, gradient, output, .. } => {
            let filter = memory.program.values[output.index()].descriptor.clone();
            let window = [filter.shape[2], filter.shape[3]];
            let op = Op::Convolution(ConvolutionOp::Conv2dFilterGrad { conv: *conv, window });
            let operands = [first(input), first(gradient)];
            return (*output, evaluate_op(&op, &[&operands[0], &operands[1]], &filter, InterpPrecision::Stored));
        }
        KernelBody::Pool2d { kind, pool, input, output, .. } => {
            (ConvolutionOp::Pool2d { kind: *kind, pool: *pool }, vec![first(input)], output)
        }
        KernelBody::MaxPool2dGrad { pool, input, gradient, output, .. } => {
            (ConvolutionOp::MaxPool2dGrad(*pool), vec![first(input), first(gradient)], output)
        }
        KernelBody::SumPool2dGrad { pool, gradient, output, .. } => {
            let size = [dims(output)[2], dims(output)[3]];
            (ConvolutionOp::SumPool2dGrad { pool: *pool, size }, vec![first(gradient)], output)
        }
        KernelBody::Map { .. }
        | KernelBody::Fold { .. }
        | KernelBody::ArgFold { .. }
        | KernelBody::MatMul { .. }
        | KernelBody::Chain { .. }
        | KernelBody::Conv2d { .. }
        | KernelBody::Gather { .. }
        | KernelBody::Scatter { .. } => panic!("{body:?} has no windows, or an epilogue"),
    };
    let result = descriptor(operands[0].descriptor().dtype, &dims(output));
    let operands: Vec<&InterpTensor> = operands.iter().collect();
    let value = evaluate_op(&Op::Convolution(op), &operands, &result, InterpPrecision::Stored);
    (*output, permute_axes(&value, channels_last_axes(layout)))
}

/// Returns the permutation that puts channels first.
fn channels_first_axes(layout: ChannelLayout) -> [usize; 4] {
    match layout {
        ChannelLayout::ChannelsFirst => [0, 1, 2, 3],
        ChannelLayout::ChannelsLast => [0, 3, 1, 2],
    }
}

/// Returns the inverse permutation.
fn channels_last_axes(layout: ChannelLayout) -> [usize; 4] {
    match layout {
        ChannelLayout::ChannelsFirst => [0, 1, 2, 3],
        ChannelLayout::ChannelsLast => [0, 2, 3, 1],
    }
}

fn permute_dims(dims: &[usize], axes: [usize; 4]) -> [usize; 4] {
    axes.map(|axis| dims[axis])
}

/// Returns a value with its channels first.
fn to_channels_first(layout: ChannelLayout, value: InterpTensor) -> InterpTensor {
    permute_axes(&value, channels_first_axes(layout))
}

fn permute_axes(value: &InterpTensor, axes: [usize; 4]) -> InterpTensor {
    let result = descriptor(value.descriptor().dtype, &permute_dims(value.descriptor().shape.dims(), axes));
    evaluate_op(&Op::Movement(MovementOp::Transpose(axes.to_vec())), &[value], &result, InterpPrecision::Stored)
}

/// Combines `updates` into `base`, or into zeros, at `indices` along the middle axis of `dims`.
fn scatter_updates(
    dims: &[usize; 3],
    combine: ScatterCombine,
    base: Option<InterpTensor>,
    indices: &InterpTensor,
    updates: &InterpTensor,
) -> InterpTensor {
    let updates = reshape(updates, &[dims[0], indices.elements().len(), dims[2]]);
    let result = descriptor(updates.descriptor().dtype, dims);
    match base {
        Some(base) => {
            let op = Op::Index(IndexOp::Scatter { axis: 1, combine });
            evaluate_op(&op, &[&base, indices, &updates], &result, InterpPrecision::Stored)
        }
        None => {
            let op = Op::Index(IndexOp::ScatterAdd { axis: 1, size: dims[1] });
            evaluate_op(&op, &[indices, &updates], &result, InterpPrecision::Stored)
        }
    }
}

/// Returns whether every load of `value` reads the element at the map's current position.
pub(super) fn reads_in_place(body: &KernelBody, value: ValueId) -> bool {
    let KernelBody::Map { dims, expr, .. } = body else { return false };
    let own: Vec<i64> = (0..dims.iter().product::<usize>() as i64).collect();
    expr.instructions.iter().all(|(instruction, _)| match instruction {
        Instruction::Load { value: loaded, view, .. } => {
            *loaded != value || view_positions(view, dims).iter().zip(&own).all(|(at, own)| *at == Some(*own))
        }
        Instruction::Random { key, .. } => *key != value,
        Instruction::Immediate(_)
        | Instruction::Index(_)
        | Instruction::Accumulated
        | Instruction::Product(_)
        | Instruction::Unary(..)
        | Instruction::Binary(..)
        | Instruction::Select(..) => true,
    })
}

fn matmul_result(memory: &ReferenceMemory<'_>, body: &KernelBody) -> InterpTensor {
    let KernelBody::MatMul { sizes, a, b, transpose_a, transpose_b, batch_stride_a, batch_stride_b, .. } = body else {
        panic!("{body:?} is no product");
    };
    let a = ProductOperand { value: *a, transposed: *transpose_a, batch_stride: *batch_stride_a };
    let b = ProductOperand { value: *b, transposed: *transpose_b, batch_stride: *batch_stride_b };
    multiply(memory, *sizes, &load_matrices(memory, a, [sizes[0], sizes[1], sizes[3]]), b)
}

/// Returns the matrices of a factor in the form that is multiplied: `[batch, rows, columns]`.
fn load_matrices(
    memory: &ReferenceMemory<'_>,
    factor: ProductOperand,
    [batch, rows, columns]: [usize; 3],
) -> InterpTensor {
    let size = rows * columns;
    let at = (0..batch * size).map(|at| {
        let (matrix, at) = (at / size, at % size);
        let (row, column) = (at / columns, at % columns);
        let at = if factor.transposed { column * rows + row } else { at };
        Some((matrix * factor.batch_stride + at) as i64)
    });
    reshape(&gather_elements(&memory.read_value(factor.value), &at.collect::<Vec<_>>(), None), &[batch, rows, columns])
}

/// Multiplies `a [batch, m, k]` by the factor `b`.
fn multiply(
    memory: &ReferenceMemory<'_>,
    [batch, m, n, k]: [usize; 4],
    a: &InterpTensor,
    b: ProductOperand,
) -> InterpTensor {
    let b = load_matrices(memory, b, [batch, k, n]);
    let op = Op::Contract(ContractOp::MatMul { transpose_a: false, transpose_b: false });
    evaluate_op(&op, &[a, &b], &descriptor(a.descriptor().dtype, &[batch, m, n]), InterpPrecision::Stored)
}

fn apply_epilogue(
    memory: &ReferenceMemory<'_>,
    dims: &[usize],
    value: InterpTensor,
    epilogue: &Epilogue,
) -> Vec<(ValueId, InterpTensor)> {
    evaluate_stores(memory, &epilogue.expr, dims, &[flatten(&value)], &epilogue.stores)
}

fn evaluate_stores(
    memory: &ReferenceMemory<'_>,
    expr: &ScalarExpr,
    dims: &[usize],
    accumulated: &[InterpTensor],
    stores: &[ResultStore],
) -> Vec<(ValueId, InterpTensor)> {
    let registers = evaluate_registers(memory, expr, dims, accumulated);
    stores.iter().map(|store| (store.value, registers[store.register.0 as usize].clone())).collect()
}

/// Evaluates each instruction at all points of `dims`, in order.
fn evaluate_registers(
    memory: &ReferenceMemory<'_>,
    expr: &ScalarExpr,
    dims: &[usize],
    accumulated: &[InterpTensor],
) -> Vec<InterpTensor> {
    let count: usize = dims.iter().product();
    let mut registers: Vec<InterpTensor> = Vec::new();
    for (at, (instruction, dtype)) in expr.instructions.iter().enumerate() {
        assert!(!expr.instructions[..at].contains(&(instruction.clone(), *dtype)) || is_arithmetic(instruction));
        let result = descriptor(*dtype, &[count]);
        let register = |register: &Register| &registers[register.0 as usize];
        let on = |op: Op, operands: &[&InterpTensor]| evaluate_op(&op, operands, &result, InterpPrecision::Stored);
        let value = match instruction {
            Instruction::Load { value, view, fill } => {
                assert_eq!(fill.is_some(), !view.bounds.is_empty(), "a load has a fill exactly if its view has bounds");
                gather_elements(&memory.read_value(*value), &view_positions(view, dims), *fill)
            }
            Instruction::Immediate(scalar) => InterpTensor::full(result, *scalar),
            Instruction::Index(view) => {
                let numbers: Vec<f64> = unbounded_positions(view, dims).into_iter().map(|index| index as f64).collect();
                InterpTensor::from_numbers(*dtype, result.shape, &numbers).expect("one index a point")
            }
            Instruction::Random { key, stream, distribution, view } => {
                random_numbers(&memory.read_value(*key), *stream, *distribution, &unbounded_positions(view, dims))
            }
            Instruction::Accumulated => accumulated.first().expect("only epilogues have accumulated elements").clone(),
            Instruction::Product(number) => accumulated[*number as usize].clone(),
            Instruction::Unary(op, a) => on(Op::Unary(*op), &[register(a)]),
            Instruction::Binary(op, a, b) => on(Op::Binary(*op), &[register(a), register(b)]),
            Instruction::Select(condition, a, b) => on(Op::Select, &[register(condition), register(a), register(b)]),
        };
        assert_eq!(value.descriptor().dtype, *dtype, "an instruction has the data type of its result");
        registers.push(value);
    }
    registers
}

/// Returns whether two equal instructions can differ: the numbers 0 and -0 compare equal.
fn is_arithmetic(instruction: &Instruction) -> bool {
    match instruction {
        Instruction::Immediate(_) | Instruction::Load { .. } => true,
        Instruction::Index(_)
        | Instruction::Random { .. }
        | Instruction::Accumulated
        | Instruction::Product(_)
        | Instruction::Unary(..)
        | Instruction::Binary(..)
        | Instruction::Select(..) => false,
    }
}

/// Returns the view's element index at each point in row-major order; `None` outside its bounds.
fn view_positions(view: &AffineView, dims: &[usize]) -> Vec<Option<i64>> {
    assert_eq!(view.strides.len(), dims.len(), "a view has the dimensions of its space");
    let mut point = vec![0i64; dims.len()];
    let mut positions = Vec::new();
    for _ in 0..dims.iter().product() {
        let inside = view.bounds.iter().all(|bound| (bound.low..bound.high).contains(&point[bound.dim]));
        let at = view.offset + view.strides.iter().zip(&point).map(|(stride, at)| stride * at).sum::<i64>();
        positions.push(inside.then_some(at));
        for dim in (0..dims.len()).rev() {
            point[dim] += 1;
            if point[dim] < dims[dim] as i64 {
                break;
            }
            point[dim] = 0;
        }
    }
    positions
}

fn unbounded_positions(view: &AffineView, dims: &[usize]) -> Vec<i64> {
    assert!(view.bounds.is_empty(), "an index has no bounds");
    view_positions(view, dims).into_iter().flatten().collect()
}

fn random_numbers(key: &InterpTensor, stream: u32, distribution: RandomDistribution, at: &[i64]) -> InterpTensor {
    let dtype = match distribution {
        RandomDistribution::Bits => DType::U32,
        RandomDistribution::Uniform => DType::F32,
    };
    let length = at.iter().max().map_or(0, |last| *last as usize + 1);
    let op = Op::Source(SourceOp::Random { stream, distribution });
    let all = evaluate_op(&op, &[&flatten(key)], &descriptor(dtype, &[length]), InterpPrecision::Stored);
    gather_elements(&all, &at.iter().map(|at| Some(*at)).collect::<Vec<_>>(), None)
}

/// Returns the elements at these positions as a tensor of one dimension.
fn gather_elements(value: &InterpTensor, at: &[Option<i64>], fill: Option<Scalar>) -> InterpTensor {
    let result = descriptor(value.descriptor().dtype, &[at.len()]);
    let place = |at: i64| usize::try_from(at).expect("no element lies before the first");
    let fill = fill.unwrap_or(Scalar::Int(0));
    let elements = match value.elements() {
        InterpElements::Float(values) => {
            InterpElements::Float(at.iter().map(|at| at.map_or(fill.as_f64(), |at| values[place(at)])).collect())
        }
        InterpElements::Int(values) => {
            let fill = match fill {
                Scalar::Int(value) => value,
                Scalar::Float(value) => value as i128,
            };
            InterpElements::Int(at.iter().map(|at| at.map_or(fill, |at| values[place(at)])).collect())
        }
    };
    InterpTensor::new(result, elements).expect("one element a position")
}

fn flatten(value: &InterpTensor) -> InterpTensor {
    reshape(value, &[value.elements().len()])
}

fn reshape(value: &InterpTensor, dims: &[usize]) -> InterpTensor {
    let elements = value.elements().clone();
    InterpTensor::new(descriptor(value.descriptor().dtype, dims), elements).expect("a reshape keeps the elements")
}

fn descriptor(dtype: DType, dims: &[usize]) -> Descriptor {
    Descriptor::new(dtype, Shape::new(dims).expect("iteration spaces are within a tensor's limits"))
}
