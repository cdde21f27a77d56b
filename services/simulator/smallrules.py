"""Which Events and Leases are refused: what a scheduler writes is checked as a real server checks it."""

import re
from typing import Any

from services.simulator.errors import Cause, invalid_value, required
from services.simulator.metadata import cannot_unmarshal
from services.simulator.resources import Object

LONGEST_TEXT = 128
LONGEST_NOTE = 1024
TYPES = ("Normal", "Warning")
DEPRECATED = ("deprecatedCount", "deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedSource")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_WITHOUT_NAMESPACE = "default"


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
        elif len(text) > LONGEST_TEXT:
            causes.append(invalid_value(field, "", f"can have at most {LONGEST_TEXT} characters"))
    if len((event.get("note") or "").encode()) > LONGEST_NOTE:
        causes.append(invalid_value("message", "", f"can have at most {LONGEST_NOTE} characters"))
    if event.get("type") not in TYPES:
        causes.append(invalid_value("type", "", f"has invalid value: {event.get('type')}"))
    causes += [invalid_value(field, "", "needs to be unset") for field in DEPRECATED if event.get(field)]
    about = (event.get("regarding") or {}).get("namespace") or _WITHOUT_NAMESPACE
    if about != namespace:
        causes.append(invalid_value("involvedObject.namespace", about, "does not match event.namespace"))
    return causes


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


def check_micro_time(field: str, value: Any) -> None:
    """These times have exactly six digits after the point; anything else does not decode."""
    if value is not None and not (isinstance(value, str) and _MICRO_TIME.fullmatch(value)):
        raise cannot_unmarshal(field, value, "MicroTime, as in 2006-01-02T15:04:05.000000Z")
