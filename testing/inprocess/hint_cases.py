"""Replays kube-scheduler v1.36's queueing hints: the events that plugins register, and the results of their hints.

A case of `hints` is a rejected pod, an event, and the plugin's hint. The one case of `registered` lists all plugins of
the default profile with their registrations, and all events.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from flotilla.events import Registration, Resource
from shared.cluster.objects import ClusterObjects
from shared.errors import FlotillaError
from shared.framework.clusterevents import IMPLIED, LABELS, NAMES, ClusterEvent, names_of
from shared.framework.loading import load_frameworks
from shared.framework.profile import Framework
from shared.model.objects import DEFAULT_SCHEDULER, ClusterObject, Pod, pod_from
from testing.inprocess.cases import ACTIONS, Difference, cluster_objects, decoded_object, kind_in

Case = Mapping[str, Any]

INTERNAL = (Resource.ASSIGNED_POD, Resource.UNSCHEDULABLE_POD)
"""Resources that no plugin registers by themselves: Pod covers both."""


def is_hint_case(case: object) -> bool:
    match case:
        case {"name": str(), "plugin": str(), "event": {"resource": str(), "action": str()}, "hint": str(), **others}:
            match others:
                case {"pod": dict(), "objects": dict(), "error": bool(), "old": _, "new": _}:
                    return True
    return False


def is_registered_case(case: object) -> bool:
    lists = ("plugins", "watched", "resources", "internal_resources", "actions", "cluster_event_labels")
    return isinstance(case, dict) and "name" in case and all(isinstance(case.get(key), list) for key in lists)


def hint_differences(case: Case) -> Iterator[Difference]:
    event = ClusterEvent(Resource(case["event"]["resource"]), ACTIONS[case["event"]["action"]])
    pod, kind = pod_from(case["pod"]), kind_in(event)
    old, new = decoded_object(kind, case["old"]), decoded_object(kind, case["new"])
    objects = cluster_objects(case["objects"])
    if isinstance(new, ClusterObject):
        objects.upsert(new)
    got = _asked(case["plugin"], event, pod, old, new, objects)
    expected = (case["hint"], case["error"])
    if got != expected:
        yield Difference(case["name"], pod.key, f"{case['plugin']} on {event.resource}/{event.action}", expected, got)


def _asked(plugin: str, event: ClusterEvent, pod: Pod, old: Any, new: Any, objects: ClusterObjects) -> tuple[str, bool]:
    """The hint, and whether it failed; a failed hint counts as Queue."""
    asked = [each for each in _framework().registrations.get(plugin, ()) if event.matches(each)]
    if not asked:
        return "not registered", False
    try:
        queue = any(each.hint is None or each.hint(pod, old, new, objects) for each in asked)
    except FlotillaError:
        return "Queue", True
    return "Queue" if queue else "QueueSkip", False


@lru_cache
def _framework() -> Framework:
    return load_frameworks(None)[DEFAULT_SCHEDULER]


def registered_differences(case: Case) -> Iterator[Difference]:
    got = _registered()
    for what, wanted in {**case, "resources": sorted(case["resources"])}.items():
        if what != "name" and wanted != got.get(what):
            yield Difference(case["name"], "-", what, wanted, got.get(what))


def _registered() -> dict[str, Any]:
    framework = _framework()
    gates = {plugin.name for plugin in framework.pre_enqueue}
    return {
        "plugins": [
            {
                "plugin": plugin,
                "pre_enqueue": plugin in gates,
                "registered": _shown(each for each in made if each is not IMPLIED),
                "implicit": _shown(each for each in made if each is IMPLIED),
            }
            for plugin, made in framework.registrations.items()
        ],
        "watched": [
            {"resource": str(resource), "action": names_of(actions)}
            for resource, actions in sorted(framework.watched.items())
        ],
        "resources": sorted(str(resource) for resource in Resource if resource not in INTERNAL),
        "internal_resources": [str(resource) for resource in INTERNAL],
        "actions": [{"name": name, "value": int(action)} for action, name in NAMES.items()],
        "cluster_event_labels": list(LABELS),
    }


def _shown(registrations: Iterable[Registration]) -> list[dict[str, Any]]:
    shown = [
        {"resource": str(each.resource), "action": names_of(each.actions), "hint": each.hint is not None}
        for each in registrations
    ]
    return sorted(shown, key=lambda each: (each["resource"], each["action"]))
