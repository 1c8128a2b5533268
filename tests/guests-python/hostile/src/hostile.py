"""A plugin that does what a plugin cannot do. The parameter `act`, or the input of that name, says what."""

import datetime
import importlib
import os
import random
import socket
import sys
import threading
import time
import uuid
import warnings
from typing import Any, Callable, Mapping

from saggar_plugin import Job, Params, Port, Predictor, Signature, Tensor, Variables, export, float32, log
from saggar_plugin.layers import Linear
from saggar_plugin import Graph


def recurse(depth: int = 0) -> int:
    return 1 + recurse(depth + 1)


def allocate() -> None:
    held = []
    while True:
        held.append(bytearray(1 << 20))


def loop() -> None:
    while True:
        pass


def nest() -> None:
    value: Any = None
    for _ in range(1_000_000):
        value = [value]
    repr(value)


def refused(act: Callable[[], Any]) -> str:
    """Returns the type of the exception, or the result."""
    try:
        return f"returned {act()!r}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def report() -> None:
    """Prints everything that must be the same in every job with the same seed."""
    for name, act in {
        "open": lambda: open("/etc/passwd"),
        "write": lambda: open("written", "w"),
        "list": lambda: os.listdir("/"),
        "socket": lambda: socket.create_connection(("127.0.0.1", 5000)),
        "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "name": lambda: socket.getaddrinfo("localhost", 80),
        "thread": lambda: threading.Thread(target=print).start(),
        "ctypes": lambda: importlib.import_module("ctypes"),
        "json.tool": lambda: importlib.import_module("json.tool"),
        "environ": lambda: dict(os.environ).get("HOME"),
        "argv": lambda: sys.argv[1:],
        "time": time.time,
        "monotonic": lambda: time.monotonic() == time.monotonic(),
        "sleep": lambda: time.sleep(3600),
        "now": lambda: datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "random": random.random,
        "urandom": lambda: os.urandom(4).hex(),
        "uuid": lambda: str(uuid.uuid4()),
    }.items():
        print(f"{name}: {refused(act)}")


ACTS: dict[str, Callable[[], Any]] = {
    "recurse": recurse,
    "allocate": allocate,
    "loop": loop,
    "nest": nest,
    "exit": lambda: sys.exit("that was all"),
    "os-exit": lambda: os._exit(3),
    "abort": os.abort,
    "raise": lambda: fail(),
}


def fail() -> None:
    raise ValueError("no such class: 12")  # act: raise


def mismatch(job: Job) -> None:
    linear = Linear(job.variables().scope("fc1"), 20, 10)
    linear(Graph().input("x", float32, [2, 16]))  # act: layer


def compare_unbuilt() -> None:
    x = Graph().input("x", float32, [2, 16])
    if x.relu() > 0.0:  # act: unbuilt
        raise AssertionError("an operand is no number")


def add_to_built() -> None:
    graph = Graph()
    x = graph.input("x", float32, [2, 16])
    graph.build({"x": x})
    x.relu()  # act: built


class Actor(Predictor):
    def __init__(self, v: Variables, config: Params) -> None:
        self.acts = list(ACTS)

    def signature(self) -> Signature:
        return Signature([Port("act", float32)], [Port("act", float32)], batch_sizes=[1])

    def predict(self, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        # The host warms a model up with zeros, which do nothing.
        act = int(inputs["act"].item()) - 1
        if act >= 0:
            print(f"act {self.acts[act]}")
            ACTS[self.acts[act]]()
        return inputs


def train(job: Job) -> None:
    act = job.param("act", "report")
    if act == "report":
        report()
    elif act == "output":
        print("a line of standard output")
        print("unfinished", end="")
        warnings.warn("a warning")
        log.info("a line of the log")
    elif act == "layer":
        mismatch(job)
    elif act == "unbuilt":
        compare_unbuilt()
    elif act == "built":
        add_to_built()
    elif act == "publish":
        job.publish("actor", job.variables())
    else:
        ACTS[act]()


export(Actor, train)
