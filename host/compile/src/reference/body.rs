//! What each kind of kernel computes, from whole tensors.

mod chain;

use saggar_tensor::interp::{Elements, Precision, Value, apply};
use saggar_tensor::op::{Combine, Contract, Convolution, Distribution, Index, Movement, Op, Reduce, Scalar, Source};
use saggar_tensor::{DType, Descriptor, Shape};

use super::Memory;
use crate::expr::{Expr, Instruction, Register, View};
use crate::program::{Body, Epilogue, Factor, Layout, Store, ValueId};

/// Every value that the kernel writes, with its elements.
pub(super) fn results(memory: &Memory<'_>, body: &Body) -> Vec<(ValueId, Value)> {
    let read = |value: &ValueId| memory.read(*value);
    match body {
        Body::Map { dims, expr, stores } => stored(memory, expr, dims, &[], stores),
        Body::Fold { kind, outer, inner, prologue, epilogue } => {
            let all: Vec<usize> = outer.iter().chain(inner).copied().collect();
            let elements = registers(memory, prologue, &all, &[]).pop().expect("a prologue has an instruction");
            let [kept, folded] = [outer, inner].map(|dims| dims.iter().product::<usize>());
            let operand = reshaped(&elements, &[kept, folded]);
            let op = Op::Reduce(Reduce::Fold { kind: *kind, axes: vec![1] });
            let result = descriptor(operand.descriptor().dtype, &[kept, 1]);
            epilogued(memory, outer, apply(&op, &[&operand], &result, Precision::Stored), epilogue)
        }
        Body::MatMul { sizes, epilogue, .. } => {
            let [batch, m, n, _] = *sizes;
            epilogued(memory, &[batch, m, n], product(memory, body), epilogue)
        }
        Body::Chain { .. } => chain::results(memory, body),
        Body::Conv2d { conv, layout, input, filter, result, epilogue } => {
            let operands = [ordered(*layout, read(input)), read(filter)];
            let op = Op::Convolution(Convolution::Conv2d(*conv));
            let first = permuted(result, axes_first(*layout));
            let result_descriptor = descriptor(operands[0].descriptor().dtype, &first);
            let accumulated = apply(&op, &[&operands[0], &operands[1]], &result_descriptor, Precision::Stored);
            epilogued(memory, result, turned(&accumulated, axes_last(*layout)), epilogue)
        }
        Body::ArgFold { largest, dims, input, output } => {
            let reduce = if *largest { Reduce::ArgMax { axis: 1 } } else { Reduce::ArgMin { axis: 1 } };
            let operand = reshaped(&read(input), dims);
            let result = descriptor(DType::I32, &[dims[0], 1, dims[2]]);
            vec![(*output, apply(&Op::Reduce(reduce), &[&operand], &result, Precision::Stored))]
        }
        Body::Conv2dInputGrad { .. }
        | Body::Conv2dFilterGrad { .. }
        | Body::Pool2d { .. }
        | Body::MaxPool2dGrad { .. }
        | Body::SumPool2dGrad { .. } => vec![windowed(memory, body)],
        Body::Gather { dims, input, indices, output } => {
            let (operand, indices) = (reshaped(&read(input), dims), flat(&read(indices)));
            let count = indices.elements().len();
            let result = descriptor(operand.descriptor().dtype, &[dims[0], count, dims[2]]);
            let op = Op::Index(Index::Gather { axis: 1 });
            vec![(*output, apply(&op, &[&operand, &indices], &result, Precision::Stored))]
        }
        Body::Scatter { dims, combine, base, indices, updates, output } => {
            let base = base.as_ref().map(|base| reshaped(&read(base), dims));
            vec![(*output, scatter(dims, *combine, base, &flat(&read(indices)), &read(updates)))]
        }
    }
}

/// What a windowed kernel without an epilogue writes.
fn windowed(memory: &Memory<'_>, body: &Body) -> (ValueId, Value) {
    let layout = body.layout();
    let first = |value: &ValueId| ordered(layout, memory.read(*value));
    let dims = |value: &ValueId| {
        let shape = &memory.program.values[value.index()].descriptor.shape;
        permuted(shape.dims(), axes_first(layout))
    };
    let (op, operands, output) = match body {
        Body::Conv2dInputGrad { conv, gradient, filter, output, .. } => {
            let size = [dims(output)[2], dims(output)[3]];
            let operands = vec![first(gradient), memory.read(*filter)];
            (Convolution::Conv2dInputGrad { conv: *conv, size }, operands, output)
        }
        Body::Conv2dFilterGrad { conv, input, gradient, output, .. } => {
            let filter = memory.program.values[output.index()].descriptor.clone();
            let window = [filter.shape[2], filter.shape[3]];
            let op = Op::Convolution(Convolution::Conv2dFilterGrad { conv: *conv, window });
            let operands = [first(input), first(gradient)];
            return (*output, apply(&op, &[&operands[0], &operands[1]], &filter, Precision::Stored));
        }
        Body::Pool2d { kind, pool, input, output, .. } => {
            (Convolution::Pool2d { kind: *kind, pool: *pool }, vec![first(input)], output)
        }
        Body::MaxPool2dGrad { pool, input, gradient, output, .. } => {
            (Convolution::MaxPool2dGrad(*pool), vec![first(input), first(gradient)], output)
        }
        Body::SumPool2dGrad { pool, gradient, output, .. } => {
            let size = [dims(output)[2], dims(output)[3]];
            (Convolution::SumPool2dGrad { pool: *pool, size }, vec![first(gradient)], output)
        }
        Body::Map { .. }
        | Body::Fold { .. }
        | Body::ArgFold { .. }
        | Body::MatMul { .. }
        | Body::Chain { .. }
        | Body::Conv2d { .. }
        | Body::Gather { .. }
        | Body::Scatter { .. } => panic!("{body:?} has no windows, or an epilogue"),
    };
    let result = descriptor(operands[0].descriptor().dtype, &dims(output));
    let operands: Vec<&Value> = operands.iter().collect();
    let value = apply(&Op::Convolution(op), &operands, &result, Precision::Stored);
    (*output, turned(&value, axes_last(layout)))
}

/// Which axes stand where when channels come first.
fn axes_first(layout: Layout) -> [usize; 4] {
    match layout {
        Layout::ChannelsFirst => [0, 1, 2, 3],
        Layout::ChannelsLast => [0, 3, 1, 2],
    }
}

/// And back.
fn axes_last(layout: Layout) -> [usize; 4] {
    match layout {
        Layout::ChannelsFirst => [0, 1, 2, 3],
        Layout::ChannelsLast => [0, 2, 3, 1],
    }
}

fn permuted(dims: &[usize], axes: [usize; 4]) -> [usize; 4] {
    axes.map(|axis| dims[axis])
}

/// A value with its channels first.
fn ordered(layout: Layout, value: Value) -> Value {
    turned(&value, axes_first(layout))
}

fn turned(value: &Value, axes: [usize; 4]) -> Value {
    let result = descriptor(value.descriptor().dtype, &permuted(value.descriptor().shape.dims(), axes));
    apply(&Op::Movement(Movement::Transpose(axes.to_vec())), &[value], &result, Precision::Stored)
}

/// `updates` combined into `base`, or into zeros, at `indices` along the middle of `dims`.
fn scatter(dims: &[usize; 3], combine: Combine, base: Option<Value>, indices: &Value, updates: &Value) -> Value {
    let updates = reshaped(updates, &[dims[0], indices.elements().len(), dims[2]]);
    let result = descriptor(updates.descriptor().dtype, dims);
    match base {
        Some(base) => {
            let op = Op::Index(Index::Scatter { axis: 1, combine });
            apply(&op, &[&base, indices, &updates], &result, Precision::Stored)
        }
        None => {
            let op = Op::Index(Index::ScatterAdd { axis: 1, size: dims[1] });
            apply(&op, &[indices, &updates], &result, Precision::Stored)
        }
    }
}

/// Whether every load of `value` is of the element at the map's own position.
pub(super) fn reads_in_place(body: &Body, value: ValueId) -> bool {
    let Body::Map { dims, expr, .. } = body else { return false };
    let own: Vec<i64> = (0..dims.iter().product::<usize>() as i64).collect();
    expr.instructions.iter().all(|(instruction, _)| match instruction {
        Instruction::Load { value: loaded, view, .. } => {
            *loaded != value || positions(view, dims).iter().zip(&own).all(|(at, own)| *at == Some(*own))
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

fn product(memory: &Memory<'_>, body: &Body) -> Value {
    let Body::MatMul { sizes, a, b, transpose_a, transpose_b, batch_stride_a, batch_stride_b, .. } = body else {
        panic!("{body:?} is no product");
    };
    let a = Factor { value: *a, transposed: *transpose_a, batch_stride: *batch_stride_a };
    let b = Factor { value: *b, transposed: *transpose_b, batch_stride: *batch_stride_b };
    multiplied(memory, *sizes, &matrices(memory, a, [sizes[0], sizes[1], sizes[3]]), b)
}

/// The matrices of a factor, as they are multiplied: `[batch, rows, columns]`.
fn matrices(memory: &Memory<'_>, factor: Factor, [batch, rows, columns]: [usize; 3]) -> Value {
    let size = rows * columns;
    let at = (0..batch * size).map(|at| {
        let (matrix, at) = (at / size, at % size);
        let (row, column) = (at / columns, at % columns);
        let at = if factor.transposed { column * rows + row } else { at };
        Some((matrix * factor.batch_stride + at) as i64)
    });
    reshaped(&picked(&memory.read(factor.value), &at.collect::<Vec<_>>(), None), &[batch, rows, columns])
}

/// `a [batch, m, k]` by the factor `b`.
fn multiplied(memory: &Memory<'_>, [batch, m, n, k]: [usize; 4], a: &Value, b: Factor) -> Value {
    let b = matrices(memory, b, [batch, k, n]);
    let op = Op::Contract(Contract::MatMul { transpose_a: false, transpose_b: false });
    apply(&op, &[a, &b], &descriptor(a.descriptor().dtype, &[batch, m, n]), Precision::Stored)
}

fn epilogued(memory: &Memory<'_>, dims: &[usize], value: Value, epilogue: &Epilogue) -> Vec<(ValueId, Value)> {
    stored(memory, &epilogue.expr, dims, &[flat(&value)], &epilogue.stores)
}

fn stored(
    memory: &Memory<'_>,
    expr: &Expr,
    dims: &[usize],
    accumulated: &[Value],
    stores: &[Store],
) -> Vec<(ValueId, Value)> {
    let registers = registers(memory, expr, dims, accumulated);
    stores.iter().map(|store| (store.value, registers[store.register.0 as usize].clone())).collect()
}

/// Each instruction's results at all points of `dims`, in order.
fn registers(memory: &Memory<'_>, expr: &Expr, dims: &[usize], accumulated: &[Value]) -> Vec<Value> {
    let count: usize = dims.iter().product();
    let mut registers: Vec<Value> = Vec::new();
    for (at, (instruction, dtype)) in expr.instructions.iter().enumerate() {
        assert!(!expr.instructions[..at].contains(&(instruction.clone(), *dtype)) || is_number(instruction));
        let result = descriptor(*dtype, &[count]);
        let register = |register: &Register| &registers[register.0 as usize];
        let on = |op: Op, operands: &[&Value]| apply(&op, operands, &result, Precision::Stored);
        let value = match instruction {
            Instruction::Load { value, view, fill } => {
                assert_eq!(fill.is_some(), !view.bounds.is_empty(), "what has bounds has a fill");
                picked(&memory.read(*value), &positions(view, dims), *fill)
            }
            Instruction::Immediate(scalar) => Value::filled(result, *scalar),
            Instruction::Index(view) => {
                let numbers: Vec<f64> = inside(view, dims).into_iter().map(|index| index as f64).collect();
                Value::from_numbers(*dtype, result.shape, &numbers).expect("one index a point")
            }
            Instruction::Random { key, stream, distribution, view } => {
                random(&memory.read(*key), *stream, *distribution, &inside(view, dims))
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

/// Numbers may be equal and still differ: 0 and -0.
fn is_number(instruction: &Instruction) -> bool {
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

/// The view's element at each point in row-major order; none outside its bounds.
fn positions(view: &View, dims: &[usize]) -> Vec<Option<i64>> {
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

fn inside(view: &View, dims: &[usize]) -> Vec<i64> {
    assert!(view.bounds.is_empty(), "an index has no bounds");
    positions(view, dims).into_iter().flatten().collect()
}

fn random(key: &Value, stream: u32, distribution: Distribution, at: &[i64]) -> Value {
    let dtype = match distribution {
        Distribution::Bits => DType::U32,
        Distribution::Uniform => DType::F32,
    };
    let length = at.iter().max().map_or(0, |last| *last as usize + 1);
    let op = Op::Source(Source::Random { stream, distribution });
    let all = apply(&op, &[&flat(key)], &descriptor(dtype, &[length]), Precision::Stored);
    picked(&all, &at.iter().map(|at| Some(*at)).collect::<Vec<_>>(), None)
}

/// The elements at these positions as a tensor of one dimension.
fn picked(value: &Value, at: &[Option<i64>], fill: Option<Scalar>) -> Value {
    let result = descriptor(value.descriptor().dtype, &[at.len()]);
    let place = |at: i64| usize::try_from(at).expect("no element lies before the first");
    let fill = fill.unwrap_or(Scalar::Int(0));
    let elements = match value.elements() {
        Elements::Float(values) => {
            Elements::Float(at.iter().map(|at| at.map_or(fill.as_f64(), |at| values[place(at)])).collect())
        }
        Elements::Int(values) => {
            let fill = match fill {
                Scalar::Int(value) => value,
                Scalar::Float(value) => value as i128,
            };
            Elements::Int(at.iter().map(|at| at.map_or(fill, |at| values[place(at)])).collect())
        }
    };
    Value::new(result, elements).expect("one element a position")
}

fn flat(value: &Value) -> Value {
    reshaped(value, &[value.elements().len()])
}

fn reshaped(value: &Value, dims: &[usize]) -> Value {
    let elements = value.elements().clone();
    Value::new(descriptor(value.descriptor().dtype, dims), elements).expect("a reshape keeps the elements")
}

fn descriptor(dtype: DType, dims: &[usize]) -> Descriptor {
    Descriptor::new(dtype, Shape::new(dims).expect("iteration spaces are within a tensor's limits"))
}
