"""Runs code in a kernel of a notebook, as a browser does: it opens the page, keeps its cookies, and speaks to the kernel
by a WebSocket.

Arguments: the address of the page, the kernel's identifier or `new`, and the code. Prints JSON: the kernel, what the code
printed, its error, and the title of the page.
"""

import json
import re
import sys
import uuid
from urllib.parse import urlsplit

import requests
import websocket

address, kernel, code = sys.argv[1:]
parts = urlsplit(address)
base = f"{parts.scheme}://{parts.netloc}{parts.path.removesuffix('lab')}"

session = requests.Session()
page = session.get(address)
page.raise_for_status()
# From here on, the cookies alone admit the requests.
session.headers["X-XSRFToken"] = session.cookies["_xsrf"]
if kernel == "new":
    made = session.post(f"{base}api/kernels")
    made.raise_for_status()
    kernel = made.json()["id"]

cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in session.cookies)
channels = websocket.create_connection(
    f"{base.replace('http', 'ws', 1)}api/kernels/{kernel}/channels",
    cookie=cookies,
    timeout=60,
    origin=f"{parts.scheme}://{parts.netloc}",
)
header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": uuid.uuid4().hex, "username": "test",
          "version": "5.3"}
content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell", "buffers": []}
channels.send(json.dumps(message))

printed, error = "", None
while True:
    received = json.loads(channels.recv())
    if received["parent_header"].get("msg_id") != header["msg_id"]:
        continue
    if received["msg_type"] == "stream":
        printed += received["content"]["text"]
    elif received["msg_type"] == "error":
        error = f"{received['content']['ename']}: {received['content']['evalue']}"
    elif received["msg_type"] == "status" and received["content"]["execution_state"] == "idle":
        break
channels.close()
title = re.search("<title>(.*?)</title>", page.text)
print(json.dumps({"kernel": kernel, "printed": printed, "error": error, "title": title and title.group(1)}))
