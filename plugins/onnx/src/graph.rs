//! Building: what operators' rules are written with.
//!
//! Each method takes values known now as well as operands of the graph. Where all it needs is known and small it computes
//! here, else it makes the known ones operands and asks the backend. So a rule is written once for both.

use crate::backend::{Backend, Binary, Made, Pooling, Reduction, Scatter, Unary, Windows};
use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::fold;
use crate::value::{Constant, Data, FOLD_ELEMENTS_MAX, Operand, Value, broadcast, elements};

/// Elements of all tensors computed here while one graph is built: beyond it, the graph computes.
const FOLD_BUDGET: usize = 1 << 23;

/// A graph being built.
pub struct Graph<'a> {
    backend: &'a mut dyn Backend,
    budget: usize,
}

/// What a method gives.
pub type Built = Result<Value>;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $op:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// `Host`.
        pub fn $name(&mut self, x: &Value) -> Built {
            self.unary(Unary::$op, x)
        }
    )* };
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $op:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// `Host`; `Invalid` if types differ or shapes do not fit.
        pub fn $name(&mut self, a: &Value, b: &Value) -> Built {
            self.binary(Binary::$op, a, b)
        }
    )* };
}

impl<'a> Graph<'a> {
    /// An empty graph.
    pub fn new(backend: &'a mut dyn Backend) -> Self {
        Self { backend, budget: FOLD_BUDGET }
    }

    /// Whether a tensor of this many elements may be computed here; if so it counts.
    fn affordable(&mut self, count: usize) -> bool {
        let affordable = count <= FOLD_ELEMENTS_MAX && count <= self.budget;
        if affordable {
            self.budget -= count;
        }
        affordable
    }

    /// The value as an operand of the graph.
    ///
    /// # Errors
    /// `Host`; `Unsupported` for a type that the host does not have.
    pub fn operand(&mut self, value: &Value) -> Result<Operand> {
        let constant = match value {
            Value::Operand(operand) => return Ok(operand.clone()),
            Value::Constant(constant) => constant,
        };
        let data_type = constant.elem.data_type()?;
        let uniform = match constant.unread() {
            Data::Float(values) => values.first().filter(|first| values.iter().all(|v| v == *first)).copied(),
            Data::Int(values) => values
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
        Ok(Operand { elem: constant.elem, ..made })
    }

    fn made(&mut self, elem: Elem, made: Made) -> Built {
        made.map(|operand| Value::Operand(Operand { elem, ..operand }))
    }

    /// An input of the graph.
    ///
    /// # Errors
    /// `Host`; `Unsupported`.
    pub fn input(&mut self, name: &str, elem: Elem, shape: &[usize]) -> Built {
        let made = self.backend.input(name, elem.data_type()?, shape);
        self.made(elem, made)
    }

    /// A variable.
    ///
    /// # Errors
    /// `Host`; `Unsupported`.
    pub fn variable(&mut self, name: &str, elem: Elem, shape: &[usize]) -> Built {
        let made = self.backend.variable(name, elem.data_type()?, shape);
        self.made(elem, made)
    }

    /// One number everywhere.
    ///
    /// # Errors
    /// `Host`; `Invalid` if there are too many elements.
    pub fn fill(&mut self, elem: Elem, shape: &[usize], value: f64) -> Built {
        if self.affordable(elements(shape)?) {
            return Ok(Constant::filled(elem, shape.to_vec(), value).into());
        }
        let made = self.backend.fill(elem.data_type()?, shape, value);
        self.made(elem, made)
    }

    /// 0, 1, 2, ... along `axis`, which there is.
    ///
    /// # Errors
    /// `Host`; `Invalid` if there are too many elements.
    pub fn iota(&mut self, elem: Elem, shape: &[usize], axis: usize) -> Built {
        if self.affordable(elements(shape)?) {
            let numbers = fold::each(shape, |at| at[axis] as i64);
            let counted = Constant::new(Elem::Int64, shape.to_vec(), Data::Int(numbers));
            return Ok(fold::cast(&counted, elem).into());
        }
        let made = self.backend.iota(elem.data_type()?, shape, axis);
        self.made(elem, made)
    }

    /// One number of the type of `x`.
    pub fn like(&self, x: &Value, value: f64) -> Value {
        Constant::scalar(x.elem(), value).into()
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
    /// `Host`.
    pub fn unary(&mut self, op: Unary, x: &Value) -> Built {
        if let Some(constant) = x.constant()
            && self.affordable(constant.len())
            && let Some(folded) = fold::unary(op, constant)
        {
            return Ok(folded.into());
        }
        let operand = self.operand(x)?;
        let made = self.backend.unary(op, &operand);
        self.made(x.elem(), made)
    }

    /// Where zero.
    ///
    /// # Errors
    /// `Host`.
    pub fn not(&mut self, x: &Value) -> Built {
        self.unary(Unary::LogicalNot, x)
    }

    /// Two operands, element by element.
    ///
    /// # Errors
    /// `Host`; `Invalid` if types differ or shapes do not fit.
    pub fn binary(&mut self, op: Binary, a: &Value, b: &Value) -> Built {
        if a.elem() != b.elem() {
            return Err(Error::invalid(format!("operands are of types {:?} and {:?}", a.elem(), b.elem())));
        }
        let shape = broadcast(a.shape(), b.shape())?;
        if let (Some(x), Some(y)) = (a.constant(), b.constant())
            && self.affordable(elements(&shape)?)
            && let Some(folded) = fold::binary(op, x, y)?
        {
            return Ok(folded.into());
        }
        let (x, y) = (self.operand(a)?, self.operand(b)?);
        let made = self.backend.binary(op, &x, &y);
        let elem = match op {
            Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Pow | Binary::Max | Binary::Min => a.elem(),
            Binary::Equal
            | Binary::Greater
            | Binary::GreaterOrEqual
            | Binary::Lesser
            | Binary::LesserOrEqual
            | Binary::And
            | Binary::Or
            | Binary::Xor => Elem::Bool,
        };
        self.made(elem, made)
    }

    /// `x + value`.
    ///
    /// # Errors
    /// `Host`.
    pub fn plus(&mut self, x: &Value, value: f64) -> Built {
        let value = self.like(x, value);
        self.add(x, &value)
    }

    /// `x * value`.
    ///
    /// # Errors
    /// `Host`.
    pub fn times(&mut self, x: &Value, value: f64) -> Built {
        let value = self.like(x, value);
        self.mul(x, &value)
    }

    /// `yes` where `condition`, else `no`.
    ///
    /// # Errors
    /// `Host`; `Invalid` if types differ or shapes do not fit.
    pub fn select(&mut self, condition: &Value, yes: &Value, no: &Value) -> Built {
        if yes.elem() != no.elem() {
            return Err(Error::invalid(format!("operands are of types {:?} and {:?}", yes.elem(), no.elem())));
        }
        let shape = broadcast(&broadcast(condition.shape(), yes.shape())?, no.shape())?;
        if let (Some(c), Some(x), Some(y)) = (condition.constant(), yes.constant(), no.constant())
            && self.affordable(elements(&shape)?)
        {
            return Ok(fold::select(c, x, y)?.into());
        }
        let (c, x, y) = (self.operand(condition)?, self.operand(yes)?, self.operand(no)?);
        let made = self.backend.select(&c, &x, &y);
        self.made(yes.elem(), made)
    }

    /// Converted; to truth values, where not zero.
    ///
    /// # Errors
    /// `Host`; `Unsupported` for a type that the host does not have.
    pub fn cast(&mut self, x: &Value, elem: Elem) -> Built {
        if x.elem() == elem {
            return Ok(x.clone());
        }
        if let Some(constant) = x.constant()
            && (self.affordable(constant.len()) || constant.elem == Elem::Float64)
        {
            return Ok(fold::cast(constant, elem).into());
        }
        if elem == Elem::Bool {
            let zero = self.like(x, 0.0);
            let zeros = self.equal(x, &zero)?;
            return self.not(&zeros);
        }
        let operand = self.operand(x)?;
        let made = self.backend.cast(&operand, elem.data_type()?);
        self.made(elem, made)
    }

    /// Limited to `[min, max]`.
    ///
    /// # Errors
    /// `Host`.
    pub fn clamp(&mut self, x: &Value, min: Option<f64>, max: Option<f64>) -> Built {
        if x.constant().is_some() {
            let mut limited = x.clone();
            if let Some(min) = min {
                limited = self.max(&limited, &self.like(x, min))?;
            }
            if let Some(max) = max {
                limited = self.min(&limited, &self.like(x, max))?;
            }
            return Ok(limited);
        }
        let operand = self.operand(x)?;
        let made = self.backend.clamp(&operand, min, max);
        self.made(x.elem(), made)
    }

    /// `exp(x)` over its sum along `axis`.
    ///
    /// # Errors
    /// `Host`.
    pub fn softmax(&mut self, x: &Value, axis: usize) -> Built {
        let operand = self.operand(x)?;
        let made = self.backend.softmax(&operand, axis);
        self.made(x.elem(), made)
    }

    /// Combined over `axes` (sorted), which stay with size 1.
    ///
    /// # Errors
    /// `Host`.
    pub fn reduce(&mut self, op: Reduction, x: &Value, axes: &[usize]) -> Built {
        if axes.is_empty() {
            return Ok(x.clone());
        }
        if let Some(constant) = x.constant()
            && self.affordable(constant.len())
            && let Some(folded) = fold::reduce(op, constant, axes)
        {
            return Ok(folded.into());
        }
        let operand = self.operand(x)?;
        let made = self.backend.reduce(op, &operand, axes);
        self.made(x.elem(), made)
    }

    /// The index of the first largest or smallest along `axis`, `int64`; the axis stays with size 1.
    ///
    /// # Errors
    /// `Host`.
    pub fn arg(&mut self, largest: bool, x: &Value, axis: usize) -> Built {
        let operand = self.operand(x)?;
        let made = self.backend.arg(largest, &operand, axis);
        let found = self.made(Elem::Int32, made)?;
        self.cast(&found, Elem::Int64)
    }

    /// Each element plus all before it along `axis`.
    ///
    /// # Errors
    /// `Host`.
    pub fn cumulative_sum(&mut self, x: &Value, axis: usize, exclusive: bool, reversed: bool) -> Built {
        if let Some(constant) = x.constant()
            && self.affordable(constant.len())
        {
            return Ok(fold::cumulative_sum(constant, axis, exclusive, reversed).into());
        }
        let operand = self.operand(x)?;
        let made = self.backend.cumulative_sum(&operand, axis, exclusive, reversed);
        self.made(x.elem(), made)
    }
}

mod movement;
mod product;
