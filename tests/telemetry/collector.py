"""A collector: takes OTLP over HTTP as a real one does, and keeps the spans."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

SPANS_PATH = "/v1/traces"


class Collector:
    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[Resource] = []
        self.requests = 0
        self.status = 200
        self.url = ""

    def take(self, path: str, body: bytes) -> int:
        self.requests += 1
        if path != SPANS_PATH or self.status != 200:
            return 404 if self.status == 200 else self.status
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(resource_spans.resource)
            for scope_spans in resource_spans.scope_spans:
                self.spans.extend(scope_spans.spans)
        return 200


@contextmanager
def a_collector() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(collector.take(self.path, body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """The test tells what matters."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        collector.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
