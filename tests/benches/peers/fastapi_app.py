"""The network behind FastAPI, tuned: orjson parses and writes the bodies, the body is not validated, and the handler is
a coroutine, because a switch to another thread would cost more than the network.

uvicorn --workers 2 --loop uvloop --http httptools --no-access-log fastapi_app:app
"""

import orjson
from fastapi import FastAPI, Request, Response

from network import Network, answer, images

app = FastAPI()
network = Network()


@app.post("/predict")
async def predict(request: Request):
    body = orjson.loads(await request.body())
    return Response(orjson.dumps(answer(*network.run(images(body)))), media_type="application/json")
