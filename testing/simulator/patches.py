"""Merge patch (RFC 7386), JSON patch (RFC 6902) and strategic merge patch. All change the object in place.

A strategic merge patch knows which lists are keyed, and by which field. Lists that MERGE_KEYS does not name, such as
tolerations and taints, are replaced as a whole.
"""

from typing import Any

from testing.simulator.errors import ApiError, bad_request
from testing.simulator.resources import Object

MAX_OPERATIONS = 10_000
FIELDS_BY_MERGE_KEY = {
    "name": (
        *("containers", "initContainers", "ephemeralContainers", "env", "volumes", "imagePullSecrets", "secrets"),
        *("schedulingGates", "resourceClaims", "resourceClaimStatuses"),
    ),
    "mountPath": ("volumeMounts",),
    "devicePath": ("volumeDevices",),
    "containerPort": ("ports",),
    "type": ("conditions", "addresses"),
    "uid": ("ownerReferences",),
    "ip": ("hostAliases", "podIPs", "hostIPs"),
    "topologyKey": ("topologySpreadConstraints",),
}
MERGE_KEYS = {field: key for key, fields in FIELDS_BY_MERGE_KEY.items() for field in fields}
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
    import jsonpatch

    try:
        return jsonpatch.apply_patch(document, operations, in_place=True)
    except jsonpatch.InvalidJsonPatch as error:
        raise bad_request(f"JSON patch: {error}") from None
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        reason = f"the server rejected our request due to an error in our request: {error}"
        raise ApiError(422, "Invalid", reason) from None


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
            field = key.removeprefix(DELETED)
            if isinstance(target.get(field), list) and isinstance(value, list):
                target[field] = [item for item in target[field] if item not in value]
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
