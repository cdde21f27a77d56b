"""API discovery: groups, versions and resources, as kubectl asks for them first."""

from collections.abc import Iterable

from testing.simulator.resources import Catalog, Object, Resource

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
POSTED = ("binding", "eviction")


def core_versions() -> Object:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(catalog: Catalog) -> Object:
    groups = [_group(name, versions) for name, versions in catalog.groups().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def one_group(catalog: Catalog, name: str) -> Object | None:
    versions = catalog.groups().get(name) if name else None
    return None if versions is None else {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def _group(name: str, versions: list[str]) -> Object:
    shown = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": shown, "preferredVersion": shown[0]}


def resource_list(catalog: Catalog, group: str, version: str) -> Object | None:
    resources = catalog.of_version(group, version)
    if resources is None:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [shown for resource in resources for shown in _with_subresources(resource)],
    }


def _with_subresources(resource: Resource) -> Iterable[Object]:
    shown: Object = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": ["create"] if resource.virtual else VERBS,
    }
    if resource.short_names:
        shown["shortNames"] = list(resource.short_names)
    if resource.categories:
        shown["categories"] = list(resource.categories)
    yield shown
    for subresource in resource.subresources:
        kind, group, version = _subresource_kind(resource, subresource)
        part: Object = {
            "name": f"{resource.plural}/{subresource}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": kind,
            "verbs": _subresource_verbs(subresource),
        }
        if group:
            part |= {"group": group, "version": version}
        yield part


def _subresource_kind(resource: Resource, subresource: str) -> tuple[str, str, str]:
    """The kind of a subresource, and its group and version where they are not the resource's."""
    match subresource:
        case "scale":
            return "Scale", "autoscaling", "v1"
        case "eviction":
            return "Eviction", "policy", "v1"
        case "binding":
            return "Binding", "", ""
        case _:
            return resource.kind, "", ""


def _subresource_verbs(subresource: str) -> list[str]:
    if subresource in POSTED:
        return ["create"]
    return ["get"] if subresource == "log" else ["get", "patch", "update"]


def aggregated(catalog: Catalog, *, core: bool) -> Object:
    """All group versions and their resources in one response."""
    items = [
        {
            "metadata": {"name": name} if name else {},
            "versions": [_aggregated_version(catalog, name, version) for version in versions],
        }
        for name, versions in catalog.groups().items()
        if core == (not name)
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_version(catalog: Catalog, group: str, version: str) -> Object:
    resources = [_aggregated_resource(resource) for resource in catalog.of_version(group, version) or ()]
    return {"version": version, "resources": resources, "freshness": "Current"}


def _aggregated_resource(resource: Resource) -> Object:
    shown: Object = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.kind.lower(),
        "verbs": ["create"] if resource.virtual else VERBS,
    }
    if resource.short_names:
        shown["shortNames"] = list(resource.short_names)
    if resource.categories:
        shown["categories"] = list(resource.categories)
    parts = []
    for subresource in resource.subresources:
        kind, group, version = _subresource_kind(resource, subresource)
        response = {"group": group or resource.group, "version": version or resource.version, "kind": kind}
        parts.append({"subresource": subresource, "responseKind": response, "verbs": _subresource_verbs(subresource)})
    if parts:
        shown["subresources"] = parts
    return shown
