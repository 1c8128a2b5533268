"""What all peers share: the network in onnxruntime, and how long it computes in this process.

A server process has one session. `run` takes uint8[batch, height, width] and gives labels, probabilities of them, and all
probabilities. Where `PEER_TIMES` names a directory, the mean time of its runs is kept in a file there, one a process, so
that the compute share of a load is known from inside.
"""

import os
import threading
import time

import numpy as np
import onnxruntime


class Network:
    def __init__(self):
        options = onnxruntime.SessionOptions()
        # Processes are the parallelism of every peer: threads inside would only fight over the same cores.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(os.environ["PEER_MODEL"], options, ["CPUExecutionProvider"])
        self.lock = threading.Lock()
        self.times = os.environ.get("PEER_TIMES")
        self.items, self.seconds, self.written = 0, 0.0, 0.0

    def run(self, images):
        began = time.perf_counter()
        answers = self.session.run(None, {"image": images})
        ended = time.perf_counter()
        if self.times:
            # Some peers have several threads.
            with self.lock:
                self.items += len(images)
                self.seconds += ended - began
                if ended - self.written > 0.2:
                    self.write(ended)
        return answers

    def write(self, now):
        path = f"{self.times}/{os.getpid()}"
        with open(path + ".new", "w") as file:
            file.write(f"{self.items} {self.seconds}")
        os.replace(path + ".new", path)
        self.written = now


def images(body):
    """A request's picture as a batch of one."""
    return np.array([body["image"]], np.uint8)


def answer(labels, chances, probabilities, item=0):
    """One item's answer, of the form that saggar gives."""
    return {
        "label": int(labels[item]),
        "probability": float(chances[item]),
        "probabilities": probabilities[item].tolist(),
    }
