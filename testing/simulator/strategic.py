"""Strategic merge patch: a merge patch that knows which lists are keyed, and by what.

Lists that are not named here are replaced as a whole, tolerations and taints among them.
"""

from typing import Any

from testing.simulator.errors import bad_request
from testing.simulator.resources import Object

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
    return [_plain(value, field) for value in new]


def _merge_list(old: list[Any], patches: list[Any], key: str, field: str) -> list[Any]:
    if any(isinstance(patch, dict) and patch.get(DIRECTIVE) == "replace" for patch in patches):
        return [_plain(patch, field) for patch in patches if DIRECTIVE not in patch]
    merged = [item for item in old if isinstance(item, dict)]
    for patch in patches:
        if not isinstance(patch, dict) or key not in patch:
            raise bad_request(f"map: {patch!r} does not contain declared merge key: {key}")
        place = next((at for at, item in enumerate(merged) if item.get(key) == patch[key]), None)
        if patch.get(DIRECTIVE) == "delete":
            merged = [item for item in merged if item.get(key) != patch[key]]
        elif place is None:
            merged.append(_plain(patch, field))
        else:
            merged[place] = _merge(merged[place], patch, field)
    return merged


def _plain(value: Any, field: str) -> Any:
    """A value that has nothing to be merged with: without directives and nulls."""
    return _merge({}, value, field) if isinstance(value, dict) else value


def _delete_primitives(target: Object, field: str, values: Any) -> None:
    if isinstance(target.get(field), list) and isinstance(values, list):
        target[field] = [value for value in target[field] if value not in values]


def _reorder(target: Object, field: str, order: Any, parent: str) -> None:
    """Items in the order that is asked for; those that it does not name come after them, as they were."""
    items = target.get(field)
    if not isinstance(items, list) or not isinstance(order, list):
        return
    key = _merge_key(field, parent)
    wanted = [item.get(key) if isinstance(item, dict) else item for item in order]

    def place(item: Any) -> int:
        value = item.get(key) if isinstance(item, dict) else item
        return wanted.index(value) if value in wanted else len(wanted)

    target[field] = sorted(items, key=place)
