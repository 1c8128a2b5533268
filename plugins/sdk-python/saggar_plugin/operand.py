"""Operands: the values of a graph, and the operators on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Sequence

from wit_world.imports import graphs as raw

from .errors import call
from .tensor import DataType, Descriptor, float32

if TYPE_CHECKING:
    from .graph import Graph

PaddingMode = raw.PaddingMode
ScatterReduction = raw.ScatterReduction
InterpolationMode = raw.InterpolationMode

Axes = int | Sequence[int] | None
Size = int | Sequence[int]


def pair(value: Size) -> tuple[int, int]:
    """Returns a height and a width: one number stands for both."""
    if isinstance(value, int):
        return (value, value)
    height, width = value
    return (height, width)


class Operand:
    """A value in a graph. It holds no data.

    Arithmetic and comparisons (`+`, `-`, `*`, `/`, `**`, `@`, `<`, `>=`, ...) create operators of the graph; a number
    on one side becomes a scalar of the operand's data type. Truth values are `uint8`. `==` compares objects, as Python
    needs it to; use `equal`.
    """

    __slots__ = ("graph", "raw", "operator")

    def __init__(self, graph: Graph, handle: raw.Operand, operator: str = "operand") -> None:
        self.graph = graph
        self.raw = handle
        self.operator = operator

    def _value(self) -> NoReturn:
        item = f"`{self.operator}` {self.data_type.name.lower()}{self.shape}"
        raise TypeError(
            f"{item} has no value while the graph is built: use `where` instead of a condition, or make it an output, "
            "dispatch the graph, and read the result"
        )

    __bool__ = __float__ = __int__ = __len__ = __iter__ = _value

    @property
    def descriptor(self) -> Descriptor:
        """Data type and shape."""
        return self.raw.descriptor()

    @property
    def shape(self) -> list[int]:
        """The shape."""
        return self.raw.descriptor().shape

    @property
    def data_type(self) -> DataType:
        """The type of the elements."""
        return self.raw.descriptor().data_type

    def label(self, label: str) -> Operand:
        """Sets the label for error messages and profiles. Returns the operand."""
        self.raw.label(label)
        return self

    def _axis(self, axis: int) -> int:
        return axis + len(self.shape) if axis < 0 else axis

    def _other(self, other: Operand | float) -> raw.Operand:
        if isinstance(other, Operand):
            return other.raw
        if isinstance(other, (int, float)):
            return self.scalar_like(other).raw
        raise TypeError(f"expected an operand or a number, not {type(other).__name__}")

    def _unary(self, name: str, *args: Any) -> Operand:
        return Operand(self.graph, call(getattr(self.graph.builder_for(f"`{name}`"), name), self.raw, *args), name)

    def _binary(self, name: str, other: Operand | float) -> Operand:
        return self._unary(name, self._other(other))

    def scalar_like(self, value: float) -> Operand:
        """Returns a scalar of the same data type."""
        return self.graph.scalar(value, self.data_type)

    # Arithmetic. Operands broadcast as in NumPy.

    def __add__(self, other: Operand | float) -> Operand:
        return self._binary("add", other)

    def __sub__(self, other: Operand | float) -> Operand:
        return self._binary("sub", other)

    def __mul__(self, other: Operand | float) -> Operand:
        return self._binary("mul", other)

    def __truediv__(self, other: Operand | float) -> Operand:
        return self._binary("div", other)

    def __pow__(self, other: Operand | float) -> Operand:
        return self._binary("pow", other)

    def __matmul__(self, other: Operand) -> Operand:
        return self._binary("matmul", other)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: float) -> Operand:
        return self.scalar_like(other) - self

    def __rtruediv__(self, other: float) -> Operand:
        return self.scalar_like(other) / self

    def __rpow__(self, other: float) -> Operand:
        return self.scalar_like(other) ** self

    def __neg__(self) -> Operand:
        return self._unary("neg")

    # Comparisons, as `uint8`.

    def __lt__(self, other: Operand | float) -> Operand:
        return self._binary("lesser", other)

    def __le__(self, other: Operand | float) -> Operand:
        return self._binary("lesser_or_equal", other)

    def __gt__(self, other: Operand | float) -> Operand:
        return self._binary("greater", other)

    def __ge__(self, other: Operand | float) -> Operand:
        return self._binary("greater_or_equal", other)

    def __and__(self, other: Operand) -> Operand:
        return self._binary("logical_and", other)

    def __or__(self, other: Operand) -> Operand:
        return self._binary("logical_or", other)

    def __xor__(self, other: Operand) -> Operand:
        return self._binary("logical_xor", other)

    def __invert__(self) -> Operand:
        return self._unary("logical_not")

    def equal(self, other: Operand | float) -> Operand:
        """1 where the elements are equal, else 0."""
        return self._binary("equal", other)

    def not_equal(self, other: Operand | float) -> Operand:
        """1 where the elements differ, else 0."""
        return self._binary("not_equal", other)

    def where(self, yes: Operand, no: Operand) -> Operand:
        """Selects `yes` where this operand (`uint8`) is not 0, else `no`."""
        return self._unary("where", yes.raw, no.raw)

    def maximum(self, other: Operand | float) -> Operand:
        """The larger value; NaN if either is NaN."""
        return self._binary("max", other)

    def minimum(self, other: Operand | float) -> Operand:
        """The smaller value; NaN if either is NaN."""
        return self._binary("min", other)

    # Elementwise functions.

    def abs(self) -> Operand:
        """The absolute value."""
        return self._unary("abs")

    __abs__ = abs

    def sign(self) -> Operand:
        """-1, 0 or 1."""
        return self._unary("sign")

    def ceil(self) -> Operand:
        """The smallest integer that is not less."""
        return self._unary("ceil")

    def floor(self) -> Operand:
        """The largest integer that is not greater."""
        return self._unary("floor")

    def round(self) -> Operand:
        """The nearest integer, ties to even."""
        return self._unary("round_even")

    def exp(self) -> Operand:
        """`e ** x`."""
        return self._unary("exp")

    def log(self) -> Operand:
        """The natural logarithm."""
        return self._unary("log")

    def sqrt(self) -> Operand:
        """The square root."""
        return self._unary("sqrt")

    def reciprocal(self) -> Operand:
        """`1 / x`."""
        return self._unary("reciprocal")

    def sin(self) -> Operand:
        """The sine of radians."""
        return self._unary("sin")

    def cos(self) -> Operand:
        """The cosine of radians."""
        return self._unary("cos")

    def tan(self) -> Operand:
        """The tangent of radians."""
        return self._unary("tan")

    def tanh(self) -> Operand:
        """The hyperbolic tangent."""
        return self._unary("tanh")

    def erf(self) -> Operand:
        """The Gauss error function."""
        return self._unary("erf")

    def relu(self) -> Operand:
        """`max(x, 0)`."""
        return self._unary("relu")

    def sigmoid(self) -> Operand:
        """`1 / (1 + e ** -x)`."""
        return self._unary("sigmoid")

    def gelu(self) -> Operand:
        """`x * (1 + erf(x / sqrt(2))) / 2`."""
        return self._unary("gelu")

    def hardswish(self) -> Operand:
        """`x * clamp(x / 6 + 0.5, 0, 1)`."""
        return self._unary("hard_swish")

    def softplus(self) -> Operand:
        """`log(1 + e ** x)`."""
        return self._unary("softplus")

    def softsign(self) -> Operand:
        """`x / (1 + |x|)`."""
        return self._unary("softsign")

    def elu(self, alpha: float = 1.0) -> Operand:
        """`x` if positive, else `alpha * (e ** x - 1)`."""
        return self._unary("elu", float(alpha))

    def leaky_relu(self, slope: float = 0.01) -> Operand:
        """`x` if positive, else `slope * x`."""
        return self._unary("leaky_relu", float(slope))

    def hardsigmoid(self, alpha: float = 1.0 / 6.0, beta: float = 0.5) -> Operand:
        """`clamp(alpha * x + beta, 0, 1)`."""
        return self._unary("hard_sigmoid", float(alpha), float(beta))

    def prelu(self, slope: Operand) -> Operand:
        """`x` if positive, else `slope * x`."""
        return self._binary("prelu", slope)

    def clamp(self, low: float | None = None, high: float | None = None) -> Operand:
        """Limits the elements to `[low, high]`; `None` is no limit."""
        limits = [None if limit is None else float(limit) for limit in (low, high)]
        return self._unary("clamp", *limits)

    def to(self, data_type: DataType) -> Operand:
        """Converts to another data type. Float to integer truncates toward zero and saturates."""
        return self._unary("cast", data_type)

    def stop_gradient(self) -> Operand:
        """The operand, through which no gradients flow."""
        return self._unary("stop_gradient")

    def softmax(self, axis: int) -> Operand:
        """`e ** x` divided by its sum along `axis`."""
        return self._unary("softmax", self._axis(axis))

    def softmax_cross_entropy(self, labels: Operand) -> Operand:
        """The mean negative log-probability of the labels `[batch]` under these logits `[batch, classes]`."""
        return self._binary("softmax_cross_entropy", labels)

    # Reductions: over all axes without `axis`.

    def _reduce(self, name: str, axis: Axes, keep: bool) -> Operand:
        axes = None if axis is None else [self._axis(it) for it in ([axis] if isinstance(axis, int) else axis)]
        return self._unary(name, raw.ReduceOptions(axes, keep))

    def sum(self, axis: Axes = None, keep: bool = False) -> Operand:
        """The sum; 0 for no elements."""
        return self._reduce("reduce_sum", axis, keep)

    def mean(self, axis: Axes = None, keep: bool = False) -> Operand:
        """The mean."""
        return self._reduce("reduce_mean", axis, keep)

    def amax(self, axis: Axes = None, keep: bool = False) -> Operand:
        """The largest element."""
        return self._reduce("reduce_max", axis, keep)

    def amin(self, axis: Axes = None, keep: bool = False) -> Operand:
        """The smallest element."""
        return self._reduce("reduce_min", axis, keep)

    def prod(self, axis: Axes = None, keep: bool = False) -> Operand:
        """The product."""
        return self._reduce("reduce_product", axis, keep)

    def norm(self, axis: Axes = None, keep: bool = False) -> Operand:
        """The square root of the sum of squares."""
        return self._reduce("reduce_l2", axis, keep)

    def sum_square(self, axis: Axes = None, keep: bool = False) -> Operand:
        """The sum of squares."""
        return self._reduce("reduce_sum_square", axis, keep)

    def logsumexp(self, axis: Axes = None, keep: bool = False) -> Operand:
        """The logarithm of the sum of exponentials, without overflow."""
        return self._reduce("reduce_log_sum_exp", axis, keep)

    def cumsum(self, axis: int, exclusive: bool = False, reversed: bool = False) -> Operand:
        """The sum of each element and all elements before it along `axis`."""
        return self._unary("cumulative_sum", self._axis(axis), exclusive, reversed)

    def argmax(self, axis: int, keep: bool = False) -> Operand:
        """The index of the largest element along `axis`, the first one of equal elements. `int32`."""
        return self._unary("arg_max", self._axis(axis), keep)

    def argmin(self, axis: int, keep: bool = False) -> Operand:
        """The index of the smallest element along `axis`, the first one of equal elements. `int32`."""
        return self._unary("arg_min", self._axis(axis), keep)

    # Shapes.

    def reshape(self, *shape: int) -> Operand:
        """The same elements in row-major order with another shape."""
        return self._unary("reshape", list(shape))

    def flatten(self, axis: int = 1) -> Operand:
        """Joins all dimensions from `axis` on."""
        shape = self.shape
        if axis > len(shape):
            raise ValueError(f"an operand of shape {shape} cannot be flattened from axis {axis}")
        joined = 1
        for size in shape[axis:]:
            joined *= size
        return self.reshape(*shape[:axis], joined)

    def permute(self, *axes: int) -> Operand:
        """Reorders the axes: axis `i` of the result is axis `axes[i]`."""
        return self._unary("transpose", list(axes))

    def transpose(self, first: int, second: int) -> Operand:
        """Exchanges two axes."""
        axes = list(range(len(self.shape)))
        first, second = self._axis(first), self._axis(second)
        axes[first], axes[second] = axes[second], axes[first]
        return self.permute(*axes)

    def expand(self, *shape: int) -> Operand:
        """Broadcasts to a shape: dimensions of size 1 are repeated, aligned at the last dimension."""
        return self._unary("expand", list(shape))

    def slice(self, starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int] | None = None) -> Operand:
        """Along each axis, a window of `sizes[i]` elements from `starts[i]`, and of those every `strides[i]`-th."""
        return self._unary("slice", list(starts), list(sizes), None if strides is None else list(strides))

    def split(self, sizes: Sequence[int], axis: int) -> list[Operand]:
        """Splits along `axis` into parts of these sizes."""
        parts = call(self.graph.builder.split, self.raw, list(sizes), self._axis(axis))
        return [Operand(self.graph, part) for part in parts]

    def pad(self, before: Sequence[int], after: Sequence[int], mode: PaddingMode | None = None) -> Operand:
        """Adds elements before and after along each axis, zeros by default."""
        return self._unary("pad", list(before), list(after), mode or raw.PaddingMode_Constant(0.0))

    def flip(self, axes: Sequence[int]) -> Operand:
        """Reverses the order along these axes."""
        return self._unary("reverse", [self._axis(axis) for axis in axes])

    def tile(self, *repetitions: int) -> Operand:
        """Repeats the tensor along each axis."""
        return self._unary("tile", list(repetitions))

    def triu(self, diagonal: int = 0) -> Operand:
        """Keeps the elements on and above a diagonal of the last two dimensions, and sets the others to zero."""
        return self._unary("triangular", True, diagonal)

    def tril(self, diagonal: int = 0) -> Operand:
        """Keeps the elements on and below a diagonal of the last two dimensions, and sets the others to zero."""
        return self._unary("triangular", False, diagonal)

    # Selection.

    def gather(self, indices: Operand, axis: int) -> Operand:
        """Selects slices along `axis`. Negative indices count from the end; others are clamped."""
        return self._unary("gather", indices.raw, self._axis(axis))

    def gather_elements(self, indices: Operand, axis: int) -> Operand:
        """Selects elements along `axis` by the index at the same position."""
        return self._unary("gather_elements", indices.raw, self._axis(axis))

    def scatter_elements(
        self, indices: Operand, updates: Operand, axis: int, reduction: ScatterReduction = ScatterReduction.NONE
    ) -> Operand:
        """The operand with each update combined into the position that `gather_elements` would read."""
        return self._unary("scatter_elements", indices.raw, updates.raw, self._axis(axis), reduction)

    def one_hot(self, depth: int, data_type: DataType = float32) -> Operand:
        """1 at the index, else 0, along a new last dimension of size `depth`."""
        return self._unary("one_hot", depth, data_type)

    # Matrices and images `[batch, channels, height, width]`.

    def matmul(self, other: Operand) -> Operand:
        """The matrix product, with leading dimensions broadcast."""
        return self._binary("matmul", other)

    def conv2d(
        self,
        weight: Operand,
        bias: Operand | None = None,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
    ) -> Operand:
        """Two-dimensional convolution. `weight` is `[out, in / groups, height, width]`, `bias` `[out]`."""
        height, width = pair(padding)
        options = raw.Conv2dOptions((height, height, width, width), pair(stride), pair(dilation), groups, None, None)
        return self._unary("conv2d", weight.raw, None if bias is None else bias.raw, options)

    def conv_transpose2d(
        self,
        weight: Operand,
        bias: Operand | None = None,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
    ) -> Operand:
        """Transposed convolution. `weight` is `[in, out, height, width]`, `bias` `[out]`."""
        height, width = pair(padding)
        options = raw.ConvTranspose2dOptions(
            (height, height, width, width), pair(stride), None, pair(output_padding), None, None, None, None
        )
        return self._unary("conv_transpose2d", weight.raw, None if bias is None else bias.raw, options)

    def _pool(self, name: str, kernel_size: Size, stride: Size | None, padding: Size) -> Operand:
        height, width = pair(padding)
        padded = (height, height, width, width)
        strides = pair(kernel_size if stride is None else stride)
        return self._unary(name, raw.Pool2dOptions(pair(kernel_size), padded, strides, None, None, None, None))

    def max_pool2d(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> Operand:
        """The largest element of each window. The windows do not overlap by default."""
        return self._pool("max_pool2d", kernel_size, stride, padding)

    def avg_pool2d(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> Operand:
        """The mean of each window, without padding. The windows do not overlap by default."""
        return self._pool("average_pool2d", kernel_size, stride, padding)

    def interpolate(self, size: Size, mode: InterpolationMode = InterpolationMode.NEAREST_NEIGHBOR) -> Operand:
        """Resizes the height and width of images."""
        return self._unary("resample2d", raw.Resample2dOptions(mode, None, pair(size), None))

    def layer_norm(self, axes: Sequence[int], scale: Operand, bias: Operand, epsilon: float = 1e-5) -> Operand:
        """Normalizes over `axes`, then scales and shifts."""
        return self._unary("layer_normalization", scale.raw, bias.raw, [self._axis(it) for it in axes], float(epsilon))

    def per_image_standardization(self) -> Operand:
        """Normalizes each item of a batch over all its N elements: `(x - mean) / max(std, 1 / sqrt(N))`."""
        return self._unary("per_image_standardization")

    def batch_norm(
        self, mean: Operand, variance: Operand, scale: Operand, bias: Operand, epsilon: float = 1e-5
    ) -> Operand:
        """Normalizes with one mean and variance per channel, which is axis 1, then scales and shifts."""
        return self._unary("batch_normalization", mean.raw, variance.raw, scale.raw, bias.raw, 1, float(epsilon))


def concat(operands: Sequence[Operand], axis: int) -> Operand:
    """Concatenates operands along `axis`."""
    if not operands:
        raise ValueError("there is no operand to concatenate")
    graph, axis = operands[0].graph, operands[0]._axis(axis)
    return Operand(graph, call(graph.builder.concat, [it.raw for it in operands], axis))
