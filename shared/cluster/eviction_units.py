"""What is evicted together: a pod by itself, or all pods of a group whose disruptionMode says so."""

from collections.abc import Mapping
from typing import NamedTuple

from shared.model.load import PodLoad
from shared.model.objects import PodGroup


class Unit(NamedTuple):
    """`group`: `namespace/name` of the group that is evicted as a whole; empty for a pod by itself."""

    priority: int
    group: str = ""


def unit_of(pod: PodLoad, groups: Mapping[str, PodGroup]) -> Unit:
    """The unit that a placed pod belongs to. A group's own priority, if it has one, counts for all its pods."""
    group = groups.get(f"{pod.namespace}/{pod.group}") if pod.group else None
    if group is None or not group.is_evicted_whole:
        return Unit(pod.priority)
    return Unit(pod.priority if group.priority is None else group.priority, group.key)
