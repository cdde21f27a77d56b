"""Whether the devices of an allocated claim are ready: their binding conditions hold, and none of them has failed."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from shared.errors import ClusterError


class WaitResult(StrEnum):
    """How a wait for binding conditions ended, as in kube-scheduler's metrics."""

    SUCCESS = "success"
    FAILURE = "failure"
    TIMEOUT = "timeout"


class NeverReady(ClusterError):
    """The devices will not become ready: the pod must be scheduled again."""

    result: ClassVar[WaitResult] = WaitResult.FAILURE


class NotReadyInTime(NeverReady):
    """The devices have not become ready within the time they have."""

    result = WaitResult.TIMEOUT


def is_ready(claim: Mapping[str, Any]) -> bool:
    """Whether all binding conditions of the claim's devices hold; NeverReady if one of them has failed."""
    status = claim["status"]
    known = {_device(each): each.get("conditions") or () for each in status.get("devices") or ()}
    for result in results_of(claim):
        wanted = result.get("bindingConditions") or ()
        if not wanted:
            continue
        found = known.get(_device(result))
        if found is None:
            return False
        true = {each["type"]: each for each in found if each.get("status") == "True"}
        failed = next((each for each in result.get("bindingFailureConditions") or () if each in true), None)
        if failed is not None:
            name, condition = claim["metadata"]["name"], true[failed]
            message = msgspec.json.encode(condition.get("message", "")).decode()
            raise NeverReady(
                f"device binding failed: claim={name}, reason={condition.get('reason', '')}, message={message}"
            )
        if not all(each in true for each in wanted):
            return False
    return True


def results_of(claim: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The devices of an allocated claim."""
    return claim["status"]["allocation"].get("devices", {}).get("results") or ()


def _device(of: Mapping[str, Any]) -> tuple[str, str, str]:
    return of["driver"], of["pool"], of["device"]
