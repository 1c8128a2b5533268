//! The values of a graph and what can be done with them.
//!
//! Names and meaning are those of W3C WebNN's `MLGraphBuilder`. Where two operands are combined element by element,
//! dimensions of size 1 are repeated, aligned at the last dimension. Every method answers `Host` where the host refuses
//! the operands' shapes or data types, and `Built` after the graph was built.

mod movement;

use std::rc::Rc;

use crate::bindings::graphs as raw;
use crate::bindings::graphs::{Conv2dOptions, GemmOptions, Pool2dOptions, ReduceOptions};
use crate::bindings::tensors::{DataType, Descriptor};
use crate::error::{Error, Result};
use crate::graph::Graph;

/// A value in a graph. It holds no data. Clones are the same value.
#[derive(Debug, Clone)]
pub struct Operand {
    graph: Graph,
    raw: Rc<raw::Operand>,
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// `Host`; `Built`.
        pub fn $name(&self) -> Result<Self> {
            self.graph.make(|builder| builder.$name(&self.raw))
        }
    )* };
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// `Host`; `Built`.
        pub fn $name(&self, other: &Self) -> Result<Self> {
            self.graph.make(|builder| builder.$name(&self.raw, &other.raw))
        }
    )* };
}

macro_rules! reduce {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// Reduces `axes`, or all of them if there are none; they stay with size 1 where `keep` says so.
        ///
        /// # Errors
        /// `Host`; `Built`.
        pub fn $name(&self, axes: &[u32], keep: bool) -> Result<Self> {
            let axes = if axes.is_empty() { None } else { Some(axes.to_vec()) };
            let options = ReduceOptions { axes, keep_dimensions: Some(keep) };
            self.graph.make(|builder| builder.$name(&self.raw, &options))
        }
    )* };
}

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
        self.graph.make(|builder| builder.cast(&self.raw, data_type))
    }

    /// Limited to `[min, max]`; none is no limit.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn clamp(&self, min: Option<f64>, max: Option<f64>) -> Result<Self> {
        self.graph.make(|builder| builder.clamp(&self.raw, min, max))
    }

    /// `x` where positive, else `alpha * (exp(x) - 1)`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn elu(&self, alpha: f32) -> Result<Self> {
        self.graph.make(|builder| builder.elu(&self.raw, alpha))
    }

    /// `x` where positive, else `alpha * x`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn leaky_relu(&self, alpha: f32) -> Result<Self> {
        self.graph.make(|builder| builder.leaky_relu(&self.raw, alpha))
    }

    /// `clamp(alpha * x + beta, 0, 1)`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn hard_sigmoid(&self, alpha: f32, beta: f32) -> Result<Self> {
        self.graph.make(|builder| builder.hard_sigmoid(&self.raw, alpha, beta))
    }

    /// `exp(x)` over its sum along `axis`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn softmax(&self, axis: u32) -> Result<Self> {
        self.graph.make(|builder| builder.softmax(&self.raw, axis))
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
        /// The matrix product, leading dimensions broadcast.
        matmul;
        /// `self` are logits `[batch, classes]`, `other` labels `[batch]` of an integer type: the mean over the batch of
        /// the negative log-probability of each label, a scalar.
        softmax_cross_entropy;
    }

    /// `self + value`.
    ///
    /// # Errors
    /// `Built`.
    pub fn add_scalar(&self, value: f64) -> Result<Self> {
        self.add(&self.like(value)?)
    }

    /// `self * value`.
    ///
    /// # Errors
    /// `Built`.
    pub fn mul_scalar(&self, value: f64) -> Result<Self> {
        self.mul(&self.like(value)?)
    }

    /// `self / value`.
    ///
    /// # Errors
    /// `Built`.
    pub fn div_scalar(&self, value: f64) -> Result<Self> {
        self.div(&self.like(value)?)
    }

    /// Where `self` (`uint8`) is not 0 `yes`, else `no`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn choose(&self, yes: &Self, no: &Self) -> Result<Self> {
        self.graph.make(|builder| builder.where_(&self.raw, &yes.raw, &no.raw))
    }

    /// A scalar of this operand's data type.
    fn like(&self, value: f64) -> Result<Self> {
        self.graph.scalar(self.descriptor().data_type, value)
    }
}

/// Reductions.
impl Operand {
    reduce! {
        /// The sum; of nothing: 0.
        reduce_sum;
        /// The mean; of nothing: NaN.
        reduce_mean;
        /// The largest.
        reduce_max;
        /// The smallest.
        reduce_min;
        /// The product; of nothing: 1.
        reduce_product;
        /// The sum of magnitudes.
        reduce_l1;
        /// The square root of the sum of squares.
        reduce_l2;
        /// The logarithm of the sum.
        reduce_log_sum;
        /// The logarithm of the sum of exponentials, without overflow.
        reduce_log_sum_exp;
        /// The sum of squares.
        reduce_sum_square;
    }

    /// The index of the largest element along `axis`, the first of equals; `int32`. The axis goes.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn arg_max(&self, axis: u32) -> Result<Self> {
        self.graph.make(|builder| builder.arg_max(&self.raw, axis, false))
    }

    /// The index of the smallest element along `axis`, the first of equals; `int32`. The axis goes.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn arg_min(&self, axis: u32) -> Result<Self> {
        self.graph.make(|builder| builder.arg_min(&self.raw, axis, false))
    }
}

/// Products, convolutions and normalisation.
impl Operand {
    /// `alpha * self * b + beta * c` for matrices.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn gemm(&self, b: &Self, c: Option<&Self>, options: GemmOptions) -> Result<Self> {
        self.graph.make(|builder| builder.gemm(&self.raw, &b.raw, c.map(Self::raw), options))
    }

    /// Two-dimensional convolution, with `bias` one number an output channel.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn conv2d(&self, filter: &Self, bias: Option<&Self>, options: Conv2dOptions) -> Result<Self> {
        self.graph.make(|builder| builder.conv2d(&self.raw, &filter.raw, bias.map(Self::raw), options))
    }

    /// The largest of each window of `[height, width]`, windows side by side.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn max_pool2d(&self, window: [u32; 2]) -> Result<Self> {
        self.max_pool2d_with(side_by_side(window))
    }

    /// The largest of each window.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn max_pool2d_with(&self, options: Pool2dOptions) -> Result<Self> {
        self.graph.make(|builder| builder.max_pool2d(&self.raw, options))
    }

    /// The mean of each window of `[height, width]`, windows side by side.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn average_pool2d(&self, window: [u32; 2]) -> Result<Self> {
        self.average_pool2d_with(side_by_side(window))
    }

    /// The mean of each window, padding not counted.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn average_pool2d_with(&self, options: Pool2dOptions) -> Result<Self> {
        self.graph.make(|builder| builder.average_pool2d(&self.raw, options))
    }

    /// Normalised over `axes`, then scaled and shifted.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn layer_normalization(&self, scale: &Self, bias: &Self, axes: &[u32], epsilon: f32) -> Result<Self> {
        self.graph.make(|builder| {
            builder.layer_normalization(&self.raw, Some(&scale.raw), Some(&bias.raw), Some(axes), epsilon)
        })
    }
}

/// The operand itself.
impl Operand {
    pub(crate) fn new(graph: &Graph, raw: Rc<raw::Operand>) -> Self {
        Self { graph: graph.clone(), raw }
    }

    pub(crate) fn raw(&self) -> &raw::Operand {
        &self.raw
    }

    pub(crate) fn shared(&self) -> &Rc<raw::Operand> {
        &self.raw
    }

    /// The graph it belongs to.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Its data type and shape.
    pub fn descriptor(&self) -> Descriptor {
        self.raw.descriptor()
    }

    /// Its shape.
    pub fn shape(&self) -> Vec<u32> {
        self.descriptor().shape
    }

    /// The operand, with a name for error messages and profiles.
    #[must_use]
    pub fn label(self, label: &str) -> Self {
        self.raw.label(label);
        self
    }
}

/// Joined along `axis`.
///
/// # Errors
/// `Host` if shapes or data types disagree; `Shape` if there is nothing to join; `Built`.
pub fn concat(operands: &[&Operand], axis: u32) -> Result<Operand> {
    let Some(first) = operands.first() else {
        let what = "what is joined".to_owned();
        return Err(Error::Shape { what, expected: "at least one operand", given: Vec::new() });
    };
    let raw: Vec<&raw::Operand> = operands.iter().map(|operand| operand.raw()).collect();
    first.graph.make(|builder| builder.concat(&raw, axis))
}

/// The share of the batch whose largest logit is the label's; a `float32` scalar.
///
/// Shape: `logits` `[batch, classes]`, `labels` `[batch]` of an integer type.
///
/// # Errors
/// `Host`; `Built`.
pub fn accuracy(logits: &Operand, labels: &Operand) -> Result<Operand> {
    let right = logits.arg_max(1)?.equal(&labels.cast(DataType::Int32)?)?;
    right.cast(DataType::Float32)?.reduce_mean(&[], false)
}

fn side_by_side([height, width]: [u32; 2]) -> Pool2dOptions {
    let window = Some((height, width));
    Pool2dOptions { window_dimensions: window, strides: window, ..Pool2dOptions::default() }
}

macro_rules! nothing_by_default {
    ($($options:ident { $($field:ident),* })*) => { $(
        /// WebNN's defaults.
        impl Default for $options {
            fn default() -> Self {
                Self { $($field: None),* }
            }
        }
    )* };
}
nothing_by_default! {
    Conv2dOptions { padding, strides, dilations, groups, input_layout, filter_layout }
    Pool2dOptions { window_dimensions, padding, strides, dilations, layout, output_shape_rounding }
    GemmOptions { alpha, beta, a_transpose, b_transpose }
    ReduceOptions { axes, keep_dimensions }
}
