//! WGSL for straight-line expressions: one `let` statement per instruction.

use saggar_tensor::DType;
use saggar_tensor::op::{BinaryOp, RandomDistribution, Scalar};

use super::literal::scalar_literal;
use super::wide_integer;
use super::{binary, unary};
use crate::wgsl::writer::ShaderWriter;
use saggar_compile::program::expr::{AffineView, Instruction, Register, ScalarExpr};
use saggar_compile::program::{Epilogue, ResultStore};

/// The point of the iteration space at which an expression is evaluated.
pub(super) struct EvaluationPoint<'a> {
    /// Sizes of the iteration space.
    pub(super) dims: &'a [usize],
    /// `u32` expressions, one for each dimension.
    pub(super) coordinates: &'a [String],
    /// The name of a variable with the row-major index over `dims`, if there is one.
    pub(super) linear: Option<&'a str>,
    /// Names for `Instruction::Accumulated`, or for each `Instruction::Product` of a fused matmul's score expression.
    pub(super) accumulated: &'a [&'a str],
    /// Prefix of register names: `{prefix}0`, `{prefix}1`, ...
    pub(super) prefix: &'a str,
}

/// Returns which coordinates `expr` needs. `linear` says whether a variable holds the linear index.
pub(super) fn needed_coordinates(expr: &ScalarExpr, dims: &[usize], linear: bool) -> Vec<bool> {
    let mut wanted = vec![false; dims.len()];
    for (instruction, _) in &expr.instructions {
        let view = match instruction {
            Instruction::Load { view, .. } | Instruction::Index(view) | Instruction::Random { view, .. } => view,
            Instruction::Immediate(_)
            | Instruction::Accumulated
            | Instruction::Product(_)
            | Instruction::Unary(..)
            | Instruction::Binary(..)
            | Instruction::Select(..) => continue,
        };
        for bound in &view.bounds {
            wanted[bound.dim] = true;
        }
        if !(linear && is_linear(view, dims)) {
            for (axis, _) in view.strides.iter().enumerate().filter(|(_, stride)| **stride != 0) {
                wanted[axis] = true;
            }
        }
    }
    wanted
}

/// Writes `expr`'s instructions.
pub(super) fn write_expr(w: &mut ShaderWriter<'_>, expr: &ScalarExpr, point: &EvaluationPoint<'_>) {
    for (number, (instruction, dtype)) in expr.instructions.iter().enumerate() {
        let name = format!("{}{number}", point.prefix);
        let scalar = w.scalar_type(*dtype);
        let text = match instruction {
            Instruction::Load { value, view, fill } => {
                let element = w.element(*value, &index_expression(view, point));
                match bounds_condition(view, point) {
                    None => element,
                    Some(condition) => {
                        let fill = scalar_literal(w.wide_integers(), fill.unwrap_or(Scalar::Int(0)), *dtype);
                        w.line(format!("var {name} = {scalar}({fill});"));
                        w.line(format!("if ({condition}) {{ {name} = {element}; }}"));
                        continue;
                    }
                }
            }
            Instruction::Immediate(value) => scalar_literal(w.wide_integers(), *value, *dtype),
            Instruction::Index(view) => {
                let index = format!("bitcast<i32>({})", index_expression(view, point));
                unary::cast_expression(w.wide_integers(), DType::I32, *dtype, &index)
            }
            Instruction::Random { key, stream, distribution, view } => {
                let mut key_word = |word: &str| w.element(*key, word);
                let (seed_low, seed_high) = (key_word("0u"), key_word("1u"));
                let (step_low, step_high) = (key_word("2u"), key_word("3u"));
                let element = index_expression(view, point);
                let bits = format!("philox({element}, {step_low}, {step_high}, {stream}u, {seed_low}, {seed_high})");
                match distribution {
                    RandomDistribution::Bits => bits,
                    RandomDistribution::Uniform => format!("f32({bits} >> 8u) * 5.9604644775390625e-8"),
                }
            }
            // Sums of half-precision numbers are not yet rounded.
            Instruction::Accumulated => unary::narrow_to_dtype(*dtype, accumulated_name(point, 0)),
            Instruction::Product(number) => unary::narrow_to_dtype(*dtype, accumulated_name(point, *number as usize)),
            Instruction::Unary(op, a) => {
                unary::unary_expression(w.wide_integers(), *op, dtype_of(expr, *a), &register_name(point, *a))
            }
            Instruction::Binary(op, a, b) => {
                let dtype = dtype_of(expr, *a);
                if *op == BinaryOp::Div && w.wide_integers().is_emulated(dtype) {
                    w.count_iterations(wide_integer::DIVISION_ITERATIONS);
                }
                binary::binary_expression(
                    w.wide_integers(),
                    *op,
                    dtype,
                    &register_name(point, *a),
                    &register_name(point, *b),
                )
            }
            Instruction::Select(condition, yes, no) if dtype_of(expr, *yes).is_float() => format!(
                "choose({}, {}, {})",
                register_name(point, *condition),
                register_name(point, *yes),
                register_name(point, *no)
            ),
            Instruction::Select(condition, yes, no) => format!(
                "select({}, {}, {} != 0u)",
                register_name(point, *no),
                register_name(point, *yes),
                register_name(point, *condition)
            ),
        };
        w.line(format!("let {name}: {scalar} = {text};"));
    }
}

fn accumulated_name(point: &EvaluationPoint<'_>, number: usize) -> String {
    point.accumulated.get(number).copied().unwrap_or("0.0").to_owned()
}

/// Writes the assignments of `stores` at row-major index `linear`.
pub(super) fn write_stores(w: &mut ShaderWriter<'_>, stores: &[ResultStore], linear: &str, prefix: &str) {
    for store in stores {
        w.assign(store.value, linear, &format!("{prefix}{}", store.register.0));
    }
}

/// Writes the epilogue for the element `accumulated` at `linear`.
pub(super) fn write_epilogue(
    w: &mut ShaderWriter<'_>,
    epilogue: &Epilogue,
    dims: &[usize],
    coordinates: &[String],
    linear: &str,
    accumulated: &str,
) {
    let point = EvaluationPoint { dims, coordinates, linear: Some(linear), accumulated: &[accumulated], prefix: "e" };
    write_expr(w, &epilogue.expr, &point);
    write_stores(w, &epilogue.stores, linear, "e")
}

/// Writes a function `finish(c0, ..., linear, accumulated)` that applies the epilogue over `dims`.
pub(super) fn finish_function(w: &mut ShaderWriter<'_>, result: &Epilogue, dims: &[usize]) {
    let names: Vec<String> = (0..dims.len()).map(|axis| format!("c{axis}")).collect();
    let parameters: String = names.iter().map(|name| format!("{name}: u32, ")).collect();
    w.function(&format!("finish({parameters}linear: u32, accumulated: f32)"), |w| {
        write_epilogue(w, result, dims, &names, "linear", "accumulated")
    })
}

fn dtype_of(expr: &ScalarExpr, register: Register) -> DType {
    expr.instructions[register.0 as usize].1
}

fn register_name(point: &EvaluationPoint<'_>, register: Register) -> String {
    format!("{}{}", point.prefix, register.0)
}

/// Returns whether the view's index is the row-major index over `dims`.
fn is_linear(view: &AffineView, dims: &[usize]) -> bool {
    let mut stride = 1;
    for axis in (0..dims.len()).rev() {
        if dims[axis] != 1 && view.strides[axis] != stride {
            return false;
        }
        stride *= dims[axis] as i64;
    }
    view.offset == 0
}

/// Returns the element index as a `u32` expression. Arithmetic wraps, so negative offsets and strides work unsigned.
fn index_expression(view: &AffineView, point: &EvaluationPoint<'_>) -> String {
    if let Some(linear) = point.linear
        && is_linear(view, point.dims)
    {
        return linear.to_owned();
    }
    let mut terms = Vec::new();
    if view.offset != 0 {
        terms.push(format!("{}u", view.offset as u32));
    }
    for (axis, &stride) in view.strides.iter().enumerate() {
        if stride == 0 || point.dims[axis] == 1 {
            continue;
        }
        let coordinate = &point.coordinates[axis];
        terms.push(if stride == 1 { coordinate.clone() } else { format!("{coordinate} * {}u", stride as u32) });
    }
    if terms.is_empty() { "0u".to_owned() } else { terms.join(" + ") }
}

/// Returns the condition that the view is inside its bounds, or `None` if it always is.
fn bounds_condition(view: &AffineView, point: &EvaluationPoint<'_>) -> Option<String> {
    let mut conditions = Vec::new();
    for bound in &view.bounds {
        let size = point.dims[bound.dim] as i64;
        let coordinate = &point.coordinates[bound.dim];
        if bound.low >= bound.high || bound.low >= size || bound.high <= 0 {
            return Some("false".to_owned());
        }
        if bound.low > 0 {
            conditions.push(format!("{coordinate} >= {}u", bound.low));
        }
        if bound.high < size {
            conditions.push(format!("{coordinate} < {}u", bound.high));
        }
    }
    if conditions.is_empty() { None } else { Some(conditions.join(" && ")) }
}
