//! Sums of which one element at most is not zero: what an index chooses of each row. It is read alone, where a fold would
//! read the row. A classifier's loss has such a sum over its classes.

use saggar_compile::expr::{Expr, Instruction, Register, View};
use saggar_compile::program::ValueId;
use saggar_tensor::DType;
use saggar_tensor::op::{Binary, ReduceKind, Scalar};

use crate::cpu::element::Element;
use crate::cpu::evaluate::{Frame, Input};
use crate::cpu::lanes::Source;
use crate::cpu::registers::{Scratch, with_scratch};
use crate::cpu::routine::{Binding, Request, Routine};
use crate::cpu::threads::Threads;

/// Rows of one task.
const TASK_ROWS: usize = 256;

/// The registers of a prologue `place == index ? value : 0` whose places count what is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    index: Register,
    value: Register,
}

impl Choice {
    /// What a sum over the last of the dimensions chooses, if it does.
    pub(super) fn of(kind: ReduceKind, outer: &[usize], inner: &[usize], prologue: &Expr) -> Option<Choice> {
        let ([_], ReduceKind::Sum) = (inner, kind) else { return None };
        let at = |register: Register| &prologue.instructions[register.0 as usize];
        let Instruction::Select(condition, value, rest) = prologue.instructions.last()?.0 else { return None };
        let Instruction::Immediate(rest) = at(rest).0 else { return None };
        let Instruction::Binary(Binary::Equal, a, b) = at(condition).0 else { return None };
        let is_zero = match rest {
            Scalar::Float(rest) => rest == 0.0,
            Scalar::Int(rest) => rest == 0,
        };
        let is_place = |register: Register| {
            let (instruction, dtype) = at(register);
            let Instruction::Index(view) = instruction else { return false };
            *dtype == DType::I32 && is_along(view, outer.len())
        };
        let index = if is_place(a) { b } else { a };
        let counts = is_place(a) || is_place(b);
        (is_zero && counts && !along(prologue, outer.len())[index.0 as usize]).then_some(Choice { index, value })
    }
}

/// Whether the view counts one dimension, and no other.
fn is_along(view: &View, dim: usize) -> bool {
    let mut strides = view.strides.iter().enumerate();
    view.offset == 0 && view.bounds.is_empty() && strides.all(|(at, &stride)| stride == i64::from(at == dim))
}

/// For each register, whether what it holds may be another one along the dimension.
fn along(expr: &Expr, dim: usize) -> Vec<bool> {
    let moves = |view: &View| view.strides[dim] != 0 || view.bounds.iter().any(|bound| bound.dim == dim);
    let mut along: Vec<bool> = Vec::with_capacity(expr.instructions.len());
    for (instruction, _) in &expr.instructions {
        let any = |registers: &[Register]| registers.iter().any(|register| along[register.0 as usize]);
        let this = match instruction {
            Instruction::Load { view, .. } | Instruction::Index(view) | Instruction::Random { view, .. } => moves(view),
            Instruction::Immediate(_) => false,
            Instruction::Accumulated | Instruction::Product(_) => true,
            Instruction::Unary(_, x) => any(&[*x]),
            Instruction::Binary(_, a, b) => any(&[*a, *b]),
            Instruction::Select(c, a, b) => any(&[*c, *a, *b]),
        };
        along.push(this);
    }
    along
}

/// Such a sum, ready to run.
#[derive(Debug)]
pub(super) struct Chosen {
    /// Over rows alone.
    index: Routine,
    /// Over all elements.
    value: Routine,
    /// Elements of a row.
    folded: usize,
}

impl Chosen {
    /// Prepares it; none where there are too many dimensions.
    pub(super) fn new(
        choice: Choice,
        prologue: &Expr,
        [outer, inner]: [&[usize]; 2],
        bind: &mut impl FnMut(ValueId) -> (usize, Binding),
    ) -> Option<Chosen> {
        let mut routine = |register, inner: &[usize]| {
            let dims = [outer, inner].concat();
            let results = &[register];
            Routine::new(&Request { expr: prologue, dims: &dims, results, accumulated: None, by_rows: false }, bind)
        };
        Some(Chosen { index: routine(choice.index, &[1])?, value: routine(choice.value, inner)?, folded: inner[0] })
    }

    /// Writes a sum for each row.
    pub(super) fn run<T: Element>(&self, threads: &Threads, inputs: &[Input<'_>], out: &mut [T]) {
        let frame = Frame { inputs, own: &[], accumulated: &[], first: 0 };
        let operations = out.len().saturating_mul(self.index.operations() + self.value.operations());
        let tasks: Vec<_> = out.chunks_mut(TASK_ROWS).enumerate().collect();
        threads.each(operations, tasks, |(task, out)| {
            with_scratch(|scratch| {
                for (row, out) in (task * TASK_ROWS..).zip(out) {
                    // A sum begins with zero, so a chosen -0 becomes +0.
                    *out = T::identity(ReduceKind::Sum);
                    let place = one::<i32>(&self.index, scratch, frame, row);
                    let place = usize::try_from(place).ok().filter(|&place| place < self.folded);
                    let Some(place) = place else { continue };
                    *out = out.add(one::<T>(&self.value, scratch, frame, row * self.folded + place));
                }
            });
        });
    }
}

/// The element of a routine at an iteration index.
fn one<T: Element>(routine: &Routine, scratch: &mut Scratch, frame: Frame<'_>, at: usize) -> T {
    // Both routines of a choice keep what is the same for all elements in the same memory.
    routine.begin(scratch, frame);
    routine.block(scratch, frame, at, 1, None);
    match routine.result::<T>(0, scratch, frame, at, 1) {
        Source::Slice(values) => values[0],
        Source::Scalar(value) => value,
    }
}
