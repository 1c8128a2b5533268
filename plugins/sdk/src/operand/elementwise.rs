//! Element by element.

use super::Operand;
use crate::bindings::tensors::DataType;
use crate::error::Result;

/// Element by element, one operand.
impl Operand {
    unary! {
        /// The magnitude.
        abs;
        /// The negative.
        neg;
        /// -1, 0 or 1.
        sign;
        /// The smallest integer not below.
        ceil;
        /// The largest integer not above.
        floor;
        /// The nearest integer, ties to even.
        round_even;
        /// `e^x`.
        exp;
        /// The natural logarithm.
        log;
        /// The square root.
        sqrt;
        /// `1 / x`.
        reciprocal;
        /// The sine, radians.
        sin;
        /// The cosine, radians.
        cos;
        /// The tangent, radians.
        tan;
        /// The hyperbolic tangent.
        tanh;
        /// The Gauss error function.
        erf;
        /// The operand itself.
        identity;
        /// 1 where zero, else 0.
        logical_not;
        /// `max(x, 0)`.
        relu;
        /// `1 / (1 + exp(-x))`.
        sigmoid;
        /// `x * (1 + erf(x / sqrt(2))) / 2`.
        gelu;
        /// `x * clamp(x / 6 + 0.5, 0, 1)`.
        hard_swish;
        /// `log(1 + exp(x))`.
        softplus;
        /// `x / (1 + |x|)`.
        softsign;
        /// The operand; gradients stop here.
        stop_gradient;
    }

    /// Converted to another data type. Float to integer truncates toward zero and saturates.
    ///
    /// # Errors
    /// `Built`.
    pub fn cast(&self, data_type: DataType) -> Result<Self> {
        self.graph.add_operand(|builder| builder.cast(&self.raw, data_type))
    }

    /// Limited to `[min, max]`; none is no limit.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn clamp(&self, min: Option<f64>, max: Option<f64>) -> Result<Self> {
        self.graph.add_operand(|builder| builder.clamp(&self.raw, min, max))
    }

    /// `x` where positive, else `alpha * (exp(x) - 1)`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn elu(&self, alpha: f32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.elu(&self.raw, alpha))
    }

    /// `x` where positive, else `alpha * x`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn leaky_relu(&self, alpha: f32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.leaky_relu(&self.raw, alpha))
    }

    /// `clamp(alpha * x + beta, 0, 1)`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn hard_sigmoid(&self, alpha: f32, beta: f32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.hard_sigmoid(&self.raw, alpha, beta))
    }

    /// `alpha * x + beta`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn linear(&self, alpha: f32, beta: f32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.linear(&self.raw, alpha, beta))
    }
}

/// Element by element, two operands or more.
impl Operand {
    binary! {
        /// The sum.
        add;
        /// The difference.
        sub;
        /// The product.
        mul;
        /// The quotient.
        div;
        /// `self` to the power `other`.
        pow;
        /// The larger; NaN if either is NaN.
        max;
        /// The smaller; NaN if either is NaN.
        min;
        /// 1 where equal; `uint8`.
        equal;
        /// 1 where not equal; `uint8`.
        not_equal;
        /// 1 where `self > other`; `uint8`.
        greater;
        /// 1 where `self >= other`; `uint8`.
        greater_or_equal;
        /// 1 where `self < other`; `uint8`.
        lesser;
        /// 1 where `self <= other`; `uint8`.
        lesser_or_equal;
        /// 1 where both are non-zero.
        logical_and;
        /// 1 where either is non-zero.
        logical_or;
        /// 1 where exactly one is non-zero.
        logical_xor;
        /// `self` where positive, else `other * self`: a learnt slope, repeated like any operand.
        prelu;
    }

    /// `self + value`.
    ///
    /// # Errors
    /// `Built`.
    pub fn add_scalar(&self, value: f64) -> Result<Self> {
        self.add(&self.scalar_like(value)?)
    }

    /// `self * value`.
    ///
    /// # Errors
    /// `Built`.
    pub fn mul_scalar(&self, value: f64) -> Result<Self> {
        self.mul(&self.scalar_like(value)?)
    }

    /// `self / value`.
    ///
    /// # Errors
    /// `Built`.
    pub fn div_scalar(&self, value: f64) -> Result<Self> {
        self.div(&self.scalar_like(value)?)
    }

    /// Where `self` (`uint8`) is not 0 `yes`, else `no`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn where_cond(&self, yes: &Self, no: &Self) -> Result<Self> {
        self.graph.add_operand(|builder| builder.where_(&self.raw, &yes.raw, &no.raw))
    }

    /// `(self - zero_point) * scale`, in the scale's data type. Both are repeated in blocks: each of their dimensions
    /// divides this operand's.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn dequantize_linear(&self, scale: &Self, zero_point: &Self) -> Result<Self> {
        self.graph.add_operand(|builder| builder.dequantize_linear(&self.raw, &scale.raw, &zero_point.raw))
    }

    /// `self / scale + zero_point`, rounded to the nearest, ties to even, and limited to the zero point's data type
    /// (`int8`, `uint8` or `int32`). Both are repeated in blocks like those of [`Operand::dequantize_linear`].
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn quantize_linear(&self, scale: &Self, zero_point: &Self) -> Result<Self> {
        self.graph.add_operand(|builder| builder.quantize_linear(&self.raw, &scale.raw, &zero_point.raw))
    }

    /// A scalar of this operand's data type.
    pub(crate) fn scalar_like(&self, value: f64) -> Result<Self> {
        self.graph.scalar(self.descriptor().data_type, value)
    }
}
