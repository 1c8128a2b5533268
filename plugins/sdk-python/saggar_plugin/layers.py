"""Layers: variables and the operators that use them, with PyTorch's names and initial values.

A layer is created with a scope of variables and called with an operand. Parameters are stored as `float32`. In mixed
precision, layers compute in `float16` and normalizations in `float32`; the inputs must then be cast to `Graph.float_type`.
"""

from __future__ import annotations

import functools
import math
from typing import Callable, Concatenate, ParamSpec, Protocol, TypeVar

from .errors import HostError
from .operand import Operand, Size, pair
from .tensor import float32, int32
from .variables import Initializer, Variable, Variables, constant, fan_in_uniform, normal, xavier_uniform, zeros


class _Layer(Protocol):
    name: str


P = ParamSpec("P")
L = TypeVar("L", bound=_Layer)


def _named(forward: Callable[Concatenate[L, P], Operand]) -> Callable[Concatenate[L, P], Operand]:
    """Labels the result of a layer with its name, and names the innermost layer in errors."""

    def named(self: L, /, *args: P.args, **kwargs: P.kwargs) -> Operand:
        try:
            operand = forward(self, *args, **kwargs)
        except HostError as error:
            error.layer = error.layer or self.name
            raise
        return operand.label(self.name) if self.name else operand

    functools.update_wrapper(named, forward)
    return named


class Linear:
    """`x @ weight + bias`. Shape: `[..., in_features]` -> `[..., out_features]`."""

    def __init__(
        self,
        v: Variables,
        in_features: int,
        out_features: int,
        bias: bool = True,
        initial: Initializer | None = None,
    ) -> None:
        self.name = v.scope_name
        fan_in = fan_in_uniform(in_features)
        self.weight = v.parameter("weight", [in_features, out_features], initial or fan_in)
        self.bias: Variable | None = None
        if bias:
            self.bias = v.parameter("bias", [out_features], zeros() if initial else fan_in)

    @_named
    def __call__(self, x: Operand) -> Operand:
        y = x @ x.graph.variable(self.weight)
        if self.bias is not None:
            y = y + x.graph.variable(self.bias)
        return y


class Conv2d:
    """Two-dimensional convolution. Shape: `[batch, in, height, width]` -> `[batch, out, height', width']`."""

    def __init__(
        self,
        v: Variables,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self.name = v.scope_name
        height, width = pair(kernel_size)
        inputs = in_channels // max(groups, 1)
        initial = fan_in_uniform(inputs * height * width)
        self.weight = v.parameter("weight", [out_channels, inputs, height, width], initial)
        self.bias = v.parameter("bias", [out_channels], initial) if bias else None
        self._options = (stride, padding, dilation, groups)

    @_named
    def __call__(self, x: Operand) -> Operand:
        bias = None if self.bias is None else x.graph.variable(self.bias)
        return x.conv2d(x.graph.variable(self.weight), bias, *self._options)


class ConvTranspose2d:
    """Transposed convolution. Shape: `[batch, in, height, width]` -> `[batch, out, height', width']`."""

    def __init__(
        self,
        v: Variables,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
    ) -> None:
        self.name = v.scope_name
        height, width = pair(kernel_size)
        # As in PyTorch, which computes the fan in from the weight's second dimension.
        initial = fan_in_uniform(out_channels * height * width)
        self.weight = v.parameter("weight", [in_channels, out_channels, height, width], initial)
        self.bias = v.parameter("bias", [out_channels], initial)
        self._options = (stride, padding, output_padding)

    @_named
    def __call__(self, x: Operand) -> Operand:
        weight, bias = x.graph.variable(self.weight), x.graph.variable(self.bias)
        return x.conv_transpose2d(weight, bias, *self._options)


class Embedding:
    """A vector for each index. Shape: `[...]` of an integer type -> `[..., features]`."""

    def __init__(self, v: Variables, count: int, features: int, std: float = 1.0) -> None:
        self.name = v.scope_name
        self.weight = v.parameter("weight", [count, features], normal(0.0, std))

    @_named
    def __call__(self, indices: Operand) -> Operand:
        return indices.graph.variable(self.weight).gather(indices, 0)

    @_named
    def logits(self, x: Operand) -> Operand:
        """Scores every index by the product with its vector. Shape: `[..., features]` -> `[..., count]`."""
        return x @ x.graph.variable(self.weight).transpose(0, 1)


class PositionEmbedding:
    """Adds a learnt vector for each place. Shape: `[..., length, features]`, unchanged."""

    def __init__(self, v: Variables, length: int, features: int) -> None:
        self.name = v.scope_name
        self.weight = v.parameter("weight", [length, features], normal(0.0, 0.02))

    @_named
    def __call__(self, x: Operand) -> Operand:
        *_, length, features = x.shape
        return x + x.graph.variable(self.weight).slice([0, 0], [length, features])


class Dropout:
    """Sets a share of the elements to zero in training, and scales the others by `1 / (1 - rate)`."""

    def __init__(self, v: Variables, rate: float = 0.5) -> None:
        self._variables = v
        self.rate = rate

    def __call__(self, x: Operand) -> Operand:
        if not x.graph.training or self.rate <= 0.0:
            return x
        key, stream = x.graph.random_stream(self._variables)
        dropped = x.graph.random_uniform(x.shape, key, stream) < self.rate
        # With a rate of 1 no element is kept; the limit avoids a division by zero.
        scaled = x * (1.0 / max(1.0 - self.rate, 2.0**-52))
        return dropped.where(x.scalar_like(0.0), scaled)


class LayerNorm:
    """Normalizes over the last dimension, then scales and shifts. Shape: `[..., features]`, unchanged."""

    def __init__(self, v: Variables, features: int, epsilon: float = 1e-5) -> None:
        self.name = v.scope_name
        self.scale = v.parameter("scale", [features], constant(1.0))
        self.bias = v.parameter("bias", [features], zeros())
        self.epsilon = epsilon

    @_named
    def __call__(self, x: Operand) -> Operand:
        scale, bias = (_float32(x.graph.variable(it)) for it in (self.scale, self.bias))
        y = _float32(x).layer_norm([-1], scale, bias, self.epsilon)
        return _like(y, x)


class BatchNorm2d:
    """Normalizes each channel, which is axis 1: over the batch in training, by running statistics otherwise."""

    def __init__(self, v: Variables, channels: int, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        self.name = v.scope_name
        self.scale = v.parameter("scale", [channels], constant(1.0))
        self.bias = v.parameter("bias", [channels], zeros())
        self.mean = v.statistic("mean", [channels], zeros())
        self.variance = v.statistic("variance", [channels], constant(1.0))
        self.momentum = momentum
        self.epsilon = epsilon

    @_named
    def __call__(self, x: Operand) -> Operand:
        graph, wide = x.graph, _float32(x)
        if graph.training:
            mean, variance = self._update(wide)
        else:
            mean, variance = graph.variable(self.mean), graph.variable(self.variance)
        scale, bias = (_float32(graph.variable(it)) for it in (self.scale, self.bias))
        return _like(wide.batch_norm(mean, variance, scale, bias, self.epsilon), x)

    def _update(self, x: Operand) -> tuple[Operand, Operand]:
        axes = [axis for axis in range(len(x.shape)) if axis != 1]
        centre = x.mean(axes, keep=True)
        centred = x - centre
        variance = (centred * centred).mean(axes)
        mean = centre.reshape(*variance.shape)
        count = math.prod(x.shape[axis] for axis in axes)
        # The running variance is the unbiased estimate.
        drawn = variance * (count / max(count - 1.0, 1.0))
        for variable, new in ((self.mean, mean), (self.variance, drawn)):
            old = x.graph.variable(variable) * (1.0 - self.momentum)
            x.graph.assign_statistic(variable, old + new * self.momentum)
        return mean, variance


class MultiHeadAttention:
    """Attention of `x` to `memory`. Shape: `[batch, length, features]`, unchanged."""

    def __init__(self, v: Variables, features: int, heads: int) -> None:
        self.name = v.scope_name
        if heads < 1 or features % heads:
            raise ValueError(f"{features} features cannot be divided into {heads} heads")
        initial = xavier_uniform(features, features)
        self.query, self.key, self.value, self.output = (
            Linear(v.scope(name), features, features, initial=initial)
            for name in ("query", "key", "value", "output")
        )
        self.heads = heads

    @_named
    def __call__(
        self, x: Operand, memory: Operand | None = None, causal: bool = False, padding: Operand | None = None
    ) -> Operand:
        memory = x if memory is None else memory
        q, k, v = self._split(self.query(x)), self._split(self.key(memory)), self._split(self.value(memory))
        found = scaled_dot_product_attention(q, k, v, causal, padding)
        return self.output(found.permute(0, 2, 1, 3).reshape(*x.shape))

    def _split(self, x: Operand) -> Operand:
        batch, length, features = x.shape
        return x.reshape(batch, length, self.heads, features // self.heads).permute(0, 2, 1, 3)


def scaled_dot_product_attention(
    q: Operand, k: Operand, v: Operand, causal: bool = False, padding: Operand | None = None
) -> Operand:
    """`softmax(q k' / sqrt(features)) v`, in which masked keys have no weight.

    Shapes: `q` `[batch, heads, queries, features]`, `k` and `v` `[batch, heads, keys, features]`, `padding`
    `[batch, keys]` (`uint8`, 1 for keys to ignore). `causal` ignores the keys after a query, aligned at the ends.
    """
    _, _, queries, width = q.shape
    batch, _, keys, _ = k.shape
    # Scaling before the product keeps the scores within the range of float16.
    scores = ((q * (1.0 / math.sqrt(max(width, 1)))) @ k.permute(0, 1, 3, 2)).to(float32)
    hidden = None if padding is None else padding.reshape(batch, 1, 1, keys)
    if causal:
        query, key = (q.graph.iota([queries, keys], axis, int32) for axis in (0, 1))
        later = key > query + (keys - queries)
        hidden = later if hidden is None else hidden | later
    if hidden is not None:
        scores = hidden.where(scores.scalar_like(-1e9), scores)
    return scores.softmax(3).to(v.data_type) @ v


def padding_mask(tokens: Operand, padding: int) -> Operand:
    """Returns 1 where a token is `padding`, else 0."""
    return tokens.to(int32).equal(padding)


def _float32(x: Operand) -> Operand:
    return x if x.data_type == float32 else x.to(float32)


def _like(y: Operand, x: Operand) -> Operand:
    return y if x.data_type == float32 else y.to(x.data_type)
