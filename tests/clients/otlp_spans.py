"""Prints the spans of OTLP requests as JSON, read with OpenTelemetry's own messages.

Usage: otlp_spans.py FILE..., each the body of a request."""

import json
import sys

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def value(attribute):
    kind = attribute.value.WhichOneof("value")
    return getattr(attribute.value, kind)


spans = []
for path in sys.argv[1:]:
    request = ExportTraceServiceRequest()
    with open(path, "rb") as file:
        request.ParseFromString(file.read())
    for resource in request.resource_spans:
        process = {attribute.key: value(attribute) for attribute in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                spans.append(
                    {
                        "resource": process,
                        "scope": scope.scope.name,
                        "trace": span.trace_id.hex(),
                        "id": span.span_id.hex(),
                        "parent": span.parent_span_id.hex(),
                        "state": span.trace_state,
                        "name": span.name,
                        "kind": span.kind,
                        "began": span.start_time_unix_nano,
                        "ended": span.end_time_unix_nano,
                        "attributes": {attribute.key: value(attribute) for attribute in span.attributes},
                        "status": span.status.code,
                    }
                )
json.dump(spans, sys.stdout)
