"""Object metadata: names, labels, timestamps, and their validation."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from testing.simulator.errors import ApiError, Cause, bad_request, invalid_value, required
from testing.simulator.resources import NAMESPACES, ApiResource, Object

MAX_NAME = 253
MAX_LABEL = 63
MAX_PREFIX = MAX_NAME - 5
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_NOT_A_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_NOT_A_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_NOT_A_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_NOT_A_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_FREE_NAMES = frozenset({"rbac.authorization.k8s.io"})


def metadata_of(obj: Object) -> Object:
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = obj["metadata"] = {}
    if not isinstance(metadata, dict):
        raise cannot_unmarshal("metadata", metadata, "ObjectMeta")
    for key in ("labels", "annotations"):
        mapping = metadata.get(key)
        if mapping is None:
            metadata.pop(key, None)
        elif not isinstance(mapping, dict) or not all(isinstance(value, str) for value in mapping.values()):
            raise cannot_unmarshal(f"metadata.{key}", mapping, "map[string]string")
    for key in ("name", "generateName", "namespace", "uid", "resourceVersion"):
        expect(f"metadata.{key}", metadata.get(key), str, "string")
    for key in ("finalizers", "ownerReferences"):
        expect(f"metadata.{key}", metadata.get(key), list, "slice")
    return metadata


def cannot_unmarshal(field: str, value: Any, wanted: str) -> ApiError:
    kind = {bool: "bool", dict: "object", list: "array", str: "string"}.get(type(value), "number")
    return bad_request(f"json: cannot unmarshal {kind} into Go struct field .{field} of type {wanted}")


def expect(field: str, value: Any, wanted: type, name: str) -> None:
    """Raise if the field is set and does not decode as this type."""
    if value is not None and not isinstance(value, wanted):
        raise cannot_unmarshal(field, value, name)


def expect_objects(field: str, items: Any, name: str = "slice of objects") -> None:
    """Raise if the field is set and is not a list of objects."""
    if items is not None and not (isinstance(items, list) and all(isinstance(item, dict) for item in items)):
        raise cannot_unmarshal(field, items, name)


def metadata_causes(resource: ApiResource, metadata: Object) -> Iterator[Cause]:
    if resource.group not in _FREE_NAMES:
        yield from name_causes("metadata.name", metadata["name"], label=resource is NAMESPACES)
    for key, value in (metadata.get("labels") or {}).items():
        yield from qualified_name_causes("metadata.labels", key)
        if len(value) > MAX_LABEL:
            yield invalid_value("metadata.labels", value, f"must be no more than {MAX_LABEL} characters")
        elif value and not _QUALIFIED.fullmatch(value):
            yield invalid_value("metadata.labels", value, _NOT_A_VALUE)


def name_causes(field: str, name: Any, *, label: bool = False) -> Iterator[Cause]:
    pattern, longest, why = (_LABEL, MAX_LABEL, _NOT_A_LABEL) if label else (_SUBDOMAIN, MAX_NAME, _NOT_A_SUBDOMAIN)
    if not isinstance(name, str) or not name:
        yield required(field)
    elif len(name) > longest:
        yield invalid_value(field, name, f"must be no more than {longest} characters")
    elif not pattern.fullmatch(name):
        yield invalid_value(field, name, why)


def qualified_name_causes(field: str, key: str) -> Iterator[Cause]:
    """Validate a name with an optional domain prefix."""
    prefix, slash, name = key.rpartition("/")
    if slash and not _SUBDOMAIN.fullmatch(prefix):
        yield invalid_value(field, key, f"prefix part {_NOT_A_SUBDOMAIN}")
    if len(name) > MAX_LABEL:
        yield invalid_value(field, key, f"name part must be no more than {MAX_LABEL} characters")
    elif not _QUALIFIED.fullmatch(name):
        yield invalid_value(field, key, _NOT_A_KEY)


def timestamp(now: float) -> str:
    """RFC 3339 in whole seconds, as in metadata and conditions."""
    return _of_second(int(now))


@lru_cache(maxsize=16)
def _of_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
