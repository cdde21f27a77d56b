"""Deployments: a ReplicaSet for each template, the latest of which takes over from the others step by step."""

from math import ceil, floor
from typing import Any

from testing.simulator.resources import Object
from testing.simulator.workloads.ownership import (
    REPLICA_SETS,
    Dependent,
    Ownership,
    Workload,
    condition,
    template_hash,
    template_of,
)

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
DEFAULT_HISTORY = 10
_COUNTED = ("replicas", "readyReplicas", "availableReplicas")


def reconcile(ownership: Ownership, workload: Workload) -> bool:
    obj = workload.item.decode()
    template = template_of(obj)
    if template is None:
        return False
    wanted = template_hash(template)
    latest = _of_hash(workload, wanted)
    if latest is None and not obj["spec"].get("paused"):
        _make_set(ownership, workload, obj, template, wanted)
        latest = _of_hash(workload, wanted)
    elif latest is not None and _revision(latest) < _last_revision(workload):
        _rewrite(ownership, latest, revision=_last_revision(workload) + 1)
        latest = _of_hash(workload, wanted)
    by_age = sorted(workload.replica_sets(), key=_revision)
    older = [each for each in by_age if latest is None or each.item.name != latest.item.name]
    if latest is None:  # paused before its first template
        older, latest = older[:-1], older[-1] if older else None
    if latest is not None:
        for replica_set, replicas in next_sizes(obj["spec"], _object(latest), [_object(each) for each in older]):
            found = workload.dependents[REPLICA_SETS.plural, replica_set["metadata"]["name"]]
            _rewrite(ownership, found, replicas=replicas)
    _forget_history(ownership, obj["spec"], older)
    _note_revision(ownership, workload)
    ownership.set_status(workload, _status(ownership, workload, wanted))
    return False


def next_sizes(spec: Object, latest: Object, older: list[Object]) -> list[tuple[Object, int]]:
    """The ReplicaSets that change their size now, with their new sizes."""
    replicas: int = spec.get("replicas", 1)
    running = [each for each in older if _size(each) or _counted(each, "replicas")]
    if not running:
        return [(latest, replicas)] if _size(latest) != replicas else []
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        return [(each, 0) for each in running if _size(each)]
    surge, unavailable = limits(spec)
    total = sum(map(_size, (latest, *running)))
    if _size(latest) > replicas:
        return [(latest, replicas)]
    room = min(replicas + surge - total, replicas - _size(latest))
    if room > 0:
        return [(latest, _size(latest) + room)]
    changes: list[tuple[Object, int]] = []
    lost = _size(latest) - _counted(latest, "availableReplicas")
    surplus = total - (replicas - unavailable) - lost
    # Pods that are not available are no loss, so they go first.
    for each in sorted(running, key=lambda each: _counted(each, "availableReplicas")):
        gone = max(0, min(_size(each), surplus))
        surplus -= gone
        if gone:
            changes.append((each, _size(each) - gone))
    return changes


def limits(spec: Object) -> tuple[int, int]:
    """How many pods may be too many, and how many may be missing, during a rollout."""
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    replicas = spec.get("replicas", 1)
    surge = _share(rolling.get("maxSurge", "25%"), replicas, up=True)
    unavailable = _share(rolling.get("maxUnavailable", "25%"), replicas, up=False)
    return surge, unavailable if surge or unavailable else 1


def _share(value: Any, total: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    share = total * int(str(value).removesuffix("%")) / 100
    return ceil(share) if up else floor(share)


def _make_set(ownership: Ownership, workload: Workload, obj: Object, template: Object, wanted: str) -> None:
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), HASH: wanted}
    selector = obj["spec"].get("selector") or {}
    replica_set = {
        "metadata": {
            "name": f"{workload.item.name}-{wanted}",
            "labels": labels,
            "annotations": {REVISION: str(_last_revision(workload) + 1)},
        },
        "spec": {
            "replicas": 0,
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH: wanted}},
            "template": {**template, "metadata": {**metadata, "labels": labels}},
        },
    }
    ownership.make(REPLICA_SETS, workload, replica_set)


def _rewrite(
    ownership: Ownership, dependent: Dependent, *, replicas: int | None = None, revision: int | None = None
) -> None:
    obj = dependent.item.decode()
    if replicas is not None:
        obj["spec"]["replicas"] = replicas
    if revision is not None:
        obj["metadata"]["annotations"] = {**(obj["metadata"].get("annotations") or {}), REVISION: str(revision)}
    ownership.cluster.update(REPLICA_SETS, dependent.item, obj)


def _forget_history(ownership: Ownership, spec: Object, older: list[Dependent]) -> None:
    """Remove the oldest ReplicaSets that have no pods and are beyond the limit of the history."""
    empty = [each for each in older if not _size(_object(each)) and not _counted(_object(each), "replicas")]
    kept = spec.get("revisionHistoryLimit", DEFAULT_HISTORY)
    for each in sorted(empty, key=_revision)[: max(0, len(empty) - kept)]:
        ownership.remove(each)


def _note_revision(ownership: Ownership, workload: Workload) -> None:
    """Write the revision of the latest ReplicaSet to the Deployment, where kubectl rollout reads it."""
    obj, revision = workload.item.decode(), str(_last_revision(workload))
    annotations = obj["metadata"].get("annotations") or {}
    if revision != "0" and annotations.get(REVISION) != revision:
        obj["metadata"]["annotations"] = {**annotations, REVISION: revision}
        ownership.cluster.store.put(workload.resource, obj)


def _status(ownership: Ownership, workload: Workload, wanted: str) -> Object:
    obj, now = workload.item.decode(), ownership.now()
    before, replicas = obj.get("status") or {}, obj["spec"].get("replicas", 1)
    sets = {each.item.name: _object(each) for each in workload.replica_sets()}
    latest = sets.get(f"{workload.item.name}-{wanted}", {})
    counts = {name: sum(_counted(each, name) for each in sets.values()) for name in _COUNTED}
    updated, available = _counted(latest, "replicas"), counts["availableReplicas"]
    enough = available >= replicas - limits(obj["spec"])[1]
    complete = updated == replicas == counts["replicas"] == available
    named = f'ReplicaSet "{workload.item.name}-{wanted}"'
    conditions = [
        condition(
            *(before, "Available", enough, f"MinimumReplicas{'Available' if enough else 'Unavailable'}"),
            *(f"Deployment {'has' if enough else 'does not have'} minimum availability.", now),
            updates=True,
        ),
        condition(
            *(before, "Progressing", True, "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated"),
            *(f"{named} {'has successfully progressed' if complete else 'is progressing'}.", now),
            updates=True,
        ),
    ]
    failures = [
        each for replica_set in sets.values() for each in (replica_set.get("status") or {}).get("conditions", ())
    ]
    return {
        **counts,
        "updatedReplicas": updated,
        "unavailableReplicas": max(0, max(replicas, counts["replicas"]) - available),
        "conditions": [*conditions, *failures[:1]],
    }


def _of_hash(workload: Workload, wanted: str) -> Dependent | None:
    return workload.dependents.get((REPLICA_SETS.plural, f"{workload.item.name}-{wanted}"))


def _last_revision(workload: Workload) -> int:
    return max(map(_revision, workload.replica_sets()), default=0)


def _revision(dependent: Dependent) -> int:
    text = dependent.annotations.get(REVISION, "0")
    return int(text) if text.isdecimal() else 0


def _object(dependent: Dependent) -> Object:
    return dependent.item.decode()


def _size(replica_set: Object) -> int:
    return int(replica_set["spec"].get("replicas", 1))


def _counted(replica_set: Object, name: str) -> int:
    return int((replica_set.get("status") or {}).get(name, 0))
