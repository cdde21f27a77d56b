"""A permit: the pod has its place, and is bound once somebody says so."""

from typing import Any

from flotilla.results import Code, Permission, Status
from shared.framework.cyclestate import CycleState
from shared.framework.plugin import PermitPlugin

LABEL = "example.com/needs-approval"


class Approval(PermitPlugin):
    """Pods that are labelled so wait for a PermitAnswer, for at most `seconds`."""

    name = "Approval"

    def __init__(self, args: dict[str, Any]) -> None:
        self._seconds = float(args.get("seconds", 60.0))

    def permit(self, state: CycleState, node: str) -> Permission:
        if state.pod.metadata.labels.get(LABEL) != "true":
            return Permission()
        return Permission(Status(Code.WAIT), self._seconds)
