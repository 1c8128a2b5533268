"""A page on which a digit is drawn, and the deployed model says which one it is. Needs nothing but Python."""

import http.server
import os
import sys
import urllib.error
import urllib.request

HOST = os.environ.get("SAGGAR_HOST", "http://127.0.0.1:5000")
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "index.html")
BODY_BYTES_MAX = 1 << 16


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with the page, and forwards pictures to the model."""

    def do_GET(self):
        if self.path != "/":
            return self.answer(404, "text/plain", b"not found\n")
        with open(PAGE, "rb") as page:
            self.answer(200, "text/html; charset=utf-8", page.read())

    def do_POST(self):
        length = self.headers.get("content-length", "")
        if self.path != "/digit" or not length.isdigit() or int(length) > BODY_BYTES_MAX:
            return self.answer(400, "text/plain", b"expected a small picture at /digit\n")
        headers = {"content-type": "application/json"}
        if os.environ.get("SAGGAR_API_KEY"):
            headers["authorization"] = "Bearer " + os.environ["SAGGAR_API_KEY"]
        body = self.rfile.read(int(length))
        request = urllib.request.Request(f"{HOST}/models/digits/predict", data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                self.answer(answer.status, "application/json", answer.read())
        except urllib.error.HTTPError as error:
            self.answer(error.code, "application/json", error.read())
        except urllib.error.URLError as error:
            self.answer(502, "text/plain", f"no answer from {HOST}: {error.reason}\n".encode())

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Prints nothing, because the page asks often."""


def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
