"""What is evicted together: a pod by itself, or all pods of a group or composite group whose disruptionMode says so."""

from collections.abc import Mapping
from typing import NamedTuple

from shared.model.load import PodLoad
from shared.model.objects import PodGroup


class Unit(NamedTuple):
    """`group`: names the group that is evicted as a whole (PodGroup.evicted_with); empty for a pod by itself."""

    priority: int
    group: str = ""


def unit_of(pod: PodLoad, groups: Mapping[str, PodGroup]) -> Unit:
    """The unit that a placed pod belongs to. A group's own priority, if it has one, counts for all its pods."""
    group = groups.get(f"{pod.namespace}/{pod.group}") if pod.group else None
    if group is None or not group.evicted_with:
        return Unit(pod.priority)
    priority = group.victims_priority
    return Unit(pod.priority if priority is None else priority, group.evicted_with)


def tree_of(namespace: str, group: str, groups: Mapping[str, PodGroup]) -> str:
    """The key of the highest group above this one, or its own: pods of one tree do not make way for each other."""
    key = f"{namespace}/{group}"
    found = groups.get(key)
    return key if found is None or found.tree is None else f"compositepodgroup/{found.tree.root}"
