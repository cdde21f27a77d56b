"""Dispatch: a request goes in, a response or a watch comes out. Synchronous and free of I/O.

Includes discovery: groups, versions and resources, as kubectl asks for them first.
"""

from collections.abc import Iterator, Sequence

from testing.simulator.cluster import SimulatedCluster
from testing.simulator.errors import ApiError, bad_request, method_not_allowed, no_such_route
from testing.simulator.reads import ObjectReader
from testing.simulator.requests import JSON, Request, Response, Target, error_response, resolve
from testing.simulator.resources import ApiResource, Catalog, Object
from testing.simulator.store import encode
from testing.simulator.subresources import ReviewedUser
from testing.simulator.watch import Watch
from testing.simulator.writes import Writer

HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
OPEN_TO_ALL = HEALTH | {"/version"}
MALFORMED = (AttributeError, KeyError, TypeError, ValueError, RecursionError)
"""What handling a body raises whose fields have unexpected types."""
VERSION: Object = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+flotilla",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
SUBRESOURCE_VERBS = {"binding": ["create"], "eviction": ["create"], "log": ["get"]}
"""Of other subresources: get, patch, update."""
OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


class Api:
    def __init__(self, cluster: SimulatedCluster, max_pending_bytes: int, users: Sequence[ReviewedUser] = ()) -> None:
        self.reader = ObjectReader(cluster, max_pending_bytes)
        self._cluster = cluster
        self._writer = Writer(cluster, users)

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
            case "GET" if request.flag("watch") and not target.subresource:
                return self.reader.watch(target, request)
            case "GET":
                return self.reader.get(target, request) if target.name else self.reader.list_objects(target, request)
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
        is_aggregated = found.get("kind") == "APIGroupDiscoveryList"
        return Response(200, encode(found), AGGREGATED if is_aggregated else JSON)

    def _described(self, path: str, accept: str) -> Object | None:
        catalog = self._cluster.catalog
        groups = catalog.groups()
        if path in ("/api", "/apis") and "as=APIGroupDiscoveryList" in accept and "v=v2;" in f"{accept};":
            return _aggregated(catalog, core=path == "/api")
        match path.split("/")[1:]:
            case [""] | []:
                return {"paths": ["/api", "/apis", "/healthz", "/livez", "/readyz", "/version"]}
            case ["version"]:
                return VERSION
            case ["openapi", "v3"]:
                return {"paths": {}}
            case ["api"]:
                return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
            case ["api", version]:
                return _resource_list(catalog, "", version)
            case ["apis"]:
                listed = [_group(name, versions) for name, versions in groups.items() if name]
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
            case ["apis", group] if group and group in groups:
                return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
            case ["apis", group, version]:
                return _resource_list(catalog, group, version)
        return None


def _group(name: str, versions: list[str]) -> Object:
    shown = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": shown, "preferredVersion": shown[0]}


def _resource_list(catalog: Catalog, group: str, version: str) -> Object | None:
    resources = catalog.of_version(group, version)
    if not resources:
        return None
    shown: list[Object] = []
    for resource in resources:
        scope = {"namespaced": resource.namespaced}
        names = {"name": resource.plural, "singularName": resource.kind.lower()}
        shown.append({**names, **scope, "kind": resource.kind, "verbs": _verbs(resource), **_names(resource)})
        for subresource, kind, verbs in _subresources(resource):
            part = {"name": f"{resource.plural}/{subresource}", "singularName": "", **scope, "kind": kind["kind"]}
            elsewhere = {} if kind["group"] == group else {"group": kind["group"], "version": kind["version"]}
            shown.append({**part, "verbs": verbs, **elsewhere})
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": shown}


def _verbs(resource: ApiResource) -> list[str]:
    return ["create"] if resource.virtual else VERBS


def _names(resource: ApiResource) -> Object:
    names = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {key: listed for key, listed in names.items() if listed}


def _subresources(resource: ApiResource) -> Iterator[tuple[str, dict[str, str], list[str]]]:
    """Name, kind (with group and version) and verbs of each subresource."""
    for name in resource.subresources:
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        if name == "scale":
            kind = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        elif name == "eviction":
            kind = {"group": "policy", "version": "v1", "kind": "Eviction"}
        elif name == "binding":
            kind["kind"] = "Binding"
        yield name, kind, SUBRESOURCE_VERBS.get(name, ["get", "patch", "update"])


def _aggregated(catalog: Catalog, *, core: bool) -> Object:
    """All group versions and their resources in one response."""
    items: list[Object] = []
    for name, versions in catalog.groups().items():
        if core == (not name):
            shown = [
                {
                    "version": version,
                    "resources": [_aggregated_resource(resource) for resource in catalog.of_version(name, version)],
                    "freshness": "Current",
                }
                for version in versions
            ]
            items.append({"metadata": {"name": name} if name else {}, "versions": shown})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_resource(resource: ApiResource) -> Object:
    parts = [
        {"subresource": name, "responseKind": kind, "verbs": verbs} for name, kind, verbs in _subresources(resource)
    ]
    return {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.kind.lower(),
        "verbs": _verbs(resource),
        **_names(resource),
        **({"subresources": parts} if parts else {}),
    }
