"""What a pod counts as when it may have to go: its priority, what is evicted together with it, and its family.

The priority of a group, or of the root of its tree, counts for all its pods, in place of their own.
"""

from collections.abc import Mapping
from typing import NamedTuple

from shared.model.load import PodLoad
from shared.model.objects import GroupApi, PodGroup
from shared.model.workloads import GROUP_LABEL

Groups = Mapping[str, PodGroup]
"""Of scheduling.k8s.io, by `namespace/name`."""


OF_TREES = "group "
"""What `group_of` begins with for groups that may be in a tree."""


class Unit(NamedTuple):
    """`group`: names the group that is evicted as a whole (PodGroup.evicted_with); empty for a pod by itself."""

    priority: int
    group: str = ""


def group_key(load: PodLoad) -> str:
    """`namespace/name` of the pod's PodGroup of scheduling.k8s.io; empty if it has none."""
    return f"{load.namespace}/{load.group}" if load.group else ""


def priority_of(load: PodLoad, groups: Groups) -> int:
    """The priority that counts for a pod, placed or nominated."""
    group = groups.get(group_key(load)) if load.group else None
    of_group = None if group is None else group.priority_of_tree
    return load.priority if of_group is None else of_group


def unit_of(load: PodLoad, groups: Groups) -> Unit:
    """The unit that a placed pod belongs to."""
    group = groups.get(group_key(load)) if load.group else None
    return Unit(priority_of(load, groups), "" if group is None else group.evicted_with)


def group_of(load: PodLoad) -> str:
    """Equal for pods of one group, of whichever API; empty for a pod without a group."""
    if load.group:
        return f"{OF_TREES}{group_key(load)}"
    name = load.labels.get(GROUP_LABEL, "")
    return f"{GroupApi.COSCHEDULING} {load.namespace}/{name}" if name else ""


def family(group: str, groups: Groups) -> str:
    """Of the group that `group_of` names so: equal for all groups of one tree."""
    known = groups.get(group.removeprefix(OF_TREES)) if group.startswith(OF_TREES) else None
    return group if known is None or known.tree is None else f"tree {known.tree.root}"


def family_of(load: PodLoad, groups: Groups) -> str:
    """Equal for pods of one group, or of one tree of groups; empty for a pod without a group."""
    return family(group_of(load), groups)
