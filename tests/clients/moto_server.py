"""Serves Amazon's S3 interface with moto on a free port of this machine, and decides about conditional puts one at a time.

Moto checks `If-None-Match` and then writes without a lock: of 8 puts at the same time, sometimes two succeed.
"""
import sys
import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.server import MotoRequestHandler
from werkzeug.serving import run_simple

application = DomainDispatcherApplication(create_backend_app)
conditions = threading.Lock()


def serve(environ, start_response):
    """Answers a request (PEP 3333)."""
    if "HTTP_IF_NONE_MATCH" not in environ:
        return application(environ, start_response)
    with conditions:
        return list(application(environ, start_response))


# Arguments: the files of a certificate and of its key, for encrypted connections.
certificate = tuple(sys.argv[1:3]) or None
run_simple("127.0.0.1", 0, serve, threaded=True, request_handler=MotoRequestHandler, ssl_context=certificate)
