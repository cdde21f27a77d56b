"""A queue on a clock of its own, with short methods for events and names of pods."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from flotilla.events import Action, Resource
from services.queue.core import QueueCore
from services.queue.events import (
    Effect,
    Event,
    PodBound,
    PodGone,
    PodPending,
    SendBatch,
    StoreRetry,
    Tick,
)
from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.pod_queues import BackoffPolicy
from services.queue.scheduling.queued_pod_info import PodState, RetryRecord
from services.queue.scheduling.scheduling_queue import Timeouts
from shared.framework.clusterevents import ClusterEvent
from shared.framework.loading import load_frameworks
from shared.framework.profile import Framework
from shared.messages.binding import Evicted, Notice
from shared.messages.queue import Batch, Forgotten, ForgottenPod, Outcome, Outcomes, Received, Take, Verdict
from shared.model.objects import Pod, PodCondition
from testing.builders import PodBuilder, pod
from testing.inprocess.batches import pods_in

FRAMEWORKS = load_frameworks(None)
FIT = ("NodeResourcesFit",)
NODE_ADDED = ClusterEvent(Resource.NODE, Action.ADD)
NODE_DELETED = ClusterEvent(Resource.NODE, Action.DELETE)
NODE_ALLOCATABLE = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)
NODE_LABELS = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NODE_TAINTS = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
POD_ADDED = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
POD_DELETED = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)


class Queue:
    """Every pod's uid is `default/<name>`; tests name pods by their names. The clock moves only by `at`."""

    def __init__(
        self,
        backoff: BackoffPolicy | None = None,
        *,
        frameworks: Mapping[str, Framework] = FRAMEWORKS,
        timeouts: Timeouts | None = None,
        records: Mapping[str, RetryRecord] | None = None,
    ) -> None:
        self.core = QueueCore(frameworks, backoff=backoff, timeouts=timeouts, records=records)
        self.now = 100.0
        self.epoch = 1
        self.snapshot_epoch = 1
        self.takes = 0
        self.reports = 0
        self.effects: list[Effect] = []
        self.stored: dict[str, RetryRecord] = {}
        """Retry records that would survive a restart."""

    def at(self, now: float) -> "Queue":
        """Moves the clock, with a Tick at every deadline on the way."""
        for _ in range(10_000):
            due = self.core.next_deadline()
            if due is None or due > now:
                break
            self.now = max(self.now, due)
            self.tell(Tick())
        self.now = now
        self.tell(Tick())
        return self

    def tell(self, event: Event) -> list[Effect]:
        self.effects = self.core.handle(event, self.now)
        self.core.validate()
        for effect in self.effects:
            if isinstance(effect, StoreRetry):
                if effect.record is None:
                    del self.stored[effect.uid]
                else:
                    self.stored[effect.uid] = effect.record
        return self.effects

    def add(self, *pods: PodBuilder | Pod | str) -> None:
        for one in pods:
            self.tell(PodPending(built(one), self.now))

    def bound(self, name: str) -> list[Effect]:
        return self.tell(PodBound(uid(name)))

    def gone(self, name: str) -> list[Effect]:
        return self.tell(PodGone(uid(name)))

    def change(self, event: ClusterEvent = NODE_ADDED, before: object = None, now: object = None) -> None:
        """Without an object, the event helps every pod that waits for it."""
        self.tell(ClusterChange(event, before, now))

    def ask(self, most: int = 100) -> Batch | None:
        """Sends the next Take; the batch, if it is answered at once."""
        self.takes += 1
        return self.ask_again(most)

    def ask_again(self, most: int = 100) -> Batch | None:
        return batch_in(self.tell(Take(self.epoch, self.takes, most)))

    def take(self, most: int = 100) -> list[str]:
        """The names of the pods that are handed out at once."""
        return names(self.ask(most))

    def report(self, verdict: Verdict, *pods: str, plugins: Sequence[str] = (), **more: Any) -> list[Effect]:
        """`more`: of Outcome."""
        self.reports += 1
        outcomes = [Outcome(uid(name), verdict, plugins=tuple(plugins), **more) for name in pods]
        return self.tell(Outcomes(self.epoch, self.reports, outcomes))

    def reject(self, *pods: str, plugins: Sequence[str] = FIT, message: str = "no room", **more: Any) -> list[Effect]:
        return self.report(Verdict.UNSCHEDULABLE, *pods, plugins=plugins, message=message, **more)

    def fail(self, *pods: str) -> list[Effect]:
        return self.report(Verdict.FAILED, *pods, message="a plugin broke down")

    def decide(self, *pods: str, node: str = "n") -> list[Effect]:
        return self.report(Verdict.DECIDED, *pods, node=node)

    def forget(self, *pods: str, reason: str = "the binding failed", plugin: str = "") -> list[Effect]:
        """`plugin`: rejected the bindings."""
        failed = [ForgottenPod(uid(name), reason, plugin, bool(plugin)) for name in pods]
        return self.tell(Forgotten(self.snapshot_epoch, failed))

    def evicted(self, name: str, number: int, failure: str = "") -> None:
        self.tell(Evicted(uid(name), number, failure))

    def state(self, name: str) -> PodState | None:
        return state_of(self.core, uid(name))

    def history(self, name: str) -> str:
        info = self.core.pod(uid(name))
        return "unknown pod" if info is None else info.history()


def state_of(core: QueueCore, uid: str) -> PodState | None:
    info = core.pod(uid)
    return None if info is None else info.state


def uid(name: str) -> str:
    return f"default/{name}"


def built(one: PodBuilder | Pod | str) -> Pod:
    if isinstance(one, str):
        return pod(one).build()
    return one if isinstance(one, Pod) else one.build()


def telling(one: PodBuilder | Pod | str, message: str = "no room", nominated: str = "", version: str = "") -> Pod:
    """A pod whose status shows the rejection."""
    made = built(one)
    says = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
    status = replace(made.status, conditions=[says], nominated_node_name=nominated)
    metadata = replace(made.metadata, resource_version=version)
    return replace(made, metadata=metadata, status=status)


def names(batch: Batch | None) -> list[str]:
    return [] if batch is None else [each.name for each in pods_in(batch)]


def batch_in(effects: Sequence[Effect]) -> Batch | None:
    answers = [effect.batch for effect in effects if isinstance(effect, SendBatch)]
    assert len(answers) <= 1
    return answers[0] if answers else None


def notices(effects: Sequence[Effect]) -> list[Notice]:
    return [effect for effect in effects if isinstance(effect, Notice)]


def acknowledged(effects: Sequence[Effect]) -> list[Received]:
    return [effect for effect in effects if isinstance(effect, Received)]


def refusals(queue: Queue) -> list[str]:
    return [str(cause) for cause in queue.core.refused]
