//! The builder that operator rules are written with, with constant folding.
//!
//! Each method accepts constants and operands of the graph. If all that it needs is constant and small, it computes the
//! result itself. Otherwise it turns the constants into operands and calls the backend. So a rule is written once for
//! both cases.

use crate::backend::{
    BackendResult, ElementwiseBinary, ElementwiseUnary, GraphBackend, PlaneWindows, PoolingMode, ReductionOperator,
    ScatterMode,
};
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::fold;
use crate::value::{
    BackendOperand, ConstantElements, ConstantTensor, FOLD_ELEMENTS_MAX, GraphValue, broadcast_shapes, element_count,
};

/// The total number of elements that are constant-folded while one graph is built. Beyond it, the graph computes.
const FOLD_BUDGET: usize = 1 << 23;

/// A graph being built.
pub struct FoldingGraph<'a> {
    backend: &'a mut dyn GraphBackend,
    budget: usize,
}

/// The result of a method.
pub type ValueResult = Result<GraphValue>;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $op:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// Returns `Host` if the host refuses the call.
        pub fn $name(&mut self, x: &GraphValue) -> ValueResult {
            self.unary(ElementwiseUnary::$op, x)
        }
    )* };
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $op:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// Returns `Host` if the host refuses the call; `Invalid` if the types differ or the shapes do not broadcast.
        pub fn $name(&mut self, a: &GraphValue, b: &GraphValue) -> ValueResult {
            self.binary(ElementwiseBinary::$op, a, b)
        }
    )* };
}

impl<'a> FoldingGraph<'a> {
    /// Creates an empty graph.
    pub fn new(backend: &'a mut dyn GraphBackend) -> Self {
        Self { backend, budget: FOLD_BUDGET }
    }

    /// Reserves part of the fold budget for a tensor of `count` elements. Returns whether it fits.
    fn reserve_fold_budget(&mut self, count: usize) -> bool {
        let affordable = count <= FOLD_ELEMENTS_MAX && count <= self.budget;
        if affordable {
            self.budget -= count;
        }
        affordable
    }

    /// Returns the value as an operand of the graph.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Unsupported` if the host lacks the type.
    pub fn operand(&mut self, value: &GraphValue) -> Result<BackendOperand> {
        let constant = match value {
            GraphValue::Operand(operand) => return Ok(operand.clone()),
            GraphValue::Constant(constant) => constant,
        };
        let data_type = constant.elem.data_type()?;
        let uniform = match constant.data_unmarked() {
            ConstantElements::Float(values) => {
                // Compared by bits: `==` does not distinguish the signs of zero, and NaN equals nothing.
                values.first().filter(|first| values.iter().all(|v| v.to_bits() == first.to_bits())).copied()
            }
            ConstantElements::Int(values) => values
                .first()
                .filter(|first| values.iter().all(|v| v == *first) && first.unsigned_abs() < 1 << 53)
                .filter(|&&first| first >= 0 || !constant.elem.is_unsigned())
                .map(|&first| first as f64),
        };
        let result = match uniform {
            // The host's fill takes a number, so zeros with a sign and NaN are stored element by element.
            Some(number) if !number.is_nan() && (number != 0.0 || number.is_sign_positive()) => {
                self.backend.fill(data_type, &constant.shape, number)
            }
            _ => self.backend.constant(data_type, &constant.shape, &constant.to_bytes()),
        }?;
        Ok(BackendOperand { elem: constant.elem, ..result })
    }

    fn wrap_operand(&mut self, elem: ElementType, result: BackendResult) -> ValueResult {
        result.map(|operand| GraphValue::Operand(BackendOperand { elem, ..operand }))
    }

    /// Adds an input to the graph.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Unsupported` if the host lacks the type.
    pub fn input(&mut self, name: &str, elem: ElementType, shape: &[usize]) -> ValueResult {
        let result = self.backend.input(name, elem.data_type()?, shape);
        self.wrap_operand(elem, result)
    }

    /// Adds a variable to the graph.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Unsupported` if the host lacks the type.
    pub fn variable(&mut self, name: &str, elem: ElementType, shape: &[usize]) -> ValueResult {
        let result = self.backend.variable(name, elem.data_type()?, shape);
        self.wrap_operand(elem, result)
    }

    /// Returns a tensor filled with one number.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Invalid` if the result has too many elements.
    pub fn fill(&mut self, elem: ElementType, shape: &[usize], value: f64) -> ValueResult {
        if self.reserve_fold_budget(element_count(shape)?) {
            return Ok(ConstantTensor::filled(elem, shape.to_vec(), value).into());
        }
        let result = self.backend.fill(elem.data_type()?, shape, value);
        self.wrap_operand(elem, result)
    }

    /// Returns 0, 1, 2, ... along `axis`, which must exist.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Invalid` if the result has too many elements.
    pub fn iota(&mut self, elem: ElementType, shape: &[usize], axis: usize) -> ValueResult {
        if self.reserve_fold_budget(element_count(shape)?) {
            let numbers = fold::map_positions(shape, |at| at[axis] as i64);
            let counted = ConstantTensor::new(ElementType::Int64, shape.to_vec(), ConstantElements::Int(numbers));
            return Ok(fold::cast(&counted, elem).into());
        }
        let result = self.backend.iota(elem.data_type()?, shape, axis);
        self.wrap_operand(elem, result)
    }

    /// Returns one number with the type of `x`.
    pub fn scalar_like(&self, x: &GraphValue, value: f64) -> GraphValue {
        ConstantTensor::scalar(x.elem(), value).into()
    }

    unary! {
        /// Returns the absolute value.
        abs = Abs;
        /// Returns the negated value.
        neg = Neg;
        /// Returns the sign: -1, 0 or 1.
        sign = Sign;
        /// Rounds up to an integer.
        ceil = Ceil;
        /// Rounds down to an integer.
        floor = Floor;
        /// Rounds to the nearest integer, ties to even.
        round_even = RoundEven;
        /// Returns `e^x`.
        exp = Exp;
        /// Returns the natural logarithm.
        log = Log;
        /// Returns the square root.
        sqrt = Sqrt;
        /// Returns `1 / x`.
        reciprocal = Reciprocal;
        /// Returns the sine.
        sin = Sin;
        /// Returns the cosine.
        cos = Cos;
        /// Returns the tangent.
        tan = Tan;
        /// Returns the hyperbolic tangent.
        tanh = Tanh;
        /// Returns the error function.
        erf = Erf;
        /// Returns `max(x, 0)`.
        relu = Relu;
        /// Returns `1 / (1 + exp(-x))`.
        sigmoid = Sigmoid;
        /// Returns `x * (1 + erf(x / sqrt(2))) / 2`.
        gelu = Gelu;
        /// Returns `log(1 + exp(x))`.
        softplus = Softplus;
    }

    binary! {
        /// Returns the sum.
        add = Add;
        /// Returns the difference.
        sub = Sub;
        /// Returns the product.
        mul = Mul;
        /// Returns the quotient. Integers truncate toward zero.
        div = Div;
        /// Returns `a` to the power `b`.
        pow = Pow;
        /// Returns the larger element.
        max = Max;
        /// Returns the smaller element.
        min = Min;
        /// Returns whether `a == b`.
        equal = Equal;
        /// Returns whether `a > b`.
        greater = Greater;
        /// Returns whether `a >= b`.
        greater_or_equal = GreaterOrEqual;
        /// Returns whether `a < b`.
        lesser = Lesser;
        /// Returns whether `a <= b`.
        lesser_or_equal = LesserOrEqual;
        /// Returns the logical AND.
        and = And;
        /// Returns the logical OR.
        or = Or;
        /// Returns the logical XOR.
        xor = Xor;
    }

    /// Applies an elementwise operator with one operand.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn unary(&mut self, op: ElementwiseUnary, x: &GraphValue) -> ValueResult {
        if let Some(constant) = x.constant()
            && self.reserve_fold_budget(constant.len())
            && let Some(folded) = fold::unary(op, constant)
        {
            return Ok(folded.into());
        }
        let operand = self.operand(x)?;
        let result = self.backend.unary(op, &operand);
        self.wrap_operand(x.elem(), result)
    }

    /// Returns the logical NOT: whether `x` is zero.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn not(&mut self, x: &GraphValue) -> ValueResult {
        self.unary(ElementwiseUnary::LogicalNot, x)
    }

    /// Applies an elementwise operator with two operands.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Invalid` if the types differ or the shapes do not broadcast.
    pub fn binary(&mut self, op: ElementwiseBinary, a: &GraphValue, b: &GraphValue) -> ValueResult {
        if a.elem() != b.elem() {
            return Err(Error::invalid(format!("operands are of types {:?} and {:?}", a.elem(), b.elem())));
        }
        let shape = broadcast_shapes(a.shape(), b.shape())?;
        if let (Some(x), Some(y)) = (a.constant(), b.constant())
            && self.reserve_fold_budget(element_count(&shape)?)
            && let Some(folded) = fold::binary(op, x, y)?
        {
            return Ok(folded.into());
        }
        let (x, y) = (self.operand(a)?, self.operand(b)?);
        let result = self.backend.binary(op, &x, &y);
        let elem = match op {
            ElementwiseBinary::Add
            | ElementwiseBinary::Sub
            | ElementwiseBinary::Mul
            | ElementwiseBinary::Div
            | ElementwiseBinary::Pow
            | ElementwiseBinary::Max
            | ElementwiseBinary::Min => a.elem(),
            ElementwiseBinary::Equal
            | ElementwiseBinary::Greater
            | ElementwiseBinary::GreaterOrEqual
            | ElementwiseBinary::Lesser
            | ElementwiseBinary::LesserOrEqual
            | ElementwiseBinary::And
            | ElementwiseBinary::Or
            | ElementwiseBinary::Xor => ElementType::Bool,
        };
        self.wrap_operand(elem, result)
    }

    /// Returns `x + value`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn add_scalar(&mut self, x: &GraphValue, value: f64) -> ValueResult {
        let value = self.scalar_like(x, value);
        self.add(x, &value)
    }

    /// Returns `x * value`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn mul_scalar(&mut self, x: &GraphValue, value: f64) -> ValueResult {
        let value = self.scalar_like(x, value);
        self.mul(x, &value)
    }

    /// Returns `yes` where `condition` is true, else `no`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Invalid` if the types differ or the shapes do not broadcast.
    pub fn select(&mut self, condition: &GraphValue, yes: &GraphValue, no: &GraphValue) -> ValueResult {
        if yes.elem() != no.elem() {
            return Err(Error::invalid(format!("operands are of types {:?} and {:?}", yes.elem(), no.elem())));
        }
        let shape = broadcast_shapes(&broadcast_shapes(condition.shape(), yes.shape())?, no.shape())?;
        if let (Some(c), Some(x), Some(y)) = (condition.constant(), yes.constant(), no.constant())
            && self.reserve_fold_budget(element_count(&shape)?)
        {
            return Ok(fold::select(c, x, y)?.into());
        }
        let (c, x, y) = (self.operand(condition)?, self.operand(yes)?, self.operand(no)?);
        let result = self.backend.select(&c, &x, &y);
        self.wrap_operand(yes.elem(), result)
    }

    /// Converts the elements to `elem`. For booleans, every number except zero is true.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Unsupported` if the host lacks the type.
    pub fn cast(&mut self, x: &GraphValue, elem: ElementType) -> ValueResult {
        if x.elem() == elem {
            return Ok(x.clone());
        }
        if let Some(constant) = x.constant()
            && (self.reserve_fold_budget(constant.len()) || constant.elem == ElementType::Float64)
        {
            return Ok(fold::cast(constant, elem).into());
        }
        if elem == ElementType::Bool {
            let zero = self.scalar_like(x, 0.0);
            let zeros = self.equal(x, &zero)?;
            return self.not(&zeros);
        }
        let operand = self.operand(x)?;
        let result = self.backend.cast(&operand, elem.data_type()?);
        self.wrap_operand(elem, result)
    }

    /// Clamps the elements to `[min, max]`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn clamp(&mut self, x: &GraphValue, min: Option<f64>, max: Option<f64>) -> ValueResult {
        if x.constant().is_some() {
            let mut limited = x.clone();
            if let Some(min) = min {
                limited = self.max(&limited, &self.scalar_like(x, min))?;
            }
            if let Some(max) = max {
                limited = self.min(&limited, &self.scalar_like(x, max))?;
            }
            return Ok(limited);
        }
        let operand = self.operand(x)?;
        let result = self.backend.clamp(&operand, min, max);
        self.wrap_operand(x.elem(), result)
    }

    /// Returns the softmax along `axis`: `exp(x)` divided by its sum.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn softmax(&mut self, x: &GraphValue, axis: usize) -> ValueResult {
        let operand = self.operand(x)?;
        let result = self.backend.softmax(&operand, axis);
        self.wrap_operand(x.elem(), result)
    }

    /// Reduces `axes`, which are sorted and stay with size 1.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn reduce(&mut self, op: ReductionOperator, x: &GraphValue, axes: &[usize]) -> ValueResult {
        if axes.is_empty() {
            return Ok(x.clone());
        }
        if let Some(constant) = x.constant()
            && self.reserve_fold_budget(constant.len())
            && let Some(folded) = fold::reduce(op, constant, axes)
        {
            return Ok(folded.into());
        }
        let operand = self.operand(x)?;
        let result = self.backend.reduce(op, &operand, axes);
        self.wrap_operand(x.elem(), result)
    }

    /// Returns the index of the first largest or smallest element along `axis`, as `int64`. The axis stays with size 1.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn arg_extremum(&mut self, largest: bool, x: &GraphValue, axis: usize) -> ValueResult {
        let operand = self.operand(x)?;
        let result = self.backend.arg_extremum(largest, &operand, axis);
        let found = self.wrap_operand(ElementType::Int32, result)?;
        self.cast(&found, ElementType::Int64)
    }

    /// Returns the cumulative sum along `axis`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn cumulative_sum(&mut self, x: &GraphValue, axis: usize, exclusive: bool, reversed: bool) -> ValueResult {
        if let Some(constant) = x.constant()
            && self.reserve_fold_budget(constant.len())
        {
            return Ok(fold::cumulative_sum(constant, axis, exclusive, reversed).into());
        }
        let operand = self.operand(x)?;
        let result = self.backend.cumulative_sum(&operand, axis, exclusive, reversed);
        self.wrap_operand(x.elem(), result)
    }
}

mod movement;
mod product;
