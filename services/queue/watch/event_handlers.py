"""What the watch says: of pods, and of whatever else may help those that were rejected."""

from collections.abc import Mapping

from services.queue.deferred import Deferred
from services.queue.events import (
    ClusterChange,
    Effect,
    Ended,
    Notify,
    Observed,
    PodBound,
    PodGone,
    PodPending,
    PodStale,
    PodUnreadable,
    Position,
    Problem,
    Seen,
    Stale,
    Withdrawn,
)
from services.queue.happenings import Happening, anything, room
from services.queue.places import Place
from services.queue.scheduling.queued_pod_info import Entry
from services.queue.scheduling.queueing_hints import Hints
from services.queue.scheduling.scheduling_queue import Pods
from services.queue.status.pod_conditions import unreadable_notice
from services.queue.tally import Result
from shared.errors import FlotillaError, InvariantBroken, UserError
from shared.framework.profile import Framework

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


class Watched:
    def __init__(self, frameworks: Mapping[str, Framework], pods: Pods, hints: Hints) -> None:
        self._frameworks = frameworks
        self._pods = pods
        self._hints = hints
        self._deferred = Deferred()
        self._at: Position | None = None
        self._unreadable: dict[str, str] = {}

    def observe(self, observed: Observed, now: float) -> list[Effect]:
        self._at = observed.at
        try:
            return [effect for one in observed.seen for effect in self._one_of(one, now)]
        finally:
            self._at = None

    def see(self, seen: Seen, now: float) -> list[Effect]:
        match seen:
            case PodPending():
                return self._on_pending(seen, now)
            case PodBound(uid=uid):
                return self._on_left(uid, now, bound=True)
            case PodGone(uid=uid):
                return self._on_left(uid, now, bound=False)
            case ClusterChange(event=event, before=before, now=after):
                self._pods.held.gangs.observe(before, after)
                if self._hints.awaits(event):
                    self._wake(Happening(event, before, after), now)
            case PodStale(key=key):
                return [Stale(key)]
            case PodUnreadable():
                return self._on_unreadable(seen, now)
        return []

    def listed(self, at: Position) -> None:
        """Wake every pod once the snapshot has absorbed the listing: until then they are judged by an older state."""
        self._deferred.add(anything(), at)

    def absorb(self, position: Position, now: float) -> None:
        """The snapshot has made it part of its state, so pods that it wakes are judged by it."""
        for happening in self._deferred.absorb(position):
            self._pods.wake(happening, now)

    # Inside

    def _one_of(self, seen: Seen, now: float) -> list[Effect]:
        """What a plugin does to one pod is not to cost the others that came with it."""
        try:
            return self.see(seen, now)
        except InvariantBroken:
            raise
        except Exception as cause:
            return [Problem(_broken(seen, cause))]

    def _on_pending(self, event: PodPending, now: float) -> list[Effect]:
        pod = event.pod
        framework = self._frameworks.get(pod.spec.scheduler_name)
        if framework is None:
            return []
        if pod.metadata.deletion_timestamp is not None or pod.status.phase in FINISHED_PHASES:
            return self._on_left(pod.uid, now, bound=False)
        self._unreadable.pop(pod.uid, None)
        entry = self._pods.get(pod.uid)
        if entry is None:
            self._pods.add(pod, framework, event.seen_at, event.size, now)
        elif not _same_version(entry, event):
            lost = self._pods.update(entry, pod, event.size, now)
            if lost is not None:
                self._wake(lost, now)
        return []

    def _on_left(self, uid: str, now: float, *, bound: bool) -> list[Effect]:
        self._unreadable.pop(uid, None)
        entry = self._pods.get(uid)
        if entry is None:
            self._pods.memory.lapse(uid)
            return []
        was, nominated = entry.place, self._pods.nominations.shown_or_said(entry.pod)
        self._pods.drop(entry, now, "bound" if bound else "gone")
        ended = _ended(entry, now, bound)
        if bound:
            if entry.attempts:
                tally = self._pods.held.tally
                tally.attempts[Result.SCHEDULED, entry.framework.name] += 1
                tally.scheduled_after_flush += entry.flushed
            return [ended]
        if was is Place.BINDING:
            self._wake(room(entry.assumed()), now)
        elif nominated.status.nominated_node_name:
            self._wake(room(nominated, at_most=nominated.priority), now)
        return [ended, Withdrawn(uid)] if was is Place.IN_FLIGHT else [ended]

    def _on_unreadable(self, event: PodUnreadable, now: float) -> list[Effect]:
        """Its owner is told, once for each thing that is wrong with it."""
        if event.scheduler not in self._frameworks:
            return []
        told = self._unreadable.get(event.uid) == event.problem
        effects = self._on_left(event.uid, now, bound=False)
        self._unreadable[event.uid] = event.problem
        if not told:
            effects.append(Notify(unreadable_notice(event)))
        return effects

    def _wake(self, happening: Happening, now: float) -> None:
        """Once the state on which those who are woken will be judged has changed, too."""
        if self._at is None or not self._deferred.add(happening, self._at):
            self._pods.wake(happening, now)


def _broken(seen: Seen, cause: Exception) -> FlotillaError:
    if isinstance(cause, FlotillaError):
        return cause
    what = f"Pod {seen.pod.key}" if isinstance(seen, PodPending) else str(seen)
    problem = UserError(f"{what}: cannot be queued: {type(cause).__name__}: {cause}")
    problem.__cause__ = cause
    return problem


def _same_version(entry: Entry, event: PodPending) -> bool:
    version = event.pod.metadata.resource_version
    return version != "" and version == entry.pod.metadata.resource_version


def _ended(entry: Entry, now: float, bound: bool) -> Ended:
    return Ended(
        uid=entry.uid,
        key=entry.pod.key,
        profile=entry.framework.name,
        bound=bound,
        attempts=entry.attempts,
        seen_at=entry.seen_at,
        active_at=entry.active_at,
        ended_at=now,
    )
