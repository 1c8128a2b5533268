"""The network behind mosec. mosec's own arguments are `--port`, `--address`, `--timeout`. `PEER_BATCH` is the maximum batch
size, `PEER_WAIT_MS` the maximum wait for a batch, `PEER_WORKERS` the number of processes. Batch size 1 disables batching.
"""

import os

import numpy as np
import orjson
from mosec import Server, Worker

from network import Network, answer


class Predict(Worker):
    def __init__(self):
        super().__init__()
        self.network = Network()

    def deserialize(self, data):
        return np.array(orjson.loads(data)["image"], np.uint8)

    def serialize(self, data):
        return orjson.dumps(data)

    def forward(self, data):
        if BATCH == 1:
            return answer(*self.network.run(data[np.newaxis]))
        answers = self.network.run(np.stack(data))
        return [answer(*answers, item) for item in range(len(data))]


BATCH = int(os.environ.get("PEER_BATCH", "1"))

if __name__ == "__main__":
    server = Server()
    wait = int(os.environ.get("PEER_WAIT_MS", "1"))
    workers = int(os.environ.get("PEER_WORKERS", "2"))
    server.append_worker(Predict, num=workers, max_batch_size=BATCH, max_wait_time=wait, route="/predict")
    server.run()
