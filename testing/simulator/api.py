"""The API: a request in plain values goes in, an answer or a watch comes out. Nothing waits here."""

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
from testing.simulator.reads import Reading
from testing.simulator.requests import Answer, Call, Target, refusal, resolve
from testing.simulator.resources import Object
from testing.simulator.store import encode
from testing.simulator.subresources import Reviews
from testing.simulator.watch import Watch
from testing.simulator.writes import Changing

HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
OPEN_TO_ALL = HEALTH | {"/version"}
MISSHAPEN = (AttributeError, KeyError, TypeError, ValueError, RecursionError)
"""What comes of an object that has something else where an object, a list or a string should be."""
OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


class Api:
    def __init__(self, cluster: Cluster, most_waiting: int, reviews: Reviews) -> None:
        self.reading = Reading(cluster, most_waiting)
        self._cluster = cluster
        self._changing = Changing(cluster, reviews)

    def handle(self, call: Call) -> Answer | Watch:
        """Never raises for what a client can do: what is refused is an answer, too."""
        try:
            target = resolve(self._cluster.catalog, call.path)
            return self._about(call) if target is None else self._dispatch(target, call)
        except ApiError as error:
            return refusal(error)
        except MISSHAPEN as error:
            if not call.body:
                raise
            refused = bad_request(f"the body of the request cannot be handled: {type(error).__name__}: {error}")
            return refusal(refused)

    def _dispatch(self, target: Target, call: Call) -> Answer | Watch:
        match call.method:
            case "GET":
                return self.reading.get(target, call) if target.name else self.reading.list_or_watch(target, call)
            case "POST" if not target.name or target.subresource:
                return self._changing.post(target, call)
            case "PUT" if target.name:
                return self._changing.put(target, call)
            case "PATCH" if target.name:
                return self._changing.patch(target, call)
            case "DELETE" if not target.subresource:
                return self._changing.delete(target, call)
        raise method_not_allowed()

    def _about(self, call: Call) -> Answer:
        """Everything that is not about an object: discovery, health, version."""
        if call.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        path = call.path.rstrip("/")
        if path in HEALTH:
            return Answer(200, b"ok", "text/plain; charset=utf-8")
        if path == "/openapi/v2":
            # The empty message is a valid document, in which no type is described: there is nothing to validate by.
            return Answer(200, b"", OPENAPI_V2)
        found = self._described(path, call.accept)
        if found is None:
            raise no_such_route()
        if found.get("kind") == "APIGroupDiscoveryList":
            return Answer(200, encode(found), AGGREGATED)
        return Answer(200, encode(found))

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
