"""Types whose objects are kept in one form and shown in another.

Events have two forms: v1, in which they are kept, and events.k8s.io/v1. The versions of a custom resource differ
only in their names.
"""

from testing.simulator.resources import EVENTS, NEW_EVENTS, Object, Resource

_KEPT_NAMES = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NEW_NAMES = {kept: new for new, kept in _KEPT_NAMES.items()}


def is_converted(resource: Resource) -> bool:
    return resource.kept_as is not None


def kept_type(resource: Resource) -> Resource:
    """The type that the objects are kept as."""
    return EVENTS if _is_new_event(resource) else resource


def kept_form(resource: Resource, obj: Object) -> Object:
    """What a client wrote, as it is kept."""
    if not _is_new_event(resource):
        return obj
    kept = {_KEPT_NAMES.get(key, key): value for key, value in obj.items()}
    if obj.get("apiVersion") in (None, "", resource.api_version):
        kept["apiVersion"] = EVENTS.api_version
    kept.setdefault("involvedObject", {})
    return kept


def shown_form(resource: Resource, obj: Object) -> Object:
    """What is kept, as the client asked for it."""
    if _is_new_event(resource):
        obj = {_NEW_NAMES.get(key, key): value for key, value in obj.items()}
    obj["apiVersion"] = resource.api_version
    return obj


def _is_new_event(resource: Resource) -> bool:
    return resource is NEW_EVENTS
