"""Requests and responses as plain values, and the object that a path names."""

from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

import msgspec

from testing.simulator.errors import ApiError, bad_request, no_such_route
from testing.simulator.protobuf import PROTOBUF, decode
from testing.simulator.resources import NAMESPACES, ApiResource, Catalog, Object
from testing.simulator.store import decode_any

BULK = "/bulk"
"""Before a collection's path: the body is a list of objects, which are posted to it one by one. No API server has this;
it spares benchmarks a request for each object.
"""
JSON = "application/json"
TRUE = frozenset({"1", "true", "True", "t", "T", "TRUE"})


class Response(NamedTuple):
    status: int
    body: bytes
    content_type: str = JSON
    retry_after: int = 0


def error_response(error: ApiError) -> Response:
    return Response(error.code, error.body(), retry_after=error.retry_after)


@dataclass(slots=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON
    as_of: int | None = None
    """Answer a list or watch from a stale cache, at this version."""

    def flag(self, name: str) -> bool:
        return self.query.get(name) in TRUE

    def number(self, name: str) -> int | None:
        text = self.query.get(name)
        if not text:
            return None
        if not text.isdecimal():
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax: {name}')
        return int(text)

    @property
    def dry_run(self) -> bool:
        asked = self.query.get("dryRun")
        if asked not in (None, "", "All"):
            raise bad_request(f'Invalid value: "{asked}": dryRun must be All')
        return asked == "All"

    @property
    def resource_version(self) -> int | None:
        text = self.query.get("resourceVersion")
        if not text:
            return None
        if not text.isdecimal():
            raise bad_request(f'invalid resource version "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')
        return int(text)

    def object(self) -> Object:
        return as_object(self.json())

    def json(self) -> Any:
        if self.content_type == PROTOBUF:
            return decode(self.body)
        try:
            return decode_any(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None


def as_object(value: Any) -> Object:
    if not isinstance(value, dict):
        raise bad_request(
            "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of an object"
        )
    return value


def parse_target(url: str) -> tuple[str, dict[str, str]]:
    """Split a request target into path and query."""
    path, question, query = url.partition("?")
    return path, dict(parse_qsl(query, keep_blank_values=True)) if question else {}


@dataclass(slots=True)
class Target:
    """A collection, an object or a subresource."""

    resource: ApiResource
    namespace: str | None
    name: str
    subresource: str

    @property
    def scope(self) -> str:
        """The namespace under which the object is stored."""
        return self.namespace or ""


def resolve(catalog: Catalog, path: str) -> Target | None:
    """The target of a path; None if the path is not below a group version."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in NAMESPACES.subresources:
        namespace, rest = rest[1], rest[2:]
    resource = catalog.find(group, version, rest[0])
    if resource is None or len(rest) > 3:
        raise no_such_route()
    name = rest[1] if len(rest) > 1 else ""
    if "%" in name:
        name = unquote(name)
    subresource = rest[2] if len(rest) > 2 else ""
    if (namespace is not None and not resource.namespaced) or (name and resource.namespaced and namespace is None):
        raise no_such_route()
    if subresource and subresource not in resource.subresources:
        raise no_such_route()
    return Target(resource, namespace, name, subresource)
