"""Which Events and Leases are refused: what a scheduler writes is checked as a real server checks it."""

import re
from typing import Any

from testing.simulator.errors import Cause, forbidden_value, invalid_value, required
from testing.simulator.metadata import cannot_unmarshal, qualified_name_causes
from testing.simulator.resources import Object

LONGEST_TEXT = 128
LONGEST_NOTE = 1024
TYPES = ("Normal", "Warning")
DEPRECATED = ("deprecatedCount", "deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedSource")
CHANGING_OF_CLAIMS = frozenset({"resources", "volumeAttributesClassName"})
FIXED_CLAIM = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_OF_WHAT_HAS_NO_NAMESPACE = frozenset({"default", "kube-system"})
FIXED_OF_EVENTS = (
    "regarding",
    "related",
    "reason",
    "note",
    "type",
    "action",
    "eventTime",
    "reportingController",
    "reportingInstance",
    *DEPRECATED,
)
MOST_TEMPLATES = 8
IMMUTABLE = "field is immutable"


def new_event_causes(event: Object, namespace: str) -> list[Cause]:
    """What is wrong with an events.k8s.io/v1 event. The fields of the older form must not be set."""
    causes: list[Cause] = []
    check_micro_time("eventTime", event.get("eventTime"))
    if not event.get("eventTime"):
        causes.append(required("eventTime"))
    for field in ("reportingController", "reportingInstance", "action", "reason"):
        text = event.get(field)
        if not text:
            causes.append(required(field))
        elif len(text) > LONGEST_TEXT and field != "reportingController":
            causes.append(invalid_value(field, "", f"can have at most {LONGEST_TEXT} characters"))
    if event.get("reportingController"):
        causes += qualified_name_causes("reportingController", event["reportingController"])
    if len((event.get("note") or "").encode()) > LONGEST_NOTE:
        causes.append(invalid_value("message", "", f"can have at most {LONGEST_NOTE} characters"))
    if event.get("type") not in TYPES:
        causes.append(invalid_value("type", "", f"has invalid value: {event.get('type')}"))
    causes += [invalid_value(field, "", "needs to be unset") for field in DEPRECATED if event.get(field)]
    if not (event.get("regarding") or {}).get("namespace") and namespace not in _OF_WHAT_HAS_NO_NAMESPACE:
        causes.append(invalid_value("involvedObject.namespace", "", "does not match event.namespace"))
    return causes + _series_causes(event.get("series"))


def changed_event_causes(event: Object, old: Object) -> list[Cause]:
    """Of an events.k8s.io/v1 event nothing but the series changes."""
    causes = _series_causes(event.get("series")) if event.get("series") != old.get("series") else []
    return causes + [
        invalid_value(field, event.get(field), "field is immutable")
        for field in FIXED_OF_EVENTS
        if (event.get(field) or None) != (old.get(field) or None)
    ]


def _series_causes(series: Any) -> list[Cause]:
    if series is None:
        return []
    if not isinstance(series, dict) or not isinstance(series.get("count", 0), int):
        raise cannot_unmarshal("series", series, "EventSeries")
    observed = series.get("lastObservedTime")
    check_micro_time("series.lastObservedTime", observed)
    causes = [] if series.get("count", 0) >= 2 else [invalid_value("series.count", "", "should be at least 2")]
    return causes if observed else [*causes, required("series.lastObservedTime")]


def lease_causes(lease: Object) -> list[Cause]:
    spec = lease.get("spec") or {}
    for field in ("acquireTime", "renewTime"):
        check_micro_time(f"spec.{field}", spec.get(field))
    causes: list[Cause] = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return causes


def claim_causes(claim: Object, old: Object) -> list[Cause]:
    """What a claim asks for is fixed but for its size; its volume is written into it once."""
    was, wanted = _fixed_of_claim(old), _fixed_of_claim(claim)
    if not was.get("volumeName"):
        wanted.pop("volumeName", None)
        was.pop("volumeName", None)
    return [] if was == wanted else [Cause("spec", "FieldValueForbidden", f"Forbidden: {FIXED_CLAIM}")]


def _fixed_of_claim(claim: Object) -> Object:
    return {key: value for key, value in (claim.get("spec") or {}).items() if key not in CHANGING_OF_CLAIMS}


def check_micro_time(field: str, value: Any) -> None:
    """These times have exactly six digits after the point; anything else does not decode."""
    if value is not None and not (isinstance(value, str) and _MICRO_TIME.fullmatch(value)):
        raise cannot_unmarshal(field, value, "MicroTime, as in 2006-01-02T15:04:05.000000Z")


def pod_group_causes(group: Object) -> list[Cause]:
    """Of scheduling.k8s.io."""
    return policy_causes("spec.schedulingPolicy", _part(group, "spec").get("schedulingPolicy"))


def workload_causes(workload: Object) -> list[Cause]:
    templates = _part(workload, "spec").get("podGroupTemplates")
    if not templates:
        return [required("spec.podGroupTemplates")]
    if not isinstance(templates, list) or not all(isinstance(template, dict) for template in templates):
        raise cannot_unmarshal("spec.podGroupTemplates", templates, "slice of PodGroupTemplate")
    causes: list[Cause] = []
    if len(templates) > MOST_TEMPLATES:
        message = f"must have at most {MOST_TEMPLATES} items"
        causes.append(invalid_value("spec.podGroupTemplates", len(templates), message))
    for index, template in enumerate(templates):
        where = f"spec.podGroupTemplates[{index}]"
        if not template.get("name"):
            causes.append(required(f"{where}.name"))
        causes += policy_causes(f"{where}.schedulingPolicy", template.get("schedulingPolicy"))
    return causes


def policy_causes(where: str, policy: Any) -> list[Cause]:
    """Exactly one policy, and no gang of nobody."""
    if policy is None:
        policy = {}
    if not isinstance(policy, dict):
        raise cannot_unmarshal(where, policy, "PodGroupSchedulingPolicy")
    named = [name for name in ("basic", "gang") if policy.get(name) is not None]
    if len(named) != 1:
        return [invalid_value(where, ", ".join(named), "must specify exactly one of: `basic`, `gang`")]
    gang = policy.get("gang")
    if gang is None:
        return []
    if not isinstance(gang, dict):
        raise cannot_unmarshal(f"{where}.gang", gang, "GangSchedulingPolicy")
    return _count_causes(f"{where}.gang.minCount", gang.get("minCount") or 0)


def coscheduling_group_causes(group: Object) -> list[Cause]:
    """Of scheduling.x-k8s.io: as its definition has it."""
    spec = _part(group, "spec")
    causes = [] if spec.get("minMember") is None else _count_causes("spec.minMember", spec["minMember"])
    timeout = spec.get("scheduleTimeoutSeconds")
    if timeout is not None and not _is_integer(timeout):
        causes.append(invalid_value("spec.scheduleTimeoutSeconds", timeout, "must be of type integer"))
    return causes


def fixed_spec_causes(obj: Object, old: Object) -> list[Cause]:
    """Nothing that groups and workloads of scheduling.k8s.io are to be may change."""
    return [] if obj.get("spec") == old.get("spec") else [forbidden_value("spec", IMMUTABLE)]


def _count_causes(where: str, count: Any) -> list[Cause]:
    if not _is_integer(count):
        raise cannot_unmarshal(where, count, "int32")
    return [] if count >= 1 else [invalid_value(where, count, "must be greater than or equal to 1")]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _part(obj: Object, name: str) -> Object:
    part = obj.setdefault(name, {})
    if not isinstance(part, dict):
        raise cannot_unmarshal(name, part, name.capitalize())
    return part
