//! Building: what operators' rules are written with.
//!
//! Each method takes values known now as well as operands of the graph. Where all it needs is known and small it computes
//! here, else it makes the known ones operands and asks the backend. So a rule is written once for both.

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

/// Elements of all tensors computed here while one graph is built: beyond it, the graph computes.
const FOLD_BUDGET: usize = 1 << 23;

/// A graph being built.
pub struct FoldingGraph<'a> {
    backend: &'a mut dyn GraphBackend,
    budget: usize,
}

/// What a method gives.
pub type ValueResult = Result<GraphValue>;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $op:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// `HostBackend`.
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
        /// `HostBackend`; `Invalid` if types differ or shapes do not fit.
        pub fn $name(&mut self, a: &GraphValue, b: &GraphValue) -> ValueResult {
            self.binary(ElementwiseBinary::$op, a, b)
        }
    )* };
}

impl<'a> FoldingGraph<'a> {
    /// An empty graph.
    pub fn new(backend: &'a mut dyn GraphBackend) -> Self {
        Self { backend, budget: FOLD_BUDGET }
    }

    /// Whether a tensor of this many elements may be computed here; if so it counts.
    fn reserve_fold_budget(&mut self, count: usize) -> bool {
        let affordable = count <= FOLD_ELEMENTS_MAX && count <= self.budget;
        if affordable {
            self.budget -= count;
        }
        affordable
    }

    /// The value as an operand of the graph.
    ///
    /// # Errors
    /// `HostBackend`; `Unsupported` for a type that the host does not have.
    pub fn operand(&mut self, value: &GraphValue) -> Result<BackendOperand> {
        let constant = match value {
            GraphValue::Operand(operand) => return Ok(operand.clone()),
            GraphValue::Constant(constant) => constant,
        };
        let data_type = constant.elem.data_type()?;
        let uniform = match constant.data_unmarked() {
            ConstantElements::Float(values) => {
                values.first().filter(|first| values.iter().all(|v| v == *first)).copied()
            }
            ConstantElements::Int(values) => values
                .first()
                .filter(|first| values.iter().all(|v| v == *first) && first.unsigned_abs() < 1 << 53)
                .filter(|&&first| first >= 0 || !constant.elem.is_unsigned())
                .map(|&first| first as f64),
        };
        let made = match uniform {
            // The sign of a zero is lost in no comparison, and NaN is equal to nothing.
            Some(number) if number != 0.0 || number.is_sign_positive() => {
                self.backend.fill(data_type, &constant.shape, number)
            }
            _ => self.backend.constant(data_type, &constant.shape, &constant.to_bytes()),
        }?;
        Ok(BackendOperand { elem: constant.elem, ..made })
    }

    fn wrap_operand(&mut self, elem: ElementType, made: BackendResult) -> ValueResult {
        made.map(|operand| GraphValue::Operand(BackendOperand { elem, ..operand }))
    }

    /// An input of the graph.
    ///
    /// # Errors
    /// `HostBackend`; `Unsupported`.
    pub fn input(&mut self, name: &str, elem: ElementType, shape: &[usize]) -> ValueResult {
        let made = self.backend.input(name, elem.data_type()?, shape);
        self.wrap_operand(elem, made)
    }

    /// A variable.
    ///
    /// # Errors
    /// `HostBackend`; `Unsupported`.
    pub fn variable(&mut self, name: &str, elem: ElementType, shape: &[usize]) -> ValueResult {
        let made = self.backend.variable(name, elem.data_type()?, shape);
        self.wrap_operand(elem, made)
    }

    /// One number everywhere.
    ///
    /// # Errors
    /// `HostBackend`; `Invalid` if there are too many elements.
    pub fn fill(&mut self, elem: ElementType, shape: &[usize], value: f64) -> ValueResult {
        if self.reserve_fold_budget(element_count(shape)?) {
            return Ok(ConstantTensor::filled(elem, shape.to_vec(), value).into());
        }
        let made = self.backend.fill(elem.data_type()?, shape, value);
        self.wrap_operand(elem, made)
    }

    /// 0, 1, 2, ... along `axis`, which there is.
    ///
    /// # Errors
    /// `HostBackend`; `Invalid` if there are too many elements.
    pub fn iota(&mut self, elem: ElementType, shape: &[usize], axis: usize) -> ValueResult {
        if self.reserve_fold_budget(element_count(shape)?) {
            let numbers = fold::map_positions(shape, |at| at[axis] as i64);
            let counted = ConstantTensor::new(ElementType::Int64, shape.to_vec(), ConstantElements::Int(numbers));
            return Ok(fold::cast(&counted, elem).into());
        }
        let made = self.backend.iota(elem.data_type()?, shape, axis);
        self.wrap_operand(elem, made)
    }

    /// One number of the type of `x`.
    pub fn scalar_like(&self, x: &GraphValue, value: f64) -> GraphValue {
        ConstantTensor::scalar(x.elem(), value).into()
    }

    unary! {
        /// The magnitude.
        abs = Abs;
        /// The negative.
        neg = Neg;
        /// -1, 0 or 1.
        sign = Sign;
        /// The smallest integer not below.
        ceil = Ceil;
        /// The largest integer not above.
        floor = Floor;
        /// The nearest integer, ties to even.
        round_even = RoundEven;
        /// `e^x`.
        exp = Exp;
        /// The natural logarithm.
        log = Log;
        /// The square root.
        sqrt = Sqrt;
        /// `1 / x`.
        reciprocal = Reciprocal;
        /// The sine.
        sin = Sin;
        /// The cosine.
        cos = Cos;
        /// The tangent.
        tan = Tan;
        /// The hyperbolic tangent.
        tanh = Tanh;
        /// The error function.
        erf = Erf;
        /// `max(x, 0)`.
        relu = Relu;
        /// `1 / (1 + exp(-x))`.
        sigmoid = Sigmoid;
        /// `x * (1 + erf(x / sqrt(2))) / 2`.
        gelu = Gelu;
        /// `log(1 + exp(x))`.
        softplus = Softplus;
    }

    binary! {
        /// The sum.
        add = Add;
        /// The difference.
        sub = Sub;
        /// The product.
        mul = Mul;
        /// The quotient; integers truncate toward zero.
        div = Div;
        /// `a` to the power `b`.
        pow = Pow;
        /// The larger.
        max = Max;
        /// The smaller.
        min = Min;
        /// Where equal.
        equal = Equal;
        /// Where `a > b`.
        greater = Greater;
        /// Where `a >= b`.
        greater_or_equal = GreaterOrEqual;
        /// Where `a < b`.
        lesser = Lesser;
        /// Where `a <= b`.
        lesser_or_equal = LesserOrEqual;
        /// Where both.
        and = And;
        /// Where either.
        or = Or;
        /// Where exactly one.
        xor = Xor;
    }

    /// One operand, element by element.
    ///
    /// # Errors
    /// `HostBackend`.
    pub fn unary(&mut self, op: ElementwiseUnary, x: &GraphValue) -> ValueResult {
        if let Some(constant) = x.constant()
            && self.reserve_fold_budget(constant.len())
            && let Some(folded) = fold::unary(op, constant)
        {
            return Ok(folded.into());
        }
        let operand = self.operand(x)?;
        let made = self.backend.unary(op, &operand);
        self.wrap_operand(x.elem(), made)
    }

    /// Where zero.
    ///
    /// # Errors
    /// `HostBackend`.
    pub fn not(&mut self, x: &GraphValue) -> ValueResult {
        self.unary(ElementwiseUnary::LogicalNot, x)
    }

    /// Two operands, element by element.
    ///
    /// # Errors
    /// `HostBackend`; `Invalid` if types differ or shapes do not fit.
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
        let made = self.backend.binary(op, &x, &y);
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
        self.wrap_operand(elem, made)
    }

    /// `x + value`.
    ///
    /// # Errors
    /// `HostBackend`.
    pub fn add_scalar(&mut self, x: &GraphValue, value: f64) -> ValueResult {
        let value = self.scalar_like(x, value);
        self.add(x, &value)
    }

    /// `x * value`.
    ///
    /// # Errors
    /// `HostBackend`.
    pub fn mul_scalar(&mut self, x: &GraphValue, value: f64) -> ValueResult {
        let value = self.scalar_like(x, value);
        self.mul(x, &value)
    }

    /// `yes` where `condition`, else `no`.
    ///
    /// # Errors
    /// `HostBackend`; `Invalid` if types differ or shapes do not fit.
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
        let made = self.backend.select(&c, &x, &y);
        self.wrap_operand(yes.elem(), made)
    }

    /// Converted; to truth values, where not zero.
    ///
    /// # Errors
    /// `HostBackend`; `Unsupported` for a type that the host does not have.
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
        let made = self.backend.cast(&operand, elem.data_type()?);
        self.wrap_operand(elem, made)
    }

    /// Limited to `[min, max]`.
    ///
    /// # Errors
    /// `HostBackend`.
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
        let made = self.backend.clamp(&operand, min, max);
        self.wrap_operand(x.elem(), made)
    }

    /// `exp(x)` over its sum along `axis`.
    ///
    /// # Errors
    /// `HostBackend`.
    pub fn softmax(&mut self, x: &GraphValue, axis: usize) -> ValueResult {
        let operand = self.operand(x)?;
        let made = self.backend.softmax(&operand, axis);
        self.wrap_operand(x.elem(), made)
    }

    /// Combined over `axes` (sorted), which stay with size 1.
    ///
    /// # Errors
    /// `HostBackend`.
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
        let made = self.backend.reduce(op, &operand, axes);
        self.wrap_operand(x.elem(), made)
    }

    /// The index of the first largest or smallest along `axis`, `int64`; the axis stays with size 1.
    ///
    /// # Errors
    /// `HostBackend`.
    pub fn arg_extremum(&mut self, largest: bool, x: &GraphValue, axis: usize) -> ValueResult {
        let operand = self.operand(x)?;
        let made = self.backend.arg_extremum(largest, &operand, axis);
        let found = self.wrap_operand(ElementType::Int32, made)?;
        self.cast(&found, ElementType::Int64)
    }

    /// Each element plus all before it along `axis`.
    ///
    /// # Errors
    /// `HostBackend`.
    pub fn cumulative_sum(&mut self, x: &GraphValue, axis: usize, exclusive: bool, reversed: bool) -> ValueResult {
        if let Some(constant) = x.constant()
            && self.reserve_fold_budget(constant.len())
        {
            return Ok(fold::cumulative_sum(constant, axis, exclusive, reversed).into());
        }
        let operand = self.operand(x)?;
        let made = self.backend.cumulative_sum(&operand, axis, exclusive, reversed);
        self.wrap_operand(x.elem(), made)
    }
}

mod movement;
mod product;
