"""Discovery, health and version: every answer that concerns no object. kubectl asks for these first."""

from collections.abc import Iterator

from testing.simulator.errors import method_not_allowed, no_such_route
from testing.simulator.requests import Request, Response
from testing.simulator.resources import ApiResource, Catalog, Object
from testing.simulator.store import encode

HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
OPEN_TO_ALL = HEALTH | {"/version"}
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
_OF_CONTAINERS = ["create", "get"]
SUBRESOURCE_VERBS = {
    "binding": ["create"],
    "eviction": ["create"],
    "log": ["get"],
    "exec": _OF_CONTAINERS,
    "attach": _OF_CONTAINERS,
    "portforward": _OF_CONTAINERS,
}
"""Of other subresources: get, patch, update."""
OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def describe(catalog: Catalog, request: Request) -> Response:
    if request.method not in ("GET", "HEAD"):
        raise method_not_allowed()
    path = request.path.rstrip("/")
    if path in HEALTH:
        return Response(200, b"ok", "text/plain; charset=utf-8")
    if path == "/openapi/v2":
        # The empty message is a valid document without types: kubectl has nothing to validate against.
        return Response(200, b"", OPENAPI_V2)
    if path in ("/api", "/apis") and "as=APIGroupDiscoveryList" in request.accept and "v=v2;" in f"{request.accept};":
        return Response(200, encode(_aggregated(catalog, core=path == "/api")), AGGREGATED)
    found = _described(catalog, path)
    if found is None:
        raise no_such_route()
    return Response(200, encode(found))


def _described(catalog: Catalog, path: str) -> Object | None:
    groups = catalog.groups()
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
