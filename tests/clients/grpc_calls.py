"""gRPC's own clients against a server with the models `digits`, `echo` and `teller`: argument 1 is its address, and the
optional arguments 2, 3 and 4 are a key that can predict, a key that cannot, and the certificate of a server with TLS.

Checks reflection, health, concurrent streams, cancellation, deadlines, and clients that break the protocol.
"""

import socket
import struct
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tritonclient.grpc import service_pb2, service_pb2_grpc

SCHEME, URL = sys.argv[1].split("://")
CODE = grpc.StatusCode
ITEM = np.array([[1.5, -2.5, 3.5, 4.5]], dtype=np.float32)
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


def open_channel():
    if SCHEME == "https":
        with open(sys.argv[4], "rb") as certificate:
            return grpc.secure_channel(URL, grpc.ssl_channel_credentials(certificate.read()), OPTIONS)
    return grpc.insecure_channel(URL, OPTIONS)


def echo(identifier="1", items=1):
    request = service_pb2.ModelInferRequest(model_name="echo", id=identifier)
    request.inputs.add(name="x", datatype="FP32", shape=[items, 4])
    request.raw_input_contents.append(ITEM.tobytes() * items)
    return request


def stub(channel):
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


def refused(call):
    try:
        call()
    except grpc.RpcError as error:
        return error
    raise AssertionError("it was not refused")


def reflection(channel):
    database = ProtoReflectionDescriptorDatabase(channel)
    services = set(database.get_services())
    assert {"inference.GRPCInferenceService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"} <= services
    service = descriptor_pool.DescriptorPool(database).FindServiceByName("inference.GRPCInferenceService")
    ours = {method.name: method for method in service.methods}
    public = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    assert len(ours) == 12
    for name, method in ours.items():
        assert method.input_type.full_name == public[name].input_type.full_name, name
        assert method.output_type.full_name == public[name].output_type.full_name, name
    # Every field has the number and the type of the public protocol.
    compared, waiting = set(), [method.input_type for method in ours.values()] + [it.output_type for it in ours.values()]
    pool = descriptor_pool.Default()
    while waiting:
        message = waiting.pop()
        if message.full_name in compared:
            continue
        compared.add(message.full_name)
        expected = pool.FindMessageTypeByName(message.full_name)
        for field in message.fields:
            other = expected.fields_by_name[field.name]
            assert (field.number, field.type) == (other.number, other.type), field.full_name
            if field.message_type:
                waiting.append(field.message_type)
    assert len(compared) > 30, compared


def health(channel):
    client = health_pb2_grpc.HealthStub(channel)
    serving = health_pb2.HealthCheckResponse.SERVING
    for name in ("", "inference.GRPCInferenceService"):
        assert client.Check(health_pb2.HealthCheckRequest(service=name)).status == serving
    unknown = refused(lambda: client.Check(health_pb2.HealthCheckRequest(service="x")))
    assert unknown.code() == CODE.NOT_FOUND
    watch = client.Watch(health_pb2.HealthCheckRequest(service=""))
    assert next(watch).status == serving
    watch.cancel()


def errors(channel):
    """An error has its hint, and the request's identifier in its trailing metadata."""
    error = refused(lambda: stub(channel).ModelInfer(service_pb2.ModelInferRequest(model_name="none")))
    assert error.code() == CODE.NOT_FOUND and "GET /api/v1/models lists them" in error.details(), error
    metadata = dict(error.trailing_metadata())
    assert metadata["x-request-id"], metadata
    missing = channel.unary_unary("/inference.GRPCInferenceService/Nothing")
    assert refused(lambda: missing(b"")).code() == CODE.UNIMPLEMENTED
    infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    assert refused(lambda: infer(b"\xff\xff\xff")).code() == CODE.INVALID_ARGUMENT
    answer, call = stub(channel).ModelInfer.with_call(echo(), metadata=[("x-request-id", "mine")])
    assert dict(call.initial_metadata())["x-request-id"] == "mine" and answer.raw_output_contents[0] == ITEM.tobytes()
    assert dict(call.initial_metadata())["x-saggar-model"] == "echo@1"


def keys(channel):
    check = health_pb2_grpc.HealthStub(channel).Check
    while check(health_pb2.HealthCheckRequest()).status != health_pb2.HealthCheckResponse.SERVING:
        time.sleep(0.1)  # Probes need no key.
    infer = stub(channel).ModelInfer
    bearer = lambda key: [("authorization", f"Bearer {key}")]
    assert infer(echo(), metadata=bearer(sys.argv[2])).raw_output_contents[0] == ITEM.tobytes()
    assert refused(lambda: infer(echo())).code() == CODE.UNAUTHENTICATED
    assert refused(lambda: infer(echo(), metadata=bearer("sgr_wrong"))).code() == CODE.UNAUTHENTICATED
    lacking = refused(lambda: infer(echo(), metadata=bearer(sys.argv[3])))
    assert lacking.code() == CODE.PERMISSION_DENIED and "lacks the scope predict" in lacking.details(), lacking
    stream = stub(channel).ModelStreamInfer(iter([echo()]), metadata=bearer(sys.argv[3]))
    assert refused(lambda: next(stream)).code() == CODE.PERMISSION_DENIED


def half_closed(channel):
    """A client ends its side, and then reads the answers."""
    requests = [echo(str(at)) for at in range(8)]
    answers = list(stub(channel).ModelStreamInfer(iter(requests)))
    assert [answer.infer_response.id for answer in answers] == [request.id for request in requests]
    assert all(answer.infer_response.raw_output_contents[0] == ITEM.tobytes() for answer in answers)
    assert list(stub(channel).ModelStreamInfer(iter([]))) == []


def cancelled(channel):
    """A client that goes away while its stream is open holds nothing."""
    done = threading.Event()

    def requests():
        yield echo()
        done.wait(60)

    stream = stub(channel).ModelStreamInfer(requests())
    assert next(stream).infer_response.id == "1"
    stream.cancel()
    assert refused(lambda: next(stream)).code() == CODE.CANCELLED
    done.set()
    late = stub(channel).ModelStreamInfer(iter(lambda: time.sleep(60), None), timeout=0.2)
    assert refused(lambda: next(late)).code() == CODE.DEADLINE_EXCEEDED


def concurrent(_):
    """A thousand open streams on ten connections, each with its own answers."""
    channels = [open_channel() for _ in range(10)]
    release, opened = threading.Event(), threading.Semaphore(0)
    failures = []

    def hold(at):
        def requests():
            yield echo(f"{at}-first")
            release.wait(300)
            yield echo(f"{at}-second")

        try:
            stream = stub(channels[at % 10]).ModelStreamInfer(requests())
            assert next(stream).infer_response.id == f"{at}-first"
            opened.release()
            assert [answer.infer_response.id for answer in stream] == [f"{at}-second"]
        except BaseException as error:
            failures.append(error)
            opened.release()

    threads = [threading.Thread(target=hold, args=(at,), daemon=True) for at in range(1000)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert opened.acquire(timeout=300), failures
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda at: stub(channels[at % 10]).ModelInfer(echo(str(at))).id, range(64)))
    assert answers == [str(at) for at in range(64)]
    release.set()
    for thread in threads:
        thread.join(300)
    assert not failures, failures[0]


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def header(name, value):
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def broken_clients(channel):
    """Garbage in place of frames, messages and headers ends a stream or a connection, and nothing else."""
    host, port = URL.rsplit(":", 1)
    head = b"\x83\x86" + header(b":path", b"/inference.GRPCInferenceService/ModelInfer") + header(b":authority", b"localhost")
    head += header(b"content-type", b"application/grpc") + header(b"te", b"trailers")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
    for rest in (
        b"\xff" * 1000,
        frame(1, 4, 1, head) + frame(0, 1, 1, b"\x07garbage"),
        frame(1, 4, 1, head) + frame(0, 1, 1, b"\x00\xff\xff\xff\xff"),
        frame(1, 4, 1, head) + frame(0, 0, 1, b"\x00\x00\x00\x01\x00partial") + frame(3, 0, 1, b"\x00\x00\x00\x08"),
        frame(1, 4, 1, head) + frame(0, 0, 1, b"\x00\x00\x00\x01"),
        frame(1, 5, 1, head),
        b"\x00\x00\x05\x01\x04",
    ):
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(preface + rest)
            connection.shutdown(socket.SHUT_WR)
            answered = b""
            while received := connection.recv(65536):
                answered += received
            assert answered, rest[:40]
    assert stub(channel).ModelInfer(echo()).raw_output_contents[0] == ITEM.tobytes()


def metrics(_):
    page = urllib.request.urlopen(f"http://{URL}/metrics").read().decode()
    count = lambda method, code: next(
        float(line.rsplit(" ", 1)[1])
        for line in page.splitlines()
        if line.startswith("saggar_rpc_requests_total{") and f"/{method}\"" in line and f'code="{code}"' in line
    )
    assert 'protocol="grpc"' in page
    assert count("ModelInfer", "OK") > 64 and count("ModelStreamInfer", "OK") >= 1000
    assert count("ModelInfer", "NOT_FOUND") > 0 and count("ModelStreamInfer", "CANCELLED") > 0


CHECKS = [reflection, health, errors, half_closed, cancelled, concurrent, broken_clients, metrics]
if len(sys.argv) > 2:
    CHECKS = [keys]

for check in CHECKS:
    with open_channel() as opened:
        check(opened)
    print("ok", check.__name__, flush=True)
