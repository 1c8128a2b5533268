"""The exports of a plugin, in the form that the component needs."""

from __future__ import annotations

import encodings.idna  # noqa: F401: `socket` looks it up when it is called, which is too late for an import.
import random
from typing import Callable

import wit_world.imports.tensors as raw_tensors
import wit_world.imports.variables as raw_variables

from .errors import Stopped, to_host
from .http import read_request, routes_of, send_answer
from .job import Job
from .params import Params
from .predict import GraphPredictor, Model, Predictor, raw_signature
from .tensor import tensors_by_name
from .variables import Variables

try:
    from wit_world.exports import predictor as raw_predictor
except ImportError:  # A plugin that only trains predicts nothing.
    pass
try:
    from wit_world.exports import http_handler as raw_http
except ImportError:  # A plugin without handlers has no such world.
    pass

_model: type[Model] | type[Predictor] | None = None
_train: Callable[[Job], None] | None = None
# The model that this instance has loaded, for its handlers. An instance loads one.
_loaded: Model | Predictor | None = None


def export(model: type[Model] | type[Predictor] | None = None, train: Callable[[Job], None] | None = None) -> None:
    """Exports a plugin: the class that predicts, the function that trains, or both.

    Call it once, at the end of the module that `[tool.saggar] module` names.
    """
    global _model, _train
    _model, _train = model, train


def check(trains: bool, predicts: bool, handles: bool = False) -> None:
    """Checks, when the component is built, that the plugin exports what its world requires."""
    for needed, given, what, world in (
        (trains, _train, "train", "predict-plugin"),
        (predicts, _model, "model", "train-plugin"),
    ):
        if needed and given is None:
            raise TypeError(f"the plugin must call `saggar_plugin.export({what}=...)`, or set `world = \"{world}\"`")
    if _model is not None and not handles and routes_of(_model):
        name = "model-http-plugin" if trains else "predict-http-plugin"
        raise TypeError(f"{_model.__name__} has methods with `@route`: set `world = \"{name}\"` in [tool.saggar]")


class Trainer:
    """The host's interface `trainer`."""

    def train(self) -> None:
        """Runs the training."""
        try:
            assert _train is not None, "checked when the component was built"
            job = Job()
            # The module's state is part of the component, so it is the same in every job until it is seeded.
            random.seed(job.seed)
            _train(job)
        except Stopped:
            return
        except BaseException as error:
            raise to_host(error) from None


class ExportedModel:
    """The resource `model` of the host's interface `predictor`."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    @classmethod
    def load(cls, variables: raw_variables.Variables, config: str) -> ExportedModel:
        """Loads a version."""
        try:
            assert _model is not None, "checked when the component was built"
            random.seed(0)
            params = Params.parse(config)
            loaded = _model(Variables(variables), params)
            predictor = GraphPredictor(loaded, params) if isinstance(loaded, Model) else loaded
            global _loaded
            _loaded = loaded
            if isinstance(loaded, Model):
                loaded._predictor = predictor
            return cls(predictor)
        except BaseException as error:
            raise to_host(error) from None

    def signature(self) -> raw_predictor.Signature:
        """Returns the inputs and outputs."""
        return raw_signature(self._predictor.signature())

    def predict(self, inputs: list[raw_tensors.NamedTensor]) -> list[raw_tensors.NamedTensor]:
        """Predicts one batch."""
        try:
            outputs = self._predictor.predict(tensors_by_name(inputs))
            return [raw_tensors.NamedTensor(name, tensor.raw) for name, tensor in outputs.items()]
        except BaseException as error:
            raise to_host(error) from None


class HttpHandler:
    """The host's interface `http-handler`."""

    def routes(self) -> list[raw_http.HandlerRoute]:
        """Returns the routes of the loaded model."""
        methods = raw_http.HttpMethod
        return [
            raw_http.HandlerRoute(methods[method], path, about) for method, path, about, _ in routes_of(type(_loaded))
        ]

    def handle(self, route: int, request: raw_http.HttpRequest) -> raw_http.HttpResponse | None:
        """Answers a request to the route with this index."""
        try:
            *_, name = routes_of(type(_loaded))[route]
            return send_answer(getattr(_loaded, name)(read_request(request)))
        except BaseException as error:
            raise to_host(error) from None
