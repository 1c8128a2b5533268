//! One-hot sums: sums in which an index selects at most one nonzero element of each row. Only that element is read
//! instead of the whole row. A classifier's loss has such a sum over its classes.

use saggar_compile::program::ValueId;
use saggar_compile::program::expr::{AffineView, Instruction, Register, ScalarExpr};
use saggar_tensor::DType;
use saggar_tensor::op::{BinaryOp, ReduceKind, Scalar};

use crate::bytecode::{BlockBytecode, BytecodeRequest, OperandBinding};
use crate::element::Element;
use crate::elementwise_loops::BlockSource;
use crate::evaluator::{EvaluationFrame, OperandMemory};
use crate::thread_scratch::{ThreadScratch, with_scratch};
use crate::threads::CpuThreads;

/// Rows per task.
const TASK_ROWS: usize = 256;

/// The registers of a prologue `place == index ? value : 0`, with `place` counting along the reduced dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OneHotPattern {
    index: Register,
    value: Register,
}

impl OneHotPattern {
    /// Recognizes a one-hot sum over the last dimension. Returns `None` if the sum is of another form.
    pub(super) fn recognize(
        kind: ReduceKind,
        outer: &[usize],
        inner: &[usize],
        prologue: &ScalarExpr,
    ) -> Option<OneHotPattern> {
        let ([_], ReduceKind::Sum) = (inner, kind) else { return None };
        let at = |register: Register| &prologue.instructions[register.0 as usize];
        let Instruction::Select(condition, value, rest) = prologue.instructions.last()?.0 else { return None };
        let Instruction::Immediate(rest) = at(rest).0 else { return None };
        let Instruction::Binary(BinaryOp::Equal, a, b) = at(condition).0 else { return None };
        let is_zero = match rest {
            Scalar::Float(rest) => rest == 0.0,
            Scalar::Int(rest) => rest == 0,
        };
        let is_place = |register: Register| {
            let (instruction, dtype) = at(register);
            let Instruction::Index(view) = instruction else { return false };
            *dtype == DType::I32 && counts_dim(view, outer.len())
        };
        let index = if is_place(a) { b } else { a };
        let counts = is_place(a) || is_place(b);
        (is_zero && counts && !varies_along(prologue, outer.len())[index.0 as usize])
            .then_some(OneHotPattern { index, value })
    }
}

/// Returns whether the view is the coordinate of this one dimension.
fn counts_dim(view: &AffineView, dim: usize) -> bool {
    let mut strides = view.strides.iter().enumerate();
    view.offset == 0 && view.bounds.is_empty() && strides.all(|(at, &stride)| stride == i64::from(at == dim))
}

/// Returns for each register whether its value can vary along the dimension.
fn varies_along(expr: &ScalarExpr, dim: usize) -> Vec<bool> {
    let moves = |view: &AffineView| view.strides[dim] != 0 || view.bounds.iter().any(|bound| bound.dim == dim);
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

/// A one-hot sum, ready to run.
#[derive(Debug)]
pub(super) struct OneHotSum {
    /// Bytecode of the index, over rows.
    index: BlockBytecode,
    /// Bytecode of the value, over all elements.
    value: BlockBytecode,
    /// Elements of a row.
    folded: usize,
}

impl OneHotSum {
    /// Prepares the sum. Returns `None` if there are too many dimensions.
    pub(super) fn new(
        choice: OneHotPattern,
        prologue: &ScalarExpr,
        [outer, inner]: [&[usize]; 2],
        bind: &mut impl FnMut(ValueId) -> (usize, OperandBinding),
    ) -> Option<OneHotSum> {
        let mut routine = |register, inner: &[usize]| {
            let dims = [outer, inner].concat();
            let results = &[register];
            BlockBytecode::new(
                &BytecodeRequest { expr: prologue, dims: &dims, results, accumulated: None, by_rows: false },
                bind,
            )
        };
        Some(OneHotSum { index: routine(choice.index, &[1])?, value: routine(choice.value, inner)?, folded: inner[0] })
    }

    /// Writes the sum of each row.
    pub(super) fn run<T: Element>(&self, threads: &CpuThreads, inputs: &[OperandMemory<'_>], out: &mut [T]) {
        let frame = EvaluationFrame { inputs, own: &[], accumulated: &[], first: 0 };
        let operations = out.len().saturating_mul(self.index.operations() + self.value.operations());
        let tasks: Vec<_> = out.chunks_mut(TASK_ROWS).enumerate().collect();
        threads.for_each(operations, tasks, |(task, out)| {
            with_scratch(|scratch| {
                for (row, out) in (task * TASK_ROWS..).zip(out) {
                    // A sum begins with zero, so a selected -0 becomes +0.
                    *out = T::identity(ReduceKind::Sum);
                    let place = evaluate_at::<i32>(&self.index, scratch, frame, row);
                    let place = usize::try_from(place).ok().filter(|&place| place < self.folded);
                    let Some(place) = place else { continue };
                    *out = out.add(evaluate_at::<T>(&self.value, scratch, frame, row * self.folded + place));
                }
            });
        });
    }
}

/// Returns the result of bytecode at an iteration index.
fn evaluate_at<T: Element>(
    routine: &BlockBytecode,
    scratch: &mut ThreadScratch,
    frame: EvaluationFrame<'_>,
    at: usize,
) -> T {
    // Both bytecodes keep their uniform values in the same scratch slots, so they are computed each time.
    routine.run_uniform_steps(scratch, frame);
    routine.run_block(scratch, frame, at, 1, None);
    match routine.result::<T>(0, scratch, frame, at, 1) {
        BlockSource::Slice(values) => values[0],
        BlockSource::Scalar(value) => value,
    }
}
