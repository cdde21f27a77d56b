"""Merge patch (RFC 7386), JSON patch (RFC 6902) and strategic merge patch. All change the object in place.

A strategic merge patch knows which lists are keyed, and by which field. Lists that MERGE_KEYS does not name, such as
tolerations and taints, are replaced as a whole.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from testing.simulator.errors import ApiError, bad_request
from testing.simulator.resources import Object

MAX_OPERATIONS = 10_000
MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "conditions": "type",
    "addresses": "type",
    "ownerReferences": "uid",
    "imagePullSecrets": "name",
    "secrets": "name",
    "hostAliases": "ip",
    "podIPs": "ip",
    "hostIPs": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "resourceClaimStatuses": "name",
}
MERGED_PRIMITIVES = frozenset({"finalizers", "podCIDRs"})
DIRECTIVE = "$patch"
RETAINED = "$retainKeys"
ORDER = "$setElementOrder/"
DELETED = "$deleteFromPrimitiveList/"


def merge_patch(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged: Object = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(document: Any, operations: Any) -> Any:
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    if len(operations) > MAX_OPERATIONS:
        raise ApiError(
            413, "RequestEntityTooLarge", f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}"
        )
    for operation in operations:
        document = _apply(document, operation)
    return document


def _apply(document: Any, operation: Any) -> Any:
    if not isinstance(operation, dict):
        raise bad_request("a JSON patch is a list of objects")
    name, path = operation.get("op"), operation.get("path")
    if not isinstance(path, str) or name not in _OPERATIONS:
        raise bad_request(f"JSON patch: unexpected kind of operation: {name!r} at {path!r}")
    return _OPERATIONS[name](document, _pointer(path), operation)


def _pointer(path: str) -> list[str]:
    if not path:
        return []
    if not path.startswith("/"):
        raise bad_request(f"JSON patch: {path!r} is not a JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]


def _refused(operation: str, steps: list[str]) -> ApiError:
    path = "/" + "/".join(steps)
    return ApiError(
        422, "Invalid", f"the server rejected our request due to an error in our request: {operation} {path}"
    )


def _child(holder: Any, step: str, steps: list[str]) -> Any:
    if isinstance(holder, dict) and step in holder:
        return holder[step]
    if isinstance(holder, list):
        return holder[_index(step, len(holder) - 1, steps)]
    raise _refused("no such path:", steps)


def _index(step: str, last: int, steps: list[str]) -> int:
    if not step.isdecimal() or int(step) > last:
        raise _refused("no such path:", steps)
    return int(step)


def _get(document: Any, steps: list[str]) -> Any:
    for step in steps:
        document = _child(document, step, steps)
    return document


def _put(document: Any, steps: list[str], value: Any) -> Any:
    if not steps:
        return value
    holder = _get(document, steps[:-1])
    last = steps[-1]
    if isinstance(holder, dict):
        holder[last] = value
    elif isinstance(holder, list):
        holder.insert(len(holder) if last == "-" else _index(last, len(holder), steps), value)
    else:
        raise _refused("cannot add at", steps)
    return document


def _take(document: Any, steps: list[str]) -> Any:
    """Remove what is there, and return it."""
    if not steps:
        raise _refused("cannot remove", steps)
    holder = _get(document, steps[:-1])
    found = _child(holder, steps[-1], steps)
    if isinstance(holder, dict):
        del holder[steps[-1]]
    else:
        del holder[int(steps[-1])]
    return found


def _add(document: Any, steps: list[str], operation: Object) -> Any:
    return _put(document, steps, operation.get("value"))


def _remove(document: Any, steps: list[str], operation: Object) -> Any:
    _take(document, steps)
    return document


def _replace(document: Any, steps: list[str], operation: Object) -> Any:
    if steps:
        _take(document, steps)
    return _put(document, steps, operation.get("value"))


def _move(document: Any, steps: list[str], operation: Object) -> Any:
    source = _pointer(str(operation.get("from")))
    if steps[: len(source)] == source and steps != source:
        raise _refused("cannot move into itself:", steps)
    return _put(document, steps, _take(document, source))


def _copy(document: Any, steps: list[str], operation: Object) -> Any:
    found = _get(document, _pointer(str(operation.get("from"))))
    return _put(document, steps, msgspec.json.decode(msgspec.json.encode(found)))


def _test(document: Any, steps: list[str], operation: Object) -> Any:
    if _get(document, steps) != operation.get("value"):
        raise _refused("testing path", steps)
    return document


_OPERATIONS: dict[str, Callable[[Any, list[str], Object], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def strategic_patch(target: Object, patch: Any) -> Object:
    if not isinstance(patch, dict):
        raise bad_request("a strategic merge patch is an object")
    return _merge(target, patch, "")


def _merge_key(field: str, parent: str) -> str | None:
    return "port" if field == "ports" and parent == "spec" else MERGE_KEYS.get(field)


def _merge(target: Object, patch: Object, name: str) -> Object:
    directive = patch.get(DIRECTIVE)
    if directive == "replace":
        return _merge({}, {key: value for key, value in patch.items() if key != DIRECTIVE}, name)
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unknown patch type: {directive!r}")
    for key, value in patch.items():
        if key.startswith("$") or value is None:
            continue
        target[key] = _merged(target.get(key), value, key, name)
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif key.startswith(DELETED):
            _delete_primitives(target, key.removeprefix(DELETED), value)
        elif key.startswith(ORDER):
            _reorder(target, key.removeprefix(ORDER), value, name)
    retained: list[str] | None = patch.get(RETAINED)
    return target if retained is None else {key: value for key, value in target.items() if key in retained}


def _merged(old: Any, new: Any, field: str, parent: str) -> Any:
    if isinstance(new, dict):
        if field in MERGE_KEYS:
            raise bad_request(f"cannot restore slice from map: {field} is a list")
        return _merge(old if isinstance(old, dict) else {}, new, field)
    if not isinstance(new, list):
        return new
    key = _merge_key(field, parent)
    if key is not None:
        return _merge_list(old if isinstance(old, list) else [], new, key, field)
    if field in MERGED_PRIMITIVES and isinstance(old, list):
        return [*old, *(value for value in new if value not in old)]
    return [_stripped(value, field) for value in new]


def _merge_list(old: list[Any], patches: list[Any], key: str, field: str) -> list[Any]:
    if any(isinstance(patch, dict) and patch.get(DIRECTIVE) == "replace" for patch in patches):
        return [_stripped(patch, field) for patch in patches if DIRECTIVE not in patch]
    merged = [item for item in old if isinstance(item, dict)]
    for patch in patches:
        if not isinstance(patch, dict) or key not in patch:
            raise bad_request(f"map: {patch!r} does not contain declared merge key: {key}")
        place = next((at for at, item in enumerate(merged) if item.get(key) == patch[key]), None)
        if patch.get(DIRECTIVE) == "delete":
            merged = [item for item in merged if item.get(key) != patch[key]]
        elif place is None:
            merged.append(_stripped(patch, field))
        else:
            merged[place] = _merge(merged[place], patch, field)
    return merged


def _stripped(value: Any, field: str) -> Any:
    """A new value, stripped of directives and nulls."""
    return _merge({}, value, field) if isinstance(value, dict) else value


def _delete_primitives(target: Object, field: str, values: Any) -> None:
    if isinstance(target.get(field), list) and isinstance(values, list):
        target[field] = [value for value in target[field] if value not in values]


def _reorder(target: Object, field: str, order: Any, parent: str) -> None:
    """Sort items as `order` says; items that it does not name follow in their old order."""
    items = target.get(field)
    if not isinstance(items, list) or not isinstance(order, list):
        return
    key = _merge_key(field, parent)
    wanted = [item.get(key) if isinstance(item, dict) else item for item in order]

    def place(item: Any) -> int:
        value = item.get(key) if isinstance(item, dict) else item
        return wanted.index(value) if value in wanted else len(wanted)

    target[field] = sorted(items, key=place)
