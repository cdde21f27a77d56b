"""Cluster events as the queue sees them: which registrations an event matches, and the names of events.

What plugins register is in flotilla/events.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from flotilla.events import Action, Registration, Resource


class ClusterEvent(NamedTuple):
    resource: Resource
    action: Action

    def matches(self, registration: Registration) -> bool:
        resource = registration.resource
        fits = (
            resource is self.resource
            or resource is Resource.ANY
            or self.resource is Resource.ANY
            or (resource is Resource.POD and self.resource in _PODS)
        )
        return fits and bool(registration.actions & self.action) and self.action <= registration.actions


_PODS = frozenset({Resource.ASSIGNED_POD, Resource.UNSCHEDULABLE_POD})
EVERYTHING = ClusterEvent(Resource.ANY, Action.ALL)
"""Matches every registration."""

IMPLIED = Registration(Resource.NODE, Action.UPDATE_NODE_TAINT)
"""A registration for new nodes also gets taint updates: a new node may lose a taint that repelled every pod."""


def completed(registrations: Sequence[Registration]) -> tuple[Registration, ...]:
    """Add the registrations that these imply."""
    of_nodes = Action(0)
    for each in registrations:
        if each.resource is Resource.NODE:
            of_nodes |= each.actions
    implied = Action.ADD in of_nodes and Action.UPDATE_NODE_TAINT not in of_nodes
    return (*registrations, IMPLIED) if implied else tuple(registrations)


def union(registrations: Iterable[Registration]) -> dict[Resource, Action]:
    """All registered actions by resource. An event outside of them matches no registration."""
    actions: dict[Resource, Action] = {}
    for each in registrations:
        actions[each.resource] = actions.get(each.resource, Action(0)) | each.actions
    return actions


# Names, as kube-scheduler writes them

NAMES: Mapping[Action, str] = {
    action: "".join(map(str.capitalize, str(action.name).split("_"))) for action in (*Action, Action.UPDATE, Action.ALL)
}
"""`UpdateNodeTaint` for UPDATE_NODE_TAINT, of every single action and of the two that stand for many."""


def names_of(actions: Action) -> list[str]:
    """In alphabetical order; all updates together are one name."""
    updates = [Action.UPDATE] if Action.UPDATE in actions else []
    covered = Action.UPDATE if updates else Action(0)
    return sorted(NAMES[action] for action in (*(each for each in actions if each not in covered), *updates))


def _labels() -> tuple[str, ...]:
    parts = [
        f"{resource}{NAMES[action]}"
        for resource in Resource
        if resource is not Resource.ANY
        for action in (Action.ADD, Action.DELETE, Action.UPDATE)
    ]
    of_pods = [f"{Resource.POD}{name}" for action, name in NAMES.items() if name.startswith("UpdatePod")]
    of_nodes = [
        f"{Resource.NODE}{name}"
        for action, name in NAMES.items()
        if name.startswith("UpdateNode") and action is not Action.UPDATE_NODE_DECLARED_FEATURE
    ]
    return ("UnschedulableTimeout", "ForceActivate", *parts, *of_pods, *of_nodes)


LABELS = _labels()
"""By which metrics tell events apart. That of declared features has none in v1.36."""
