"""Nominated nodes, and preemptions whose victims have not been evicted yet."""

from collections import OrderedDict
from collections.abc import Container
from enum import Enum, auto

from msgspec.structs import replace

from shared.bounded import BoundedDict
from shared.errors import InvariantBroken
from shared.messages.binding import Evicted
from shared.messages.limits import PREEMPTION_TIMEOUT
from shared.model.objects import Pod

PREEMPTION = "DefaultPreemption"
"""The plugin that gates a pod while its victims are being evicted."""
MAX_EARLY_REPORTS = 1 << 10
"""Remembered reports on preemptions that the queue does not know of yet."""


class Nominator:
    """The node each pod is nominated to, from the latest of the cycle's outcome and the pod's status."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        """By uid. Empty: cycle cleared the nomination, even if the status shows one."""

    def nominate(self, uid: str, node: str) -> None:
        self._nodes[uid] = node

    def take_from_status(self, pod: Pod) -> None:
        if pod.status.nominated_node_name:
            self._nodes[pod.uid] = pod.status.nominated_node_name
        else:
            self._nodes.pop(pod.uid, None)

    def update(self, before: Pod, now: Pod) -> None:
        """An update of a pod that shows no nomination, before or after, leaves what cycle said."""
        shows_none = not before.status.nominated_node_name and not now.status.nominated_node_name
        if not (shows_none and now.uid in self._nodes):
            self.take_from_status(now)

    def delete(self, uid: str) -> None:
        self._nodes.pop(uid, None)

    def applied(self, pod: Pod) -> Pod:
        """The pod with its nomination in its status."""
        node = self._nodes.get(pod.uid, "")
        if node == pod.status.nominated_node_name:
            return pod
        return replace(pod, status=replace(pod.status, nominated_node_name=node))

    def unshown(self, pod: Pod) -> str | None:
        """The nomination that the pod's status does not show; None if it shows it."""
        node = self._nodes.get(pod.uid)
        return None if node == pod.status.nominated_node_name else node

    def by_node(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for uid, node in self._nodes.items():
            if node:
                found.setdefault(node, []).append(uid)
        return found

    def validate(self, known: Container[str]) -> None:
        if unknown := [uid for uid in self._nodes if uid not in known]:
            raise InvariantBroken(f"nominations of unknown pods: {unknown[:9]}")


class Eviction(Enum):
    PENDING = auto()
    DONE = auto()
    FAILED = auto()


class PendingPreemptions:
    """Preemptions whose Evicted the queue waits for. A report may come before the outcome that announces it."""

    def __init__(self) -> None:
        self._pending: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """By uid: the preemption's number, and its deadline."""
        self._early: BoundedDict[str, Evicted] = BoundedDict(MAX_EARLY_REPORTS)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pending

    def start(self, uid: str, number: int, now: float) -> Eviction:
        early = self._early.pop(uid, None)
        if early is not None and early.attempt >= number:
            return _result(early)
        self._pending.pop(uid, None)
        self._pending[uid] = (number, now + PREEMPTION_TIMEOUT)
        return Eviction.PENDING

    def report(self, evicted: Evicted) -> Eviction:
        """PENDING if the report is early or of an older preemption."""
        pending = self._pending.get(evicted.uid)
        if pending is None:
            self._early[evicted.uid] = evicted
            return Eviction.PENDING
        if evicted.attempt < pending[0]:
            return Eviction.PENDING
        del self._pending[evicted.uid]
        return _result(evicted)

    def delete(self, uid: str) -> None:
        self._pending.pop(uid, None)

    def pop_overdue(self, now: float) -> str | None:
        deadline = self.next_deadline()
        return None if deadline is None or deadline > now else self._pending.popitem(last=False)[0]

    def next_deadline(self) -> float | None:
        return next((deadline for _, deadline in self._pending.values()), None)

    def validate(self, known: Container[str]) -> None:
        if unknown := [uid for uid in self._pending if uid not in known]:
            raise InvariantBroken(f"preemptions of unknown pods: {unknown[:9]}")


def _result(evicted: Evicted) -> Eviction:
    return Eviction.FAILED if evicted.failure else Eviction.DONE
