"""Training in PyTorch: `torch_peer.py MODEL BATCH THREADS eager|compiled first|last train|first|memory`.

Channels are first or last. `train` takes turns. `first` reports the seconds of the first step and exits; `memory` reports the
bytes that steps need and exits.
"""

import sys

import protocol

import time

import torch
from torch.nn import functional as F

import models

# Steps whose losses are compared.
COMPARED = 4

# Steps after which memory is measured.
STEPS = 8


def trainer(name, batch, compiled, channels_last):
    """Returns a training step of a new network; the step returns the loss."""
    model, inputs = models.make(name), models.data(name, batch)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        inputs["image"] = inputs["image"].contiguous(memory_format=torch.channels_last)
    labels, inputs = inputs.pop("labels"), list(inputs.values())
    # The fused optimiser updates each parameter in one pass.
    if name == "lenet":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def cost(*inputs):
        return F.cross_entropy(model(*inputs).flatten(0, -2), labels)

    if compiled:
        cost = torch.compile(cost)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = cost(*inputs)
        loss.backward()
        optimizer.step()
        return loss

    return step


def resident(field):
    """Returns resident bytes of this process: `VmRSS` is the current, `VmHWM` the peak value."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(field))
    return int(line.split()[1]) * 1024


def forget_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def main(name, batch, threads, how, channels, what):
    torch.set_num_threads(int(threads))
    make = lambda: trainer(name, int(batch), how == "compiled", channels == "last")
    if what == "first":
        step = make()
        begun = time.perf_counter()
        step()
        protocol.say(figure=time.perf_counter() - begun)
    elif what == "memory":
        # A small training first, so that one-time allocations of libraries are not counted.
        trainer("lenet", 1, False, False)()
        forget_peak()
        before = resident("VmRSS")
        step = make()
        for _ in range(STEPS):
            step()
        protocol.say(figure=resident("VmHWM") - before)
    else:
        step = make()
        losses = [step().item() for _ in range(COMPARED)]
        protocol.serve(step, losses=losses)


if __name__ == "__main__":
    main(*sys.argv[1:])
