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
               +--forgotten--> as after an attempt that was rejected, or failed by an error

A pod that is in flight or binding for too long is active again: nothing that others lose can lose a pod. From
everywhere a pod is done when it is seen bound or deleted, and binding when it is heard to be decided. The rules are
kube-scheduler's: queue order, rests, what is taken when nothing is active, what wakes whom.

`pods` has the rules, `holdings` moves along the table in `places`, `hints` asks plugins what helps; here is who says
what to whom. Each pod has a short story, told when something impossible is about to happen.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from services.queue.backoff import Backoff
from services.queue.events import (
    Acknowledge,
    Answer,
    Effect,
    Event,
    Lapse,
    Listed,
    Notify,
    Observed,
    Problem,
    Remember,
    Tick,
)
from services.queue.kept import Kept
from services.queue.places import Place
from services.queue.pulls import Pulls
from services.queue.scheduling.attempt_results import Attempts
from services.queue.scheduling.queued_pod_info import Entry
from services.queue.scheduling.queueing_hints import Hints
from services.queue.scheduling.scheduling_queue import Patience, Pods
from services.queue.status.pod_conditions import held_notice, unshown_notice
from services.queue.tally import Tally
from services.queue.watch.event_handlers import Watched
from shared.cluster.objects import ClusterObjects
from shared.errors import MOST_REMEMBERED, FlotillaError, InvariantBroken, ProtocolError
from shared.framework.profile import Framework
from shared.framework.status import Status
from shared.messages.binding import Evicted
from shared.messages.queue import (
    TAKE_PATIENCE,
    Absorbed,
    Activate,
    Assumed,
    Batch,
    Forgotten,
    Gang,
    Outcome,
    Outcomes,
    QueueContents,
    QueuedPod,
    Received,
    Take,
    Verdict,
)

POPPED = "PodPopped"
MOST_GANG_BYTES = 7 << 20
"""Of the pods of a gang, which go in one message."""
MOST_BYTES = 4 << 20
"""Of pods in one batch, half of what a message may hold; a larger pod goes alone."""


class QueueCore:
    def __init__(
        self,
        frameworks: Mapping[str, Framework],
        objects: ClusterObjects | None = None,
        *,
        epoch: int = 0,
        backoff: Backoff | None = None,
        patience: Patience | None = None,
        kept: Mapping[str, Kept] | None = None,
        stopwatch: Callable[[], float] | None = None,
        date: Callable[[float], float] = float,
    ) -> None:
        """`frameworks` by scheduler name; pods of other names are not ours. `epoch`: the queue's own, 0 if it has none.

        `objects`: the cluster as it is after what is told, kept so by whoever tells. `kept`: what Remember said of each
        pod last, if Lapse was not said since. `stopwatch`: seconds, for how long plugins take to give
        hints. `date` makes Unix times of times.
        """
        self.epoch = epoch
        self._date = date
        self.refused: deque[ProtocolError] = deque(maxlen=MOST_REMEMBERED)
        self.objects = ClusterObjects() if objects is None else objects
        self._problems: deque[FlotillaError] = deque(maxlen=MOST_REMEMBERED)
        tally = Tally()
        hints = Hints(frameworks.values(), self.objects, self._problems, tally, stopwatch)
        self._pods = Pods(hints, self._problems, tally, backoff or Backoff(), patience or Patience(), kept or {})
        self._watched = Watched(frameworks, self._pods, hints)
        self._gangs = self._pods.held.gangs
        self._attempts = Attempts(self._pods)
        self._pulls = Pulls()
        self._snapshot_epoch = 0
        self._snapshot_seq = 0

    # Events

    def handle(self, event: Event, now: float) -> list[Effect]:
        self._pods.forget_hints()
        effects = self._take_in(event, now)
        self._pods.release(now)
        effects += [Notify(held_notice(overdue)) for overdue in self._gangs.overdue(now)]
        for effect in effects:
            if isinstance(effect, Notify):
                self._pods.untold.said(effect.notice, now)
        effects += self._say_again(now)
        if self._pulls.waiting is not None:
            effects += self._serve(self._pulls.waiting, now)
        news, problems = self._pods.memory.news, self._problems
        if news:
            effects += [Lapse(uid) if kept is None else Remember(uid, kept) for uid, kept in news.items()]
            news.clear()
        while problems:
            effects.append(Problem(problems.popleft()))
        return effects

    def _say_again(self, now: float) -> list[Effect]:
        """What pods do not show. Whether those do that cannot be read nobody knows: of them it is said some times."""
        untold = self._pods.untold
        effects: list[Effect] = []
        for notice, often in untold.due(now):
            entry = self._pods.get(notice.uid)
            if entry is None:
                again = None if often else notice
            else:
                again = unshown_notice(entry.pod, notice, self._pods.nominations.unshown(entry.pod))
            if again is None:
                untold.drop(notice.uid)
            else:
                effects.append(Notify(again))
        return effects

    def _take_in(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Observed():
                return self._watched.observe(event, now)
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
            case Evicted():
                self._attempts.preempted(event, now)
            case Activate(uids=uids):
                self._on_activate(uids, now)
            case Listed(at=at):
                self._pods.memory.lapse_all_but(self._pods.held.entries)
                self._watched.listed(at)
            case Tick():
                self._pods.pass_time(now)
            case _:
                return self._watched.see(event, now)
        return []

    def next_deadline(self) -> float | None:
        deadline = self._pods.next_deadline()
        if self._pulls.waiting is None:
            return deadline
        return self._pulls.patience_ends if deadline is None else min(deadline, self._pulls.patience_ends)

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
        pods, effects = self._draw(take.most, now)
        if not pods and now < self._pulls.patience_ends:
            return effects
        batch = Batch(take.epoch, take.number, pods, self._snapshot_seq, self.epoch)
        self._pulls.answer(batch)
        return [*effects, Answer(batch)]

    def _draw(self, most: int, now: float) -> tuple[list[QueuedPod], list[Effect]]:
        pods: list[QueuedPod] = []
        effects: list[Effect] = []
        size = 0
        while len(pods) < most and (first := self._pods.next_up()) is not None:
            drawn = self._gangs.draw(first)
            if isinstance(drawn, Status):
                self._pods.hold(first, drawn.plugin, now)
                continue
            of_drawn = sum(entry.size for entry in drawn.entries)
            if drawn.gang is not None and of_drawn > MOST_GANG_BYTES:
                effects += self._fail_gang(drawn.entries, f"pod group {drawn.gang.key}: {_too_large(of_drawn)}", now)
                continue
            size += of_drawn
            if pods and (size > MOST_BYTES or len(pods) + len(drawn.entries) > most):
                break
            pods += [self._hand_out(entry, drawn.gang, now) for entry in drawn.entries]
        return pods, effects

    def _fail_gang(self, entries: Sequence[Entry], why: str, now: float) -> list[Effect]:
        """An attempt that ends before it has begun: cycle cannot be told of all of them at once."""
        effects: list[Effect] = []
        for entry in entries:
            self._pods.hand_out(entry, now)
            failed = Outcome(entry.uid, Verdict.FAILED, message=why)
            effects += self._attempts.report(failed, self._snapshot_epoch, now)
        return effects

    def _hand_out(self, entry: Entry, gang: Gang | None, now: float) -> QueuedPod:
        self._pods.hand_out(entry, now)
        entry.term = self._snapshot_epoch
        pod = self._pods.nominations.applied(entry.pod)
        return QueuedPod(pod, entry.attempts, self._date(entry.seen_at), self._date(now), gang)

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
                effects += self._attempts.report(outcome, self._snapshot_epoch, now)
        effects.append(Acknowledge(Received(message.epoch, message.number, self.epoch)))
        return effects

    def _on_forgotten(self, message: Forgotten, now: float) -> None:
        if not self._is_old(message.epoch, self._snapshot_epoch, "forgotten"):
            self._snapshot_epoch = message.epoch
            self._attempts.forget(message.pods, now)

    def _on_activate(self, uids: Iterable[str], now: float) -> None:
        for uid in uids:
            if (entry := self._pods.get(uid)) is not None:
                self._pods.activate(entry, now)

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
        self._watched.absorb((message.watch_epoch, message.watch_seq), now)

    # Inside

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
        return self._pods.held.tally

    def counts(self) -> dict[Place, int]:
        return self._pods.held.counts()

    def inspect(self) -> QueueContents:
        return self._pods.held.contents()

    def entries(self, place: Place) -> Iterator[Entry]:
        """In the order in which they leave it; to be looked at only."""
        return self._pods.held.of(place)

    def nominated(self) -> dict[str, list[str]]:
        """The uids of pods by the node that they are nominated to."""
        return self._pods.nominations.by_node()

    def nominated_node(self, uid: str) -> str:
        """That a pod is to have; empty for none."""
        return self._pods.nominations.node_of(uid)

    def inflight_events(self) -> Counter[str]:
        """What is remembered for pods that are away, by label; and how many these are, as PodPopped."""
        found = Counter(happening.label for happening in self._pods.away.log())
        found[POPPED] = len(self._pods.away)
        return found

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


def _too_large(size: int) -> str:
    return f"its pods take {size} bytes, and only {MOST_GANG_BYTES} can be placed together"
