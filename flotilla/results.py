"""What plugins return: statuses and other small records. Plain data, which also travels in messages."""

from collections.abc import Generator
from enum import StrEnum
from typing import Any

import msgspec


class Code(StrEnum):
    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    WAIT = "Wait"
    SKIP = "Skip"
    PENDING = "Pending"


REJECTIONS = frozenset({Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING})


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """A code, the reasons for it, and the plugin that returned it (filled in by the framework)."""

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def ok(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def skipped(self) -> bool:
        return self.code is Code.SKIP

    @property
    def rejected(self) -> bool:
        return self.code in REJECTIONS

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> "Status":
        return msgspec.structs.replace(self, plugin=plugin)


SUCCESS = Status()
SKIP = Status(Code.SKIP)


def unschedulable(*reasons: str) -> Status:
    """The node does not fit now; it might if pods were evicted from it."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """The node does not fit, and evicting pods would not change that."""
    return Status(Code.UNRESOLVABLE, reasons)


def error(*reasons: str) -> Status:
    """The plugin failed, and with it the pod's attempt."""
    return Status(Code.ERROR, reasons)


MAX_NODE_SCORE = 100

Range = tuple[int, int]
"""The lowest and the highest raw score of the feasible nodes."""


class PreFilterResult(msgspec.Struct, frozen=True):
    """`nodes`: the names of the only nodes to consider, None for all."""

    status: Status = SUCCESS
    nodes: frozenset[str] | None = None


class PostFilterResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """`deallocate`: claims of the pod, one of which is to give back its devices; `delete`: claims to be deleted.

    By `namespace/name`. Only the in-tree plugin DynamicResources uses these.
    """

    status: Status
    nominated_node: str = ""
    deallocate: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()


class Permission(msgspec.Struct, frozen=True):
    """With Code.WAIT the pod waits for at most `timeout` seconds."""

    status: Status = SUCCESS
    timeout: float = 0.0


class ApiCall(msgspec.Struct, frozen=True):
    """A call to the API server that a plugin requests; the binder makes it."""

    method: str
    path: str
    body: dict[str, Any]


class ApiAnswer(msgspec.Struct, frozen=True):
    """The result of an ApiCall.

    `status`: the HTTP status, 0 if no response came. `message`: why the call failed. `elapsed`: seconds since the pod's
    PreBind began.
    """

    status: int = 0
    body: bytes = b""
    message: str = ""
    elapsed: float = 0.0

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class Pause(msgspec.Struct, frozen=True):
    """Continue after about `seconds`, at most 7.5 minutes. `patience`: seconds for the pod's PreBind in all."""

    seconds: float
    patience: float


PreBindSteps = Generator[ApiCall | Pause, ApiAnswer, Status]
"""Calls and pauses, one after the other. Each call is answered; a pause is answered with the time elapsed."""


class Topology(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the decisions of a round can change a pod's chances, beyond filling the chosen node.

    `keys`: the node labels whose values are the domains that matter to the pod. `strata`: those of them by which
    workers propose nodes of each domain separately, because one domain may close and another open.
    """

    keys: tuple[str, ...] = ()
    strata: tuple[str, ...] = ()


class NodeDomains(msgspec.Struct, frozen=True):
    """A node and its values of the labels in question; labels that it lacks are left out."""

    node: str
    domains: dict[str, str]
