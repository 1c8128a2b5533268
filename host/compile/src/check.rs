//! Checks a complete program for the invariants that devices rely on. Shaders run without bounds checks, so a compiler
//! bug must not reach them.

mod memory;
mod sizes;

use saggar_tensor::InterruptCheck;

use crate::error::CompileError;
use crate::program::expr::{AffineView, Instruction, Register, ScalarExpr};
use crate::program::{KernelBody, Program};
use crate::target::CompileTarget;
use memory::SlabCheck;

/// Checks every invariant of [`crate::program`] that can be checked without running the program. Values are in range
/// and within the target's limits; elements are within their values; every value is written before it is read, and not
/// overwritten in between; all outputs are written.
///
/// # Errors
/// Returns `Internal`, naming the first kernel that violates an invariant, and `Interrupted`.
pub fn check(program: &Program, target: &CompileTarget, interrupt: &InterruptCheck<'_>) -> Result<(), CompileError> {
    let internal = |place: String, what| CompileError::Internal { pass: "check", place, what };
    let mut memory = SlabCheck::new(program, target).map_err(|what| internal("buffer assignment".to_owned(), what))?;
    for (at, kernel) in program.kernels.iter().enumerate() {
        interrupt.check()?;
        let place = || format!("kernel {at} ({})", kernel.label);
        check_body(program, target, &kernel.body).map_err(|what| internal(place(), what))?;
        memory.check_kernel(&kernel.body).map_err(|what| internal(place(), what))?;
    }
    memory.check_outputs_written().map_err(|what| internal("the last kernel".to_owned(), what))
}

/// `Err` with a description of the violated invariant.
type CheckResult = Result<(), &'static str>;

fn ensure(holds: bool, what: &'static str) -> CheckResult {
    if holds { Ok(()) } else { Err(what) }
}

fn check_body(program: &Program, target: &CompileTarget, body: &KernelBody) -> CheckResult {
    let values = program.values.len();
    let touched = body.read_values().into_iter().chain(body.written_values());
    ensure(touched.into_iter().all(|value| value.index() < values), "every value is in the program's table")?;
    ensure(body.value_count() <= body.values_max(target), "a kernel touches no more values than the target allows")?;
    sizes::check_sizes(program, body)?;
    match body {
        KernelBody::Map { dims, expr: map, .. } => check_expr(program, map, dims, 0),
        KernelBody::Fold { outer, inner, prologue, epilogue, .. } => {
            let dims: Vec<usize> = outer.iter().chain(inner).copied().collect();
            check_expr(program, prologue, &dims, 0)?;
            check_expr(program, &epilogue.expr, outer, 0)
        }
        KernelBody::MatMul { sizes: [batch, m, n, _], epilogue, .. } => {
            check_expr(program, &epilogue.expr, &[*batch, *m, *n], 0)
        }
        KernelBody::Conv2d { result, epilogue, .. } => check_expr(program, &epilogue.expr, result, 0),
        KernelBody::Chain { dims, products, link, results, epilogue, .. } => {
            check_expr(program, link, dims, products.len())?;
            check_expr(program, &epilogue.expr, results, 0)
        }
        KernelBody::ArgFold { .. }
        | KernelBody::Conv2dInputGrad { .. }
        | KernelBody::Conv2dFilterGrad { .. }
        | KernelBody::Pool2d { .. }
        | KernelBody::MaxPool2dGrad { .. }
        | KernelBody::SumPool2dGrad { .. }
        | KernelBody::Gather { .. }
        | KernelBody::Scatter { .. } => Ok(()),
    }
}

/// Checks an expression over `dims`.
fn check_expr(program: &Program, expr: &ScalarExpr, dims: &[usize], products: usize) -> CheckResult {
    for (at, (instruction, _)) in expr.instructions.iter().enumerate() {
        let earlier = |registers: &[Register]| {
            let are = registers.iter().all(|register| (register.0 as usize) < at);
            ensure(are, "an instruction reads only earlier instructions")
        };
        match instruction {
            Instruction::Load { value, view, fill } => {
                let elements = program.values[value.index()].descriptor.shape.elements();
                ensure(fill.is_some() != view.bounds.is_empty(), "a load has a fill exactly if its view has bounds")?;
                check_view_bounds(view, dims, Some(elements))?;
            }
            Instruction::Random { key, view, .. } => {
                let elements = program.values[key.index()].descriptor.shape.elements();
                ensure(elements == 4, "a key has four elements")?;
                check_view_bounds(view, dims, Some(usize::MAX))?;
            }
            Instruction::Index(view) => check_view_bounds(view, dims, None)?,
            Instruction::Product(number) => ensure((*number as usize) < products, "a product's number is in range")?,
            Instruction::Unary(_, a) => earlier(&[*a])?,
            Instruction::Binary(_, a, b) => earlier(&[*a, *b])?,
            Instruction::Select(condition, a, b) => earlier(&[*condition, *a, *b])?,
            Instruction::Immediate(_) | Instruction::Accumulated => {}
        }
    }
    Ok(())
}

/// Checks that a view over `dims` stays within `elements` elements, if that is `Some`.
fn check_view_bounds(view: &AffineView, dims: &[usize], elements: Option<usize>) -> CheckResult {
    let fits = view.strides.len() == dims.len() && view.bounds.iter().all(|bound| bound.dim < dims.len());
    ensure(fits, "a view has the dimensions of its space")?;
    let Some(elements) = elements else { return Ok(()) };
    let (mut least, mut greatest) = (i128::from(view.offset), i128::from(view.offset));
    for (dim, (&size, &stride)) in dims.iter().zip(&view.strides).enumerate() {
        let bounds = || view.bounds.iter().filter(|bound| bound.dim == dim);
        let low = bounds().map(|bound| bound.low).fold(0, i64::max);
        let high = bounds().map(|bound| bound.high).fold(size as i64, i64::min);
        if low >= high {
            return Ok(());
        }
        let [first, last] = [low, high - 1].map(|at| i128::from(stride) * i128::from(at));
        least += first.min(last);
        greatest += first.max(last);
    }
    ensure(least >= 0 && greatest < elements as i128, "a view stays within its value")
}

#[cfg(test)]
mod tests;
