"""Models that answer requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from .dataset import Field
from .errors import call
from .graph import Executable, Graph, Inputs
from .operand import Operand
from .params import Params
from .tensor import DataType, Descriptor, Tensor, uint8
from .variables import Variables

try:
    from wit_world.exports import predictor as raw
    from wit_world.imports import replies as raw_replies
except ImportError:  # A plugin that only trains predicts nothing.
    pass

BATCH_SIZES = (1, 2, 4, 8, 16, 32)


@dataclass
class Port:
    """A named input or output of a model: data type and shape of one item, without the batch.

    `semantics` is the meaning of the values: `image`, `class`, `probabilities`, `text` or `boolean`. `default` is the
    value of every element if a request leaves an input out.
    """

    name: str
    data_type: DataType
    shape: Sequence[int] = ()
    semantics: str | None = None
    classes: list[str] = field(default_factory=list)
    default: float | None = None

    @classmethod
    def of(cls, field: Field) -> Port:
        """Returns a port for the items of a dataset's field. Bytes in the shape of an image are an image."""
        shape = list(field.item.shape)
        is_image = field.item.data_type == uint8 and (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3)))
        return cls(field.name, field.item.data_type, shape, "image" if is_image else None, list(field.classes))

    @classmethod
    def text(cls, name: str, size: int) -> Port:
        """Returns a port for texts of up to `size` bytes."""
        return cls(name, uint8, [size], "text")

    @property
    def item(self) -> Descriptor:
        """Data type and shape."""
        return Descriptor(self.data_type, list(self.shape))

    def config(self) -> dict[str, Any]:
        """Returns the port as a value of a configuration, for `Port.from_config`."""
        return {
            "name": self.name,
            "data-type": self.data_type.name.lower(),
            "shape": list(self.shape),
            "semantics": self.semantics,
            "classes": self.classes,
            "default": self.default,
        }

    @classmethod
    def from_config(cls, value: Mapping[str, Any]) -> Port:
        """Returns the port that `Port.config` describes."""
        return cls(
            value["name"],
            DataType[value["data-type"].upper()],
            value["shape"],
            value["semantics"],
            value["classes"],
            value["default"],
        )


@dataclass
class Route:
    """An additional path of a model, and the inputs that it sets."""

    path: str
    inputs: Mapping[str, float] = field(default_factory=dict)


class Model:
    """A model: inputs, outputs and the graph between them. There is one graph for each batch size.

    A subclass reads its configuration, which `Job.publish` was given, and its variables in `__init__`.
    """

    batch_sizes: Sequence[int] = BATCH_SIZES

    def __init__(self, v: Variables, config: Params) -> None:
        raise NotImplementedError

    def inputs(self) -> list[Port]:
        """Returns the inputs."""
        raise NotImplementedError

    def outputs(self) -> list[Port]:
        """Returns the outputs."""
        raise NotImplementedError

    def routes(self) -> list[Route]:
        """Returns additional paths."""
        return []

    def predict(self, graph: Graph, inputs: Inputs) -> Mapping[str, Operand]:
        """Builds the outputs, by name, from the inputs of a batch."""
        raise NotImplementedError

    _predictor: Predictor | None = None

    def run(self, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Predicts one batch of a size in `batch_sizes`, for handlers of HTTP requests. Each tensor is `[batch, item...]`."""
        if self._predictor is None:
            raise RuntimeError("the model is not loaded: a training builds its own graphs")
        return self._predictor.predict(inputs)


@dataclass
class Signature:
    """The inputs, outputs, batch sizes and additional paths of a predictor."""

    inputs: Sequence[Port]
    outputs: Sequence[Port]
    batch_sizes: Sequence[int] = ()
    routes: Sequence[Route] = ()


class Predictor:
    """A predictor that computes with tensors, for what a `Model` cannot express: several graphs, loops, texts."""

    def __init__(self, v: Variables, config: Params) -> None:
        raise NotImplementedError

    def signature(self) -> Signature:
        """Returns the inputs and outputs. Without batch sizes, each request is a separate call."""
        raise NotImplementedError

    def predict(self, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Predicts one batch. Each tensor is `[batch, item...]`."""
        raise NotImplementedError


class GraphPredictor(Predictor):
    """The predictor of a `Model`: one graph for each batch size, built when it is needed."""

    def __init__(self, model: Model, config: Params) -> None:
        config.check()
        self.model = model
        self._graphs: dict[int, Executable] = {}
        if model.batch_sizes:
            self._graph(model.batch_sizes[0])

    def _graph(self, size: int) -> Executable:
        if size not in self._graphs:
            graph = Graph()
            inputs = graph.inputs([(port.name, port.item) for port in self.model.inputs()], size)
            self._graphs[size] = graph.build(self.model.predict(graph, inputs))
        return self._graphs[size]

    def signature(self) -> Signature:
        model = self.model
        return Signature(model.inputs(), model.outputs(), model.batch_sizes, model.routes())

    def predict(self, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        batch = next(iter(inputs.values())).shape[0]
        return self._graph(batch).dispatch(inputs)


def emit(output: str, item: int, piece: bytes | Tensor) -> None:
    """Sends a piece of an output to the client before the rest of the answer is known."""
    made = raw_replies.Piece_Tensor(piece.raw) if isinstance(piece, Tensor) else raw_replies.Piece_Bytes(piece)
    call(raw_replies.emit, output, item, made)


def raw_signature(signature: Signature) -> raw.Signature:
    """Returns a signature in the host's form."""

    def port(it: Port) -> raw.Port:
        default = None if it.default is None else float(it.default)
        return raw.Port(it.name, it.item, it.semantics, list(it.classes), default)

    return raw.Signature(
        [port(it) for it in signature.inputs],
        [port(it) for it in signature.outputs],
        list(signature.batch_sizes),
        [raw.Route(it.path, [(name, float(value)) for name, value in it.inputs.items()]) for it in signature.routes],
    )
