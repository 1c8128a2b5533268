"""Graph building and execution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Callable, Iterable, ParamSpec, Sequence

from wit_world.imports import graphs as raw

from .errors import call
from .operand import Operand
from .tensor import DataType, Descriptor, Tensor, batched, float16, float32, pack, tensors_by_name, uint32
from .variables import Variable, VariableKind, Variables

P = ParamSpec("P")


class Inputs(Mapping[str, Operand]):
    """The inputs of a graph, by name."""

    def __init__(self, operands: dict[str, Operand]) -> None:
        self._operands = operands

    def __getitem__(self, name: str) -> Operand:
        if name not in self._operands:
            raise KeyError(f"no input `{name}`; available: {', '.join(self._operands) or 'none'}")
        return self._operands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._operands)

    def __len__(self) -> int:
        return len(self._operands)


class Graph:
    """A graph being built. Every `Operand` refers to its graph.

    ```python
    graph = Graph()
    x = graph.input("x", float32, [2, 3])
    executable = graph.build({"total": (x * x).sum(1)})
    total = executable(x=Tensor.of([1, 2, 3, 4, 5, 6], [2, 3]))["total"].tolist()  # [14.0, 77.0]
    ```
    """

    def __init__(
        self, training: bool = False, half: bool = False, instead: Mapping[str, Variable] | None = None
    ) -> None:
        self.training = training
        """Whether the graph is a training step, in which some layers behave differently."""
        self._half = half
        self._instead = dict(instead or {})
        self._builder: raw.GraphBuilder | None = raw.GraphBuilder()
        # These hold handles instead of operands, which refer to the graph: handles are freed without a collection.
        self._variables: dict[str, raw.Operand] = {}
        self._halves: dict[str, raw.Operand] = {}
        self._assigned: dict[str, raw.Operand] = {}
        self._ranges: dict[str, tuple[float, float]] = {}
        self._statistics: list[tuple[Variable, raw.Operand]] = []
        self._guard: raw.Operand | None = None
        self._sound: raw.Operand | None = None
        self._key: raw.Operand | None = None
        self._streams = 0

    @property
    def float_type(self) -> DataType:
        """The type that a model computes in: `float16` in a training step with mixed precision, else `float32`."""
        return float16 if self._half else float32

    @property
    def builder(self) -> raw.GraphBuilder:
        """The host's builder."""
        return self.builder_for("an operand")

    def builder_for(self, operator: str) -> raw.GraphBuilder:
        """The host's builder, for adding this operator."""
        if self._builder is None:
            raise RuntimeError(f"the graph is already built: {operator} cannot be added to it")
        return self._builder

    def add(self, function: Callable[P, raw.Operand], *args: P.args, **kwargs: P.kwargs) -> Operand:
        """Returns the operand that a call of the host's builder creates."""
        return Operand(self, call(function, *args, **kwargs))

    def input(self, name: str, data_type: DataType, shape: Sequence[int]) -> Operand:
        """Returns an input: a tensor that is given by name at each dispatch."""
        return self.add(self.builder.input, name, Descriptor(data_type, list(shape)))

    def inputs(self, items: Iterable[tuple[str, Descriptor]], size: int) -> Inputs:
        """Returns an input for each item, with `size` items stacked along a new first dimension."""
        stacked = [(name, batched(item, size)) for name, item in items]
        return Inputs({name: self.add(self.builder.input, name, descriptor) for name, descriptor in stacked})

    def constant(self, values: Iterable[float], shape: Sequence[int], data_type: DataType = float32) -> Operand:
        """Returns a constant tensor of these numbers in row-major order."""
        return self.add(self.builder.constant, Descriptor(data_type, list(shape)), pack(data_type, values))

    def scalar(self, value: float, data_type: DataType = float32) -> Operand:
        """Returns a constant scalar; the number is rounded to the data type."""
        return self.add(self.builder.scalar, data_type, float(value))

    def full(self, shape: Sequence[int], value: float, data_type: DataType = float32) -> Operand:
        """Returns a constant tensor with the same number in every element."""
        return self.add(self.builder.fill, Descriptor(data_type, list(shape)), float(value))

    def iota(self, shape: Sequence[int], axis: int, data_type: DataType) -> Operand:
        """Returns a tensor with the numbers 0, 1, 2, ... along `axis`."""
        return self.add(self.builder.iota, Descriptor(data_type, list(shape)), axis)

    def variable(self, variable: Variable) -> Operand:
        """Returns the variable's value at the start of the dispatch, the same operand in each call.

        A parameter is read in the data type of `Graph.float_type`.
        """
        value = self.stored(variable)
        if not self._half or variable.kind != VariableKind.PARAMETER:
            return value
        if variable.name not in self._halves:
            self._halves[variable.name] = value.to(float16).raw
        return Operand(self, self._halves[variable.name])

    def stored(self, variable: Variable) -> Operand:
        """Returns the variable's value at the start of the dispatch, in the variable's data type."""
        if variable.name not in self._variables:
            read = self._instead.get(variable.name, variable)
            self._variables[variable.name] = call(self.builder.variable, read.raw)
        return Operand(self, self._variables[variable.name])

    def random_stream(self, variables: Variables) -> tuple[Operand, int]:
        """Returns a key that changes with every dispatch and a stream that changes with every call.

        They are for the random numbers of a training step. The key is a variable of the namespace, which the graph
        increments.
        """
        if self._key is None:
            variable = variables.random_key()
            key = self.stored(variable)
            self._assign(None, variable, key + self.constant([0, 0, 1, 0], [4], uint32))
            self._key = key.raw
        self._streams += 1
        return Operand(self, self._key), self._streams - 1

    def random_uniform(self, shape: Sequence[int], key: Operand, stream: int) -> Operand:
        """Returns `float32` numbers, uniform in `[0, 1)`, that depend only on `key` (`uint32[4]`) and `stream`."""
        return self.add(self.builder.random_uniform, list(shape), key.raw, stream)

    def random_normal(self, shape: Sequence[int], key: Operand, stream: int) -> Operand:
        """Returns `float32` numbers with mean 0 and standard deviation 1 that depend only on `key` and `stream`."""
        return self.add(self.builder.random_normal, list(shape), key.raw, stream)

    def gradients(self, loss: Operand, wrt: Sequence[Operand]) -> list[Operand]:
        """Returns the gradient of `loss`, which has one element, with respect to each operand in `wrt`."""
        made = call(self.builder.gradients, loss.raw, [operand.raw for operand in wrt])
        return [Operand(self, handle) for handle in made]

    def assign(self, variable: Variable, value: Operand) -> None:
        """Assigns `value` to `variable` at the end of the dispatch. Reads in the same graph see the old value."""
        self._assign(self._guard, variable, value)

    def constrain_range(self, variable: Variable, low: float, high: float) -> None:
        """Clamps the values of all later assignments to the variable, including those of an optimizer."""
        self._ranges[variable.name] = (low, high)

    def assign_statistic(self, variable: Variable, value: Operand) -> None:
        """Assigns a value that is learnt without gradients, when the graph is built."""
        self._statistics.append((variable, value.stop_gradient().raw))

    def assigned_value(self, variable: Variable) -> Operand | None:
        """Returns the value assigned to the variable in this graph, or `None`."""
        handle = self._assigned.get(variable.name)
        return None if handle is None else Operand(self, handle)

    def set_assignment_guard(self, guard: Operand | None) -> None:
        """Makes later calls of `Graph.assign` keep the old value if `guard`, a `uint8` scalar, is 0."""
        self._guard = None if guard is None else guard.raw

    def set_statistics_guard(self, sound: Operand) -> None:
        """Makes statistics keep the old value if `sound`, a `uint8` scalar, is 0."""
        self._sound = sound.raw

    def _assign(self, guard: raw.Operand | None, variable: Variable, value: Operand) -> None:
        if variable.name in self._ranges:
            value = value.clamp(*self._ranges[variable.name])
        if guard is not None:
            value = Operand(self, guard).where(value, self.stored(variable))
        call(self.builder.assign, variable.raw, value.raw)
        self._assigned[variable.name] = value.raw

    def build(self, outputs: Mapping[str, Operand]) -> Executable:
        """Verifies and compiles the graph. A dispatch returns only the outputs named here.

        Operands cannot be added afterwards, even if this call fails.
        """
        statistics, self._statistics = self._statistics, []
        for variable, value in statistics:
            self._assign(self._sound, variable, Operand(self, value))
        builder, self._builder = self.builder, None
        named = [(name, operand.raw) for name, operand in outputs.items()]
        return Executable(call(raw.GraphBuilder.build, builder, named))


class Executable:
    """A compiled graph."""

    def __init__(self, handle: raw.Graph) -> None:
        self.raw = handle

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Runs the graph once, with every input given by name."""
        return self.dispatch(inputs)

    def dispatch(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Runs the graph once. Every input must be given exactly once, by name."""
        return tensors_by_name(call(self.raw.dispatch, [(name, tensor.raw) for name, tensor in inputs.items()]))
