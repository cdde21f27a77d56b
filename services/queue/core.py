"""Queue: which pod is to be decided next, and what becomes of those that could not be.

    new ---> gated <---------------------------------------------+
     |         | its gates are gone                              |
     +---> active <------------+------------------+              | a gate stands before
               | taken         | its rest is over | may be       | active and back-off
               v               |                  | helped       |
           in flight --error--> error back-off    |              |
               |   |                              |              |
               |   +--rejected--> unschedulable --+--it rests--> back-off --taken, if nothing is active--> in flight
               |   +--rejected, and something that may help has happened since--> back-off
               | decided, or it holds a place already
               v
            binding --seen bound--> done
               +--forgotten--> error back-off

A pod that is in flight or binding for too long is active again: nothing that others lose can lose a pod. From
everywhere a pod is done when it is seen bound or deleted, and binding when it is heard to be decided. The rules are
kube-scheduler's: queue order, rests, what is taken when nothing is active, what wakes whom (`waking`).

`pods` moves them, along the table in `places`; here is who says what to whom. Each pod has a short story, told when
something impossible is about to happen.
"""

from collections import deque
from collections.abc import Mapping

from services.queue.backoff import Backoff
from services.queue.deferred import Deferred
from services.queue.entry import Entry
from services.queue.events import (
    Acknowledge,
    Answer,
    ClusterChange,
    Effect,
    Ended,
    Event,
    Notify,
    Observed,
    PodBound,
    PodGone,
    PodPending,
    PodUnreadable,
    Position,
    Problem,
    Seen,
    Tick,
    Withdrawn,
)
from services.queue.notices import notice_of, unreadable_notice
from services.queue.places import Place
from services.queue.pods import Pods
from services.queue.pulls import Pulls
from services.queue.tally import Result, Tally
from services.queue.waking import ChangeKind
from shared.errors import MOST_REMEMBERED, FlotillaError, InvariantBroken, ProtocolError, UserError
from shared.framework.profile import Framework
from shared.messages.queue import (
    POD_GONE,
    TAKE_PATIENCE,
    Absorbed,
    Assumed,
    Batch,
    Forgotten,
    Outcome,
    Outcomes,
    QueueContents,
    QueuedPod,
    Received,
    Take,
    Verdict,
)

MOST_BYTES = 4 << 20
"""Of pods in one batch, half of what a message may hold; a larger pod goes alone."""
FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


class QueueCore:
    def __init__(self, frameworks: Mapping[str, Framework], *, backoff: Backoff | None = None) -> None:
        """`frameworks` by scheduler name; pods of other names are not ours."""
        self.refused: deque[ProtocolError] = deque(maxlen=MOST_REMEMBERED)
        self._frameworks = frameworks
        self._pods = Pods(backoff or Backoff())
        self._pulls = Pulls()
        self._snapshot_epoch = 0
        self._snapshot_seq = 0
        self._deferred = Deferred()
        self._observed_at: Position | None = None
        self._unreadable: dict[str, str] = {}

    # Events

    def handle(self, event: Event, now: float) -> list[Effect]:
        effects = self._take_in(event, now)
        if self._pulls.waiting is not None:
            effects += self._serve(self._pulls.waiting, now)
        problems = self._pods.problems
        while problems:
            effects.append(Problem(problems.popleft()))
        return effects

    def _take_in(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Observed():
                return self._on_observed(event, now)
            case Take():
                return self._on_take(event, now)
            case Outcomes():
                return self._on_outcomes(event, now)
            case Forgotten():
                self._on_forgotten(event, now)
            case Assumed():
                self._on_assumed(event, now)
            case Absorbed():
                self._on_absorbed(event, now)
            case Tick():
                self._pods.pass_time(now)
            case _:
                return self._on_seen(event, now)
        return []

    def _on_observed(self, observed: Observed, now: float) -> list[Effect]:
        self._observed_at = observed.at
        try:
            return [effect for one in observed.seen for effect in self._on_one_of(one, now)]
        finally:
            self._observed_at = None

    def _on_one_of(self, seen: Seen, now: float) -> list[Effect]:
        """What a plugin does to one pod is not to cost the others that came with it."""
        try:
            return self._on_seen(seen, now)
        except InvariantBroken:
            raise
        except Exception as cause:
            return [Problem(_broken(seen, cause))]

    def _on_seen(self, seen: Seen, now: float) -> list[Effect]:
        match seen:
            case PodPending():
                return self._on_pending(seen, now)
            case PodBound(uid=uid):
                return self._on_left(uid, now, bound=True)
            case PodGone(uid=uid):
                return self._on_left(uid, now, bound=False)
            case ClusterChange(kind=kind):
                self._wake(kind, now)
            case PodUnreadable():
                return self._on_unreadable(seen, now)
        return []

    def next_deadline(self) -> float | None:
        deadline = self._pods.next_deadline()
        if self._pulls.waiting is None:
            return deadline
        return self._pulls.patience_ends if deadline is None else min(deadline, self._pulls.patience_ends)

    # Pods, as the watch tells of them

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
            self._pods.update(entry, pod, event.size, now)
        return []

    def _on_left(self, uid: str, now: float, *, bound: bool) -> list[Effect]:
        self._unreadable.pop(uid, None)
        entry = self._pods.get(uid)
        if entry is None:
            return []
        was = entry.place
        self._pods.drop(entry, now, "bound" if bound else "gone")
        ended = _ended(entry, now, bound)
        if bound:
            if entry.attempts:
                self.tally.attempts[Result.SCHEDULED, entry.framework.name] += 1
            return [ended]
        if was is Place.IN_FLIGHT:
            return [ended, Withdrawn(uid)]
        if was is Place.BINDING:
            self._wake(ChangeKind.ASSIGNED_POD_DELETED, now)
        return [ended]

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

    # Batches

    def _on_take(self, take: Take, now: float) -> list[Effect]:
        if self._is_old(take.epoch, self._pulls.epoch, f"take {take.number}"):
            return []
        self._notice_cycle(take.epoch, now)
        try:
            known = self._pulls.again(take)
        except ProtocolError as cause:
            self._refuse(cause)
            return []
        if known is not None:
            return [Answer(known, again=True)]
        self._pulls.wait(take, now + TAKE_PATIENCE)
        self._pods.pass_time(now)
        return []

    def _serve(self, take: Take, now: float) -> list[Effect]:
        """Answers with what there is, and with nothing only when it has waited long enough."""
        pods = self._draw(take.most, now)
        if not pods and now < self._pulls.patience_ends:
            return []
        batch = Batch(take.epoch, take.number, pods, self._snapshot_seq)
        self._pulls.answer(batch)
        return [Answer(batch)]

    def _draw(self, most: int, now: float) -> list[QueuedPod]:
        pods: list[QueuedPod] = []
        size = 0
        while len(pods) < most and (entry := self._pods.next_up()) is not None:
            size += entry.size
            if pods and size > MOST_BYTES:
                break
            self._pods.hand_out(entry, now)
            entry.term = self._snapshot_epoch
            pods.append(QueuedPod(entry.pod, entry.attempts, entry.seen_at, now))
        return pods

    def _notice_cycle(self, epoch: int, now: float) -> None:
        """A new cycle knows nothing of what an earlier one had in flight."""
        if epoch > self._pulls.epoch:
            self._pulls.begin(epoch)
            self._pods.take_back_all(now)

    # Outcomes

    def _on_outcomes(self, message: Outcomes, now: float) -> list[Effect]:
        if self._is_old(message.epoch, self._pulls.epoch, f"outcomes {message.number}"):
            return []
        self._notice_cycle(message.epoch, now)
        effects: list[Effect] = []
        if self._pulls.first_arrival(message.number):
            for outcome in message.outcomes:
                entry = self._pods.get(outcome.uid)
                if entry is not None:
                    effects += self._on_outcome(entry, outcome, now)
        effects.append(Acknowledge(Received(message.epoch, message.number)))
        return effects

    def _on_outcome(self, entry: Entry, outcome: Outcome, now: float) -> list[Effect]:
        if outcome.verdict in (Verdict.DECIDED, Verdict.SUPERSEDED):
            self._on_placed(entry, outcome.verdict, now)
            return []
        if entry.place is not Place.IN_FLIGHT:
            return []  # of an attempt that was given up here
        notice = Notify(notice_of(entry.pod, outcome))
        rejected = outcome.verdict is Verdict.UNSCHEDULABLE
        self._count(entry, Result.UNSCHEDULABLE if rejected else Result.ERROR)
        if rejected and outcome.plugins:
            self._pods.reject(entry, tuple(sorted(set(outcome.plugins))), now)
        else:
            self._pods.fail(entry, now)  # also if no plugin rejected it: then no event would wake it
        return [notice]

    def _on_placed(self, entry: Entry, verdict: Verdict, now: float) -> None:
        if entry.place is Place.BINDING:
            return
        if verdict is Verdict.SUPERSEDED:
            entry.attempts = max(1, entry.attempts - 1)  # nothing was attempted
        if entry.place is Place.IN_FLIGHT and entry.forgotten:
            self._fail_binding(entry, now)
        elif entry.place is Place.IN_FLIGHT and 0 < entry.term < self._snapshot_epoch:
            self._pods.take_back(entry, now)  # decided by a snapshot that is not there any more, it may be
        else:
            self._pods.decide(entry, now, verdict)

    def _fail_binding(self, entry: Entry, now: float) -> None:
        self._count(entry, Result.ERROR)
        self._pods.fail(entry, now)

    def _on_forgotten(self, message: Forgotten, now: float) -> None:
        """They make room for others before they come back themselves."""
        if self._is_old(message.epoch, self._snapshot_epoch, "forgotten"):
            return
        self._snapshot_epoch = message.epoch
        if message.pods:
            self._pods.wake(ChangeKind.ASSIGNED_POD_DELETED, now)
        for pod in message.pods:
            entry = self._pods.get(pod.uid)
            if pod.reason.startswith(POD_GONE):
                continue
            if entry is not None and entry.place in (Place.IN_FLIGHT, Place.BINDING):
                entry.tell(now, entry.place, f"forgotten: {pod.reason}")
                if entry.place is Place.BINDING:
                    self._fail_binding(entry, now)
                else:
                    entry.forgotten = True

    def _on_assumed(self, message: Assumed, now: float) -> None:
        """A new snapshot: decisions that it does not know of are lost, which is not the pods' affair."""
        if self._is_old(message.epoch, self._snapshot_epoch, "assumed"):
            return
        self._snapshot_epoch = message.epoch
        self._pods.take_back_bindings(frozenset(message.uids), now)

    def _on_absorbed(self, message: Absorbed, now: float) -> None:
        if self._is_old(message.epoch, self._snapshot_epoch, "absorbed"):
            return
        if 0 < self._snapshot_epoch < message.epoch:
            self._pods.take_back_bindings(frozenset(), now)  # what this snapshot has assumed should have been told
        self._snapshot_epoch, self._snapshot_seq = message.epoch, message.seq
        for kind in self._deferred.absorb((message.watch_epoch, message.watch_seq)):
            self._pods.wake(kind, now)

    # Inside

    def _wake(self, kind: ChangeKind, now: float) -> None:
        """Once the state on which those who are woken will be judged has changed, too."""
        if self._observed_at is None or not self._deferred.add(kind, self._observed_at):
            self._pods.wake(kind, now)

    def _count(self, entry: Entry, result: Result) -> None:
        self.tally.attempts[result, entry.framework.name] += 1

    def _is_old(self, epoch: int, newest: int, what: str) -> bool:
        if epoch < newest:
            self._refuse(ProtocolError(f"{what} of epoch {epoch}, now {newest}"))
            return True
        return False

    def _refuse(self, cause: ProtocolError) -> None:
        self.refused.append(cause)
        self.tally.refused += 1

    # To look at

    @property
    def tally(self) -> Tally:
        return self._pods.tally

    def counts(self) -> dict[Place, int]:
        return self._pods.counts()

    def inspect(self) -> QueueContents:
        return self._pods.contents()

    def place_of(self, uid: str) -> Place | None:
        entry = self._pods.get(uid)
        return None if entry is None else entry.place

    def queued_at(self, uid: str) -> float | None:
        """Since when it waits for the attempt that is to come or under way."""
        entry = self._pods.get(uid)
        return None if entry is None else entry.queued_at

    def story(self, uid: str) -> str:
        entry = self._pods.get(uid)
        return "no such pod is known" if entry is None else entry.told()

    def validate(self) -> None:
        """Every pod is in one place and knows it, counts and indices agree, and nobody waits for what is there."""
        self._pods.validate()
        if self._pulls.waiting is not None and self._pods.next_up() is not None:
            raise InvariantBroken("cycle waits for pods that are there")


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
