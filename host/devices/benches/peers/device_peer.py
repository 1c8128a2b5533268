"""PyTorch on CUDA, or on the processor if CUDA is not available: `device_peer.py KIND WHAT AMOUNT FOLDER [small]`.

KIND is `matmul`, `train`, `infer`, `start` or `first`. WHAT is a network and AMOUNT its batch size; for a product of square
matrices, a type and a size. The program writes the initial tensors of both sides to `start.safetensors` in FOLDER, and the
results of mode N to `result-N.safetensors`. Modes differ in whether they are compiled and in whether `float32` products can
round their factors to TF32. Then the modes take turns. `start` writes the initial tensors and ends. `first` reports the
seconds of the first step, including compilation, and ends. `PEER_TF32=off` leaves out the modes with TF32, which halves the
time that torch.compile takes.
"""

import os
import sys

import protocol

import copy
import time

import torch
from torch.nn import functional as F

import adapter_models
import tensors

# Steps whose losses are compared; as many as `adapter/networks.rs` compares.
COMPARED = 4

# Stretches per turn, and steps per stretch; as in `turns.rs`.
STRETCHES, STEPS_MAX = 5, 500

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
TF32S = [False] if not CUDA or os.environ.get("PEER_TF32") == "off" else [False, True]


def wait():
    if CUDA:
        torch.cuda.synchronize()


def allow_tf32(allowed):
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


class Way:
    """One mode of a benchmark: `step` returns the compared result, and `each` says whether each step is waited for."""

    def __init__(self, make, compiled, tf32, each=False):
        self.make, self.compiled, self.tf32, self.each = make, compiled, tf32, each
        self.step = None

    def prepare(self, compared):
        """Creates the step and returns the first results. All compilation happens here."""
        allow_tf32(self.tf32)
        self.step = self.make(self.compiled)
        results = [self.step().detach().clone() for _ in range(compared)]
        return torch.stack(results) if compared > 1 else results[0]

    def run(self, seconds):
        allow_tf32(self.tf32)
        clock = time.perf_counter

        def stretch(steps):
            wait()
            begun = clock()
            for _ in range(steps):
                self.step()
                if self.each:
                    wait()
            wait()
            return (clock() - begun) / steps

        begun, one = clock(), stretch(2)
        steps = 1 if self.each else max(1, min(STEPS_MAX, int(seconds / STRETCHES / one)))
        times = []
        while clock() - begun < seconds or len(times) < 2:
            times.append(stretch(steps))
        times.sort()
        return {"best": times[0], "median": times[len(times) // 2]}


def product(dtype, size, folder):
    """A product of random matrices with single-precision sums."""
    torch.manual_seed(1)
    dtype = {"f32": torch.float32, "f16": torch.float16}[dtype]
    a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
    save(folder, "start", {"a": a.numpy(), "b": b.numpy()})
    a, b = a.to(DEVICE), b.to(DEVICE)
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    into = torch.empty_like(a)
    tf32s = TF32S if dtype == torch.float32 else [False]
    return [Way(lambda compiled: lambda: torch.mm(a, b, out=into), False, tf32) for tf32 in tf32s], 1


def network(kind, name, batch, folder, small):
    model, inputs = adapter_models.make(name, batch, small)
    save(folder, "start", adapter_models.start(model, inputs), getattr(model, "metadata", {}))
    inputs = {key: x.to(DEVICE) for key, x in inputs.items()}
    labels, inputs = inputs.pop("labels"), list(inputs.values())

    def trainer(compiled):
        trained = copy.deepcopy(model).to(DEVICE).train()
        if name in ("lenet", "resnet50"):
            optimizer = torch.optim.SGD(trained.parameters(), lr=0.01, momentum=0.9, fused=True)
        else:
            optimizer = torch.optim.Adam(trained.parameters(), lr=1e-3, fused=True)
        cost = lambda *inputs: F.cross_entropy(trained(*inputs), labels)
        cost = torch.compile(cost) if compiled else cost

        def step():
            optimizer.zero_grad(set_to_none=True)
            loss = cost(*inputs)
            loss.backward()
            optimizer.step()
            return loss

        return step

    def answerer(compiled):
        asked = copy.deepcopy(model).to(DEVICE).eval()
        asked = torch.compile(asked) if compiled else asked

        def step():
            with torch.inference_mode():
                return asked(*inputs)

        return step

    make, each, compared = (answerer, True, 1) if kind == "infer" else (trainer, False, COMPARED)
    # Compiled modes first: the compiler's processes are idle again when the others are measured.
    kinds = [(compiled, tf32) for tf32 in TF32S for compiled in (True, False)]
    return [Way(make, compiled, tf32, each) for compiled, tf32 in kinds], compared


def save(folder, name, found, metadata={}):
    tensors.save(os.path.join(folder, f"{name}.safetensors"), found, metadata)


def facts():
    where = f"CUDA {torch.version.cuda} on {torch.cuda.get_device_name()}" if CUDA else "the CPU: it has no CUDA here"
    return {"version": torch.__version__, "cuda": CUDA, "where": where}


def main(kind, what, amount, folder, *small):
    amount = int(amount)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    # Shapes never change, so benchmark the convolution algorithms once.
    torch.backends.cudnn.benchmark = True
    if kind == "matmul":
        ways, compared = product(what, amount, folder)
    else:
        ways, compared = network(kind, what, amount, folder, bool(small))
    if kind == "start":
        return
    if kind == "first":
        allow_tf32(False)
        step = ways[0].make(True)
        wait()
        begun = time.perf_counter()
        step()
        wait()
        protocol.say(figure=time.perf_counter() - begun, **facts())
        return
    said = []
    for number, way in enumerate(ways):
        it = {"compiled": way.compiled, "tf32": way.tf32, "error": None}
        try:
            save(folder, f"result-{number}", {"result": way.prepare(compared).cpu().numpy()})
        except Exception as error:  # A mode that fails must not stop the others.
            it["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
        said.append(it)
    protocol.serve_ways([way.run for way in ways], ways=said, **facts())


if __name__ == "__main__":
    main(*sys.argv[1:])
