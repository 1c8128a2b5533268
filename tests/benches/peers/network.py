"""Shared code of all peers: the network in onnxruntime, and its compute time in this process.

A server process has one session. `run` takes uint8[batch, height, width] and returns labels, their probabilities, and all
probabilities. If `PEER_TIMES` names a directory, each process writes the mean time of its runs to a file in it, so that
the compute share of a load is measured inside the peer.
"""

import os
import threading
import time

import numpy as np
import onnxruntime


class Network:
    def __init__(self):
        options = onnxruntime.SessionOptions()
        # Every peer is parallel by processes: threads within a process would only compete for the same cores.
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
    """Returns a request's picture as a batch of one."""
    return np.array([body["image"]], np.uint8)


def answer(labels, chances, probabilities, item=0):
    """Returns one item's response in the form of saggar's."""
    return {
        "label": int(labels[item]),
        "probability": float(chances[item]),
        "probabilities": probabilities[item].tolist(),
    }
