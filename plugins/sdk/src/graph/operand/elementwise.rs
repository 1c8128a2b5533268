//! Elementwise operators.

use super::Operand;
use crate::bindings::tensors::DataType;
use crate::error::Result;

/// Elementwise operators with one operand.
impl Operand {
    unary! {
        /// Returns the absolute value. Float or signed integer.
        abs;
        /// Returns the negated value. Float or signed integer.
        neg;
        /// Returns -1, 0 or 1. Float or signed integer.
        sign;
        /// Returns the smallest integer that is not less. Float.
        ceil;
        /// Returns the largest integer that is not greater. Float.
        floor;
        /// Returns the nearest integer, ties to even. Float.
        round_even;
        /// Returns `e^x`. Float.
        exp;
        /// Returns the natural logarithm. Float.
        log;
        /// Returns the square root. Float.
        sqrt;
        /// Returns `1 / x`. Float.
        reciprocal;
        /// Returns the sine of radians. Float.
        sin;
        /// Returns the cosine of radians. Float.
        cos;
        /// Returns the tangent of radians. Float.
        tan;
        /// Returns the hyperbolic tangent. Float.
        tanh;
        /// Returns the Gauss error function. Float.
        erf;
        /// Returns the operand unchanged, as a new value.
        identity;
        /// Returns 1 if zero, else 0. `uint8`.
        logical_not;
        /// Returns `max(x, 0)`. Float or signed integer.
        relu;
        /// Returns `1 / (1 + exp(-x))`. Float.
        sigmoid;
        /// Returns `x * (1 + erf(x / sqrt(2))) / 2`. Float.
        gelu;
        /// Returns `x * clamp(x / 6 + 0.5, 0, 1)`. Float.
        hard_swish;
        /// Returns `log(1 + exp(x))`. Float.
        softplus;
        /// Returns `x / (1 + |x|)`. Float.
        softsign;
        /// Returns the operand unchanged, but no gradient flows through it.
        stop_gradient;
    }

    /// Converts to another data type. Float to integer truncates toward zero and saturates.
    ///
    /// # Errors
    /// Returns `Built` after the graph was built.
    #[track_caller]
    pub fn cast(&self, data_type: DataType) -> Result<Self> {
        self.graph.add_operand(|builder| builder.cast(&self.raw, data_type))
    }

    /// Limits values to `[min, max]`; `None` means no limit.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn clamp(&self, min: Option<f64>, max: Option<f64>) -> Result<Self> {
        self.graph.add_operand(|builder| builder.clamp(&self.raw, min, max))
    }

    /// Returns `x` if positive, else `alpha * (exp(x) - 1)`. Float.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn elu(&self, alpha: f32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.elu(&self.raw, alpha))
    }

    /// Returns `x` if positive, else `alpha * x`. Float.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn leaky_relu(&self, alpha: f32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.leaky_relu(&self.raw, alpha))
    }

    /// Returns `clamp(alpha * x + beta, 0, 1)`. Float.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn hard_sigmoid(&self, alpha: f32, beta: f32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.hard_sigmoid(&self.raw, alpha, beta))
    }

    /// Returns `alpha * x + beta`. Float.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn linear(&self, alpha: f32, beta: f32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.linear(&self.raw, alpha, beta))
    }
}

/// Elementwise operators with several operands.
impl Operand {
    binary! {
        /// Returns the sum.
        add;
        /// Returns the difference.
        sub;
        /// Returns the product.
        mul;
        /// Returns the quotient. Integers truncate toward zero, and division by zero gives 0.
        div;
        /// Returns `self` to the power `other`. Float.
        pow;
        /// Returns the larger value; NaN if either is NaN.
        max;
        /// Returns the smaller value; NaN if either is NaN.
        min;
        /// Returns 1 if equal, else 0; `uint8`.
        equal;
        /// Returns 1 if not equal, else 0; `uint8`.
        not_equal;
        /// Returns 1 if `self > other`, else 0; `uint8`.
        greater;
        /// Returns 1 if `self >= other`, else 0; `uint8`.
        greater_or_equal;
        /// Returns 1 if `self < other`, else 0; `uint8`.
        lesser;
        /// Returns 1 if `self <= other`, else 0; `uint8`.
        lesser_or_equal;
        /// Returns 1 if both are non-zero, else 0. `uint8`.
        logical_and;
        /// Returns 1 if either is non-zero, else 0. `uint8`.
        logical_or;
        /// Returns 1 if exactly one is non-zero, else 0. `uint8`.
        logical_xor;
        /// Returns `x` if positive, else `slope * x`, where `x` is `self` and `slope` is `other`, a learnt slope that
        /// broadcasts. Float or signed integer.
        prelu;
    }

    /// Returns `self + value`.
    ///
    /// # Errors
    /// Returns `Built` after the graph was built.
    #[track_caller]
    pub fn add_scalar(&self, value: f64) -> Result<Self> {
        self.add(&self.scalar_like(value)?)
    }

    /// Returns `self * value`.
    ///
    /// # Errors
    /// Returns `Built` after the graph was built.
    #[track_caller]
    pub fn mul_scalar(&self, value: f64) -> Result<Self> {
        self.mul(&self.scalar_like(value)?)
    }

    /// Returns `self / value`.
    ///
    /// # Errors
    /// Returns `Built` after the graph was built.
    #[track_caller]
    pub fn div_scalar(&self, value: f64) -> Result<Self> {
        self.div(&self.scalar_like(value)?)
    }

    /// Selects elements of `yes` if `self` (`uint8`) is not 0, else of `no`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn where_cond(&self, yes: &Self, no: &Self) -> Result<Self> {
        self.graph.add_operand(|builder| builder.where_(&self.raw, &yes.raw, &no.raw))
    }

    /// Returns `(self - zero_point) * scale`, in the data type of `scale`. `scale` and `zero_point` are repeated in
    /// blocks: each of their dimensions must divide that of `self`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn dequantize_linear(&self, scale: &Self, zero_point: &Self) -> Result<Self> {
        self.graph.add_operand(|builder| builder.dequantize_linear(&self.raw, &scale.raw, &zero_point.raw))
    }

    /// Returns `self / scale + zero_point`, rounded to nearest, ties to even, and limited to the data type of
    /// `zero_point` (`int8`, `uint8` or `int32`). `scale` and `zero_point` are repeated in blocks as in
    /// [`Operand::dequantize_linear`].
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn quantize_linear(&self, scale: &Self, zero_point: &Self) -> Result<Self> {
        self.graph.add_operand(|builder| builder.quantize_linear(&self.raw, &scale.raw, &zero_point.raw))
    }

    /// Returns a scalar of this operand's data type.
    #[track_caller]
    pub(crate) fn scalar_like(&self, value: f64) -> Result<Self> {
        self.graph.scalar(self.descriptor().data_type, value)
    }
}
