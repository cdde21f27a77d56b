"""A permit: the pod has its node, and is bound once a user approves it."""

from typing import Any

from flotilla.plugin import BindingState, Code, Permission, PermitPlugin, Status

LABEL = "example.com/needs-approval"


class Approval(PermitPlugin):
    """Pods with the label wait for a PermitAnswer, for at most `seconds`."""

    name = "Approval"

    def __init__(self, args: dict[str, Any]) -> None:
        self._seconds = float(args.get("seconds", 60.0))

    def permit(self, state: BindingState, node: str) -> Permission:
        if state.pod.metadata.labels.get(LABEL) != "true":
            return Permission()
        return Permission(Status(Code.WAIT), self._seconds)
