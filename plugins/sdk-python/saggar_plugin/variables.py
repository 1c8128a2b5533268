"""Variables: named state that outlives a dispatch."""

from __future__ import annotations

import math
from typing import Sequence

from wit_world.imports import variables as raw

from .errors import call
from .tensor import DataType, Descriptor, float32, pack, uint32

Initializer = raw.Initializer
VariableKind = raw.VariableKind


def zeros() -> Initializer:
    """Every element is 0."""
    return raw.Initializer_Zeros()


def constant(value: float) -> Initializer:
    """Every element is `value`."""
    return raw.Initializer_Constant(value)


def uniform(low: float, high: float) -> Initializer:
    """Uniformly distributed between `low` (inclusive) and `high` (exclusive)."""
    return raw.Initializer_Uniform((low, high))


def normal(mean: float = 0.0, std: float = 1.0) -> Initializer:
    """Normally distributed."""
    return raw.Initializer_Normal((mean, std))


def elements(data: bytes) -> Initializer:
    """These little-endian elements."""
    return raw.Initializer_Bytes(data)


def fan_in_uniform(fan_in: float) -> Initializer:
    """Uniform in plus or minus `1 / sqrt(fan in)`, the initial weights of PyTorch's layers."""
    bound = 1.0 / math.sqrt(max(fan_in, 1.0))
    return uniform(-bound, bound)


def xavier_uniform(inputs: int, outputs: int) -> Initializer:
    """Uniform in plus or minus `sqrt(6 / (inputs + outputs))`. Source: Glorot and Bengio, AISTATS 2010."""
    bound = math.sqrt(6.0 / max(inputs + outputs, 1.0))
    return uniform(-bound, bound)


class Variable:
    """One tensor of state: a parameter, a running mean, a moment of an optimizer."""

    def __init__(self, handle: raw.Variable, name: str, descriptor: Descriptor, kind: VariableKind) -> None:
        self.raw = handle
        self.name = name
        self.descriptor = descriptor
        self.kind = kind

    @property
    def shape(self) -> list[int]:
        """The shape."""
        return list(self.descriptor.shape)

    @property
    def scope(self) -> str:
        """The name without its last part: the name of the layer that owns the variable."""
        return self.name.rpartition("/")[0]

    def read(self) -> bytes:
        """Returns the elements, little-endian, in row-major order. Waits for the dispatches that write them."""
        return call(self.raw.read)

    def write(self, data: bytes) -> None:
        """Replaces the elements."""
        call(self.raw.write, data)


class Variables:
    """A namespace of variables: what a checkpoint stores and a model version contains."""

    def __init__(self, handle: raw.Variables, seed: int = 0) -> None:
        self.raw = handle
        self._seed = seed
        self._prefix = ""
        self._made: dict[str, Variable] = {}

    @classmethod
    def seeded(cls, seed: int) -> Variables:
        """Creates an empty namespace, whose random initial values depend on `seed`."""
        return cls(raw.Variables(seed), seed)

    def scope(self, name: str) -> Variables:
        """Returns the same namespace, in which all names begin with `name` and a slash."""
        return self._with_prefix(f"{self._prefix}{name}/")

    @property
    def root(self) -> Variables:
        """The same namespace without a scope."""
        return self._with_prefix("")

    @property
    def scope_name(self) -> str:
        """The name of this scope."""
        return self._prefix.rstrip("/")

    def _with_prefix(self, prefix: str) -> Variables:
        scoped = Variables(self.raw, self._seed)
        scoped._prefix = prefix
        scoped._made = self._made
        return scoped

    def get(self, name: str, descriptor: Descriptor, initial: Initializer, kind: VariableKind) -> Variable:
        """Returns the variable with this name, which the first call creates."""
        name = self._prefix + name
        handle = call(self.raw.get, name, descriptor, initial, kind)
        # Graphs cache operands by variable, so every call returns the same object.
        return self._made.setdefault(name, Variable(handle, name, descriptor, kind))

    def parameter(self, name: str, shape: Sequence[int], initial: Initializer) -> Variable:
        """Returns a trained `float32` variable."""
        return self.get(name, Descriptor(float32, list(shape)), initial, VariableKind.PARAMETER)

    def statistic(self, name: str, shape: Sequence[int], initial: Initializer) -> Variable:
        """Returns a `float32` variable that is learnt without gradients and needed for prediction."""
        return self.get(name, Descriptor(float32, list(shape)), initial, VariableKind.STATISTIC)

    def training(self, name: str, shape: Sequence[int], data_type: DataType = float32) -> Variable:
        """Returns a variable that is only needed to continue training. It begins with zeros."""
        return self.get(name, Descriptor(data_type, list(shape)), zeros(), VariableKind.TRAINING)

    def random_key(self) -> Variable:
        """Returns the key of random numbers in graphs."""
        first = pack(uint32, [self._seed & 0xFFFFFFFF, self._seed >> 32, 0, 0])
        return self.root.get("random/key", Descriptor(uint32, [4]), elements(first), VariableKind.TRAINING)

    def parameters(self) -> list[Variable]:
        """Returns the trained variables that were requested so far, by name."""
        return [it for _, it in sorted(self._made.items()) if it.kind == VariableKind.PARAMETER]

    def names(self) -> list[str]:
        """Returns every name, sorted."""
        return self.raw.names()
