"""Exponential moving averages of the parameters."""

from __future__ import annotations

from .graph import Graph
from .tensor import float32, int32
from .variables import Variable, Variables


def update_averages(graph: Graph, variables: Variables, decay: float) -> None:
    """Adds the update of the averages to the graph, after the optimizer has assigned the parameters."""
    counter = variables.training("average/step", [], int32)
    step = graph.stored(counter)
    graph.assign(counter, step + 1)
    # The first step ignores the initial zeros, and the decay grows with the step so that early values have less weight.
    done = step.to(float32)
    old = (done / (done + 9.0)).clamp(high=decay)
    new = -old + 1.0
    for parameter in variables.parameters():
        mean = _average_of(variables, parameter)
        value = graph.assigned_value(parameter)
        value = graph.stored(parameter) if value is None else value
        graph.assign(mean, graph.stored(mean) * old + value * new)


def averages_by_parameter(variables: Variables) -> dict[str, Variable]:
    """Returns the averages by the names of the parameters."""
    return {it.name: _average_of(variables, it) for it in variables.parameters()}


def copy_to_parameters(variables: Variables) -> None:
    """Copies the averages to the parameters."""
    for parameter in variables.parameters():
        parameter.write(_average_of(variables, parameter).read())


def _average_of(variables: Variables, parameter: Variable) -> Variable:
    return variables.root.training(f"average/{parameter.name}", parameter.shape)
