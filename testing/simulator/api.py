"""Dispatch: a request goes in, a response or a watch comes out. Synchronous and free of I/O."""

from testing.simulator.cluster import Cluster
from testing.simulator.discovery import (
    AGGREGATED,
    VERSION,
    aggregated,
    core_versions,
    group_list,
    one_group,
    resource_list,
)
from testing.simulator.errors import ApiError, bad_request, method_not_allowed, no_such_route
from testing.simulator.reads import Reader
from testing.simulator.requests import Request, Response, Target, error_response, resolve
from testing.simulator.resources import Object
from testing.simulator.store import encode
from testing.simulator.subresources import Reviews
from testing.simulator.watch import Watch
from testing.simulator.writes import Writer

HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
OPEN_TO_ALL = HEALTH | {"/version"}
MALFORMED = (AttributeError, KeyError, TypeError, ValueError, RecursionError)
"""What handling a body raises whose fields have unexpected types."""
OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


class Api:
    def __init__(self, cluster: Cluster, max_pending_bytes: int, reviews: Reviews) -> None:
        self.reader = Reader(cluster, max_pending_bytes)
        self._cluster = cluster
        self._writer = Writer(cluster, reviews)

    def handle(self, request: Request) -> Response | Watch:
        """Never raises for anything a client can send: a refusal is a response, too."""
        try:
            target = resolve(self._cluster.catalog, request.path)
            return self._describe(request) if target is None else self._dispatch(target, request)
        except ApiError as error:
            return error_response(error)
        except MALFORMED as error:
            if not request.body:
                raise
            refused = bad_request(f"the body of the request cannot be handled: {type(error).__name__}: {error}")
            return error_response(refused)

    def _dispatch(self, target: Target, request: Request) -> Response | Watch:
        match request.method:
            case "GET":
                return self.reader.get(target, request) if target.name else self.reader.list_or_watch(target, request)
            case "POST" if not target.name or target.subresource:
                return self._writer.post(target, request)
            case "PUT" if target.name:
                return self._writer.put(target, request)
            case "PATCH" if target.name:
                return self._writer.patch(target, request)
            case "DELETE" if not target.subresource:
                return self._writer.delete(target, request)
        raise method_not_allowed()

    def _describe(self, request: Request) -> Response:
        """Discovery, health and version: everything that concerns no object."""
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        path = request.path.rstrip("/")
        if path in HEALTH:
            return Response(200, b"ok", "text/plain; charset=utf-8")
        if path == "/openapi/v2":
            # The empty message is a valid document without types: kubectl has nothing to validate against.
            return Response(200, b"", OPENAPI_V2)
        found = self._described(path, request.accept)
        if found is None:
            raise no_such_route()
        if found.get("kind") == "APIGroupDiscoveryList":
            return Response(200, encode(found), AGGREGATED)
        return Response(200, encode(found))

    def _described(self, path: str, accept: str) -> Object | None:
        catalog = self._cluster.catalog
        if path in ("/api", "/apis") and "as=APIGroupDiscoveryList" in accept and "v=v2;" in f"{accept};":
            return aggregated(catalog, core=path == "/api")
        match path.split("/")[1:]:
            case [""] | []:
                return {"paths": ["/api", "/apis", "/healthz", "/livez", "/readyz", "/version"]}
            case ["version"]:
                return VERSION
            case ["openapi", "v3"]:
                return {"paths": {}}
            case ["api"]:
                return core_versions()
            case ["api", version]:
                return resource_list(catalog, "", version)
            case ["apis"]:
                return group_list(catalog)
            case ["apis", group]:
                return one_group(catalog, group)
            case ["apis", group, version]:
                return resource_list(catalog, group, version)
        return None
