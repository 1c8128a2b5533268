"""A training in PyTorch: `torch_peer.py MODEL BATCH THREADS eager|compiled first|last train|first|memory`.

Channels are first or last. `train` takes turns; `first` says how many seconds the first step took and `memory` how many
bytes steps needed, and both end.
"""

import sys

import protocol

import time

import torch
from torch.nn import functional as F

import models

# Steps whose losses are compared.
COMPARED = 4

# Steps after which memory is looked at.
STEPS = 8


def trainer(name, batch, compiled, channels_last):
    """A training step of a new network, which returns the loss."""
    model, inputs = models.make(name), models.data(name, batch)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        inputs["image"] = inputs["image"].contiguous(memory_format=torch.channels_last)
    labels, inputs = inputs.pop("labels"), list(inputs.values())
    # Each parameter is updated in one pass.
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
    """Bytes of this process: `VmRSS` now, `VmHWM` at most."""
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
        # What libraries allocate once is not the training's: a small one comes before.
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
