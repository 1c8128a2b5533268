"""Optimizers: update rules that become part of the training graph.

Their moments and step counters are variables that a checkpoint contains and a model version does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol, Sequence

from .graph import Graph
from .operand import Operand
from .tensor import float32, int32
from .variables import Variable, Variables


@dataclass
class Update:
    """A parameter with its value and its gradient."""

    variable: Variable
    value: Operand
    gradient: Operand


class Optimizer(Protocol):
    """An update rule."""

    def step(self, graph: Graph, variables: Variables, updates: Sequence[Update]) -> None:
        """Adds the assignments of the new values to the graph."""


class LearningRateSchedule(Protocol):
    """A learning rate that depends on the step."""

    def at(self, step: Operand) -> Operand:
        """Returns the learning rate of a step, a `float32` scalar from 1."""


@dataclass(frozen=True)
class Warmup:
    """Rises linearly to `peak` over `warmup` steps and stays there."""

    peak: float
    warmup: int

    def at(self, step: Operand) -> Operand:
        return _warmup(step, self.warmup) * self.peak


@dataclass(frozen=True)
class Cosine:
    """Rises linearly to `peak` over `warmup` steps, then falls to 0 along a cosine until `steps`."""

    peak: float
    steps: int
    warmup: int = 0

    def at(self, step: Operand) -> Operand:
        # Without a warmup, step 1 has the peak rate; the rate of the last step is above 0.
        falling = max(float(self.steps) - self.warmup, 1.0)
        done = ((step + (-1.0 - self.warmup)) * (1.0 / falling)).clamp(0.0, 1.0)
        return _warmup(step, self.warmup) * (((done * math.pi).cos() + 1.0) * (self.peak / 2.0))


@dataclass(frozen=True)
class InverseSquareRoot:
    """Rises linearly to `peak` over `warmup` steps, then falls with the square root of the step."""

    peak: float
    warmup: int

    def at(self, step: Operand) -> Operand:
        fall = (step * (1.0 / max(self.warmup, 1))).clamp(low=1.0).sqrt().reciprocal()
        return _warmup(step, self.warmup) * fall * self.peak


def _warmup(step: Operand, warmup: int) -> Operand:
    return (step * (1.0 / max(warmup, 1))).clamp(0.0, 1.0)


LearningRate = float | LearningRateSchedule


def _rate(rate: LearningRate, step: Operand) -> Operand:
    return step.scalar_like(rate) if isinstance(rate, (int, float)) else rate.at(step)


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, with momentum if it is not 0."""

    lr: LearningRate
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def step(self, graph: Graph, variables: Variables, updates: Sequence[Update]) -> None:
        rate = _rate(self.lr, _count_step(graph, variables))
        for update in updates:
            direction = update.gradient
            if self.weight_decay != 0.0:
                direction = direction + update.value * self.weight_decay
            if self.momentum != 0.0:
                velocity = _moment(variables, "momentum", update.variable)
                following = graph.stored(velocity) * self.momentum + direction
                graph.assign(velocity, following)
                direction = direction + following * self.momentum if self.nesterov else following
            graph.assign(update.variable, update.value - direction * rate)


@dataclass(frozen=True)
class Adam:
    """Adam, or AdamW with a `weight_decay`, which does not pass through the moments."""

    lr: LearningRate = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def step(self, graph: Graph, variables: Variables, updates: Sequence[Update]) -> None:
        step = _count_step(graph, variables)
        rate = _rate(self.lr, step)
        # 1 / (1 - beta^t), the correction for moments that begin with 0.
        corrections = [(-(graph.scalar(beta) ** step) + 1.0).reciprocal() for beta in self.betas]
        for update in updates:
            first, second = (_moment(variables, name, update.variable) for name in ("first", "second"))
            mean = _average(graph.stored(first), self.betas[0], update.gradient)
            square = _average(graph.stored(second), self.betas[1], update.gradient * update.gradient)
            graph.assign(first, mean)
            graph.assign(second, square)
            scale = (square * corrections[1]).sqrt() + self.eps
            direction = (mean * corrections[0]) / scale
            if self.weight_decay != 0.0:
                direction = direction + update.value * self.weight_decay
            graph.assign(update.variable, update.value - direction * rate)


@dataclass(frozen=True)
class Muon:
    """Muon for matrices and filters, and `adam` for all other parameters and those whose names begin with one of
    `adam_for`. Source: Jordan et al., https://kellerjordan.github.io/posts/muon.
    """

    lr: LearningRate
    adam: Adam
    momentum: float = 0.95
    weight_decay: float = 0.0
    adam_for: Sequence[str] = field(default_factory=tuple)

    def step(self, graph: Graph, variables: Variables, updates: Sequence[Update]) -> None:
        rate = _rate(self.lr, _count_step(graph, variables))
        matrices = [it for it in updates if self._uses_muon(it.variable)]
        self.adam.step(graph, variables, [it for it in updates if not self._uses_muon(it.variable)])
        for update in matrices:
            velocity = _moment(variables, "momentum", update.variable)
            following = graph.stored(velocity) * self.momentum + update.gradient
            graph.assign(velocity, following)
            direction = _orthogonalize(update.gradient + following * self.momentum)
            if self.weight_decay != 0.0:
                direction = direction + update.value * self.weight_decay
            graph.assign(update.variable, update.value - direction * rate)

    def _uses_muon(self, variable: Variable) -> bool:
        return len(variable.shape) in (2, 4) and not variable.name.startswith(tuple(self.adam_for))


def _orthogonalize(gradient: Operand) -> Operand:
    shape = gradient.shape
    matrix = gradient.flatten(1)
    rows, columns = matrix.shape
    tall = rows > columns
    wide = matrix.transpose(0, 1) if tall else matrix
    # With a norm of at most 1, no singular value is above 1; the iteration diverges for larger ones.
    x = wide / (wide.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.transpose(0, 1)
        weights = square * -4.7750 + (square @ square) * 2.0315
        x = x * 3.4445 + weights @ x
    x = x.transpose(0, 1) if tall else x
    inputs, outputs = (rows, columns) if len(shape) == 2 else (columns, rows)
    return (x * math.sqrt(max(outputs / max(inputs, 1), 1.0))).reshape(*shape)


def clip_grad_norm(updates: Sequence[Update], norm: float) -> None:
    """Scales all gradients by one factor so that their total L2 norm is at most `norm`."""
    total = sum_of_squares(updates)
    if total is None:
        return
    # The maximum of the norm and its limit, which is not 0.
    scale = total.sqrt().clamp(low=norm).reciprocal() * norm
    for update in updates:
        update.gradient = update.gradient * scale


def sum_of_squares(updates: Sequence[Update]) -> Operand | None:
    """Returns the sum of the squares of all gradients, or `None` without any."""
    total: Operand | None = None
    for update in updates:
        square = update.gradient.sum_square()
        total = square if total is None else total + square
    return total


def _count_step(graph: Graph, variables: Variables) -> Operand:
    counter = variables.training("optimizer/step", [], int32)
    step = graph.stored(counter) + 1
    # An optimizer that contains another one requests the counter twice.
    if graph.assigned_value(counter) is None:
        graph.assign(counter, step)
    return step.to(float32)


def _moment(variables: Variables, name: str, variable: Variable) -> Variable:
    return variables.training(f"optimizer/{name}/{variable.name}", variable.shape, variable.descriptor.data_type)


def _average(old: Operand, beta: float, new: Operand) -> Operand:
    return old * beta + new * (1.0 - beta)
