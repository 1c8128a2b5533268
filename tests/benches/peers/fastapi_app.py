"""The network behind FastAPI, tuned: orjson reads and writes the bodies, no model of the body is validated, and the
handler is a coroutine, because a thread's hop would cost more than the network does.

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
