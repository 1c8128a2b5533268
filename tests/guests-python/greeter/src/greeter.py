"""A model that multiplies a number, with handlers of HTTP requests that show what a handler can return and do wrong."""

from collections.abc import Iterator
from typing import Any

from saggar_plugin import Graph, HttpRequest, HttpResponse, Inputs, Job, Model, Operand, Params, Port, Tensor, Variables
from saggar_plugin import export, float32, route
from saggar_plugin.variables import constant


class Greeter(Model):
    """Multiplies `x` by the published factor."""

    batch_sizes = (1, 4)

    def __init__(self, v: Variables, config: Params) -> None:
        self.factor = v.parameter("factor", [1], constant(float(config["factor"])))
        self.greeted: list[str] = []

    def inputs(self) -> list[Port]:
        return [Port("x", float32)]

    def outputs(self) -> list[Port]:
        return [Port("y", float32)]

    def predict(self, graph: Graph, inputs: Inputs) -> dict[str, Operand]:
        return {"y": inputs["x"] * graph.variable(self.factor)}

    @route("GET", "/hello/{name}")
    def hello(self, request: HttpRequest) -> str:
        """Greets somebody"""
        return f"Hello, {request.parameters['name']}!" * int(request.query.get("times", "1"))

    @route("POST", "/multiply")
    def multiply(self, request: HttpRequest) -> dict[str, Any]:
        values = [float(value) for value in request.json()["values"]]
        outputs = [self.run({"x": Tensor.of([value], [1])})["y"].item() for value in values]
        return {"values": outputs}

    @route("GET", "/count/{last}")
    def count(self, request: HttpRequest) -> Iterator[str]:
        for number in range(int(request.parameters["last"]) + 1):
            yield f"{number}\n"

    @route("GET", "/endless")
    def endless(self, request: HttpRequest) -> Iterator[bytes]:
        while True:
            yield b"more\n"

    @route("GET", "/late")
    def late(self, request: HttpRequest) -> Iterator[str]:
        yield "the beginning\n"
        raise KeyError("too late")  # late

    @route("GET", "/missing")
    def missing(self, request: HttpRequest) -> tuple[int, dict[str, str]]:
        return 404, {"error": "no such thing"}

    @route("GET", "/page")
    def page(self, request: HttpRequest) -> HttpResponse:
        page = HttpResponse.html("<h1>page</h1>")
        page.headers = {"Cache-Control": "max-age=60"}
        return page

    @route("PUT", "/items/{key}")
    @route("PATCH", "/items/{key}")
    def items(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(f"{request.method} {request.path} {request.text}", 201)

    @route("DELETE", "/items/{key}")
    def remove(self, request: HttpRequest) -> tuple[int, bytes]:
        return 204, b""

    @route("GET", "/header")
    def header(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("", headers={request.query["name"]: request.query["value"]})

    @route("GET", "/raise")
    def fail(self, request: HttpRequest) -> str:
        raise RuntimeError("a mistake")  # raise

    @route("GET", "/nothing")
    def nothing(self, request: HttpRequest) -> Any:
        return None


def train(job: Job) -> None:
    """Publishes the model."""
    config = {"factor": job.param("factor", 2.0)}
    variables = job.variables()
    Greeter(variables, Params(config))
    job.publish("greeter", variables, config)


export(Greeter, train)
