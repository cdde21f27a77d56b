"""What the API server makes of resource claims: defaults of requests, and which statuses it accepts."""

from collections.abc import Iterator
from typing import Any

from testing.simulator.errors import Cause, forbidden_value, invalid_value
from testing.simulator.resources import Object

MOST_CONSUMERS = 256
"""Pods for which a claim can be reserved."""
IMMUTABLE = "field is immutable"


def default_requests(claim: Object) -> None:
    for request in (claim["spec"].get("devices") or {}).get("requests") or ():
        for wanted in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if wanted is not None and wanted.setdefault("allocationMode", "ExactCount") == "ExactCount":
                wanted.setdefault("count", 1)


def status_causes(claim: Object, old: Object) -> Iterator[Cause]:
    status, before = claim.get("status") or {}, old.get("status") or {}
    consumers, allocation = status.get("reservedFor") or [], status.get("allocation")
    if len(consumers) > MOST_CONSUMERS:
        yield Cause("status.reservedFor", "FieldValueTooMany", f"Too many: must have at most {MOST_CONSUMERS} items")
    if consumers and allocation is None:
        yield forbidden_value("status.reservedFor", "may not be specified when `allocated` is not set")
    elif claim["metadata"].get("deletionTimestamp") and _uids(consumers) - _uids(before.get("reservedFor") or []):
        why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        yield forbidden_value("status.reservedFor", why)
    if None not in (allocation, before.get("allocation")) and allocation != before["allocation"]:
        yield invalid_value("status.allocation", allocation, IMMUTABLE)


def _uids(consumers: list[Any]) -> set[str]:
    return {each.get("uid", "") for each in consumers}
