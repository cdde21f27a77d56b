"""Asking a plugin whether an event helps a pod that it has rejected."""

from flotilla.events import Action, Resource
from flotilla.plugin import Plugin
from shared.cluster.objects import ClusterObjects
from shared.framework.clusterevents import ClusterEvent
from shared.model.kinds import ObjectKind
from shared.model.objects import ClusterObject, Node, Pod, object_from
from testing.builders import NodeBuilder, PodBuilder

Thing = PodBuilder | NodeBuilder | object


def helps(
    plugin: Plugin,
    event: tuple[Resource, Action],
    pod: PodBuilder,
    before: Thing,
    now: Thing,
    objects: ClusterObjects | None = None,
) -> bool:
    """Fails if the plugin does not register the event."""
    happened = ClusterEvent(*event)
    (asked,) = [each for each in plugin.events() if happened.matches(each)]
    hint = asked.hint
    return hint is None or hint(
        pod.build(), _built(before), _built(now), ClusterObjects() if objects is None else objects
    )


def listens(plugin: Plugin, resource: Resource, action: Action) -> bool:
    return any(ClusterEvent(resource, action).matches(each) for each in plugin.events())


def obj(kind: ObjectKind, name: str, **parts: object) -> ClusterObject:
    """In plain data; metadata may be among the parts."""
    metadata = parts.pop("metadata", {})
    assert isinstance(metadata, dict)
    return object_from(kind, {"metadata": {"name": name, **metadata}, **parts})


def _built(thing: Thing) -> Node | Pod | object:
    return thing.build() if isinstance(thing, PodBuilder | NodeBuilder) else thing
