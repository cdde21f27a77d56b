"""The queue's core: which pod is decided next, and what becomes of pods that could not be scheduled.

    new ---> gated <------------------------------------------------+
     |         | its gates open                                     |
     +---> active <-----------+---------------------+               | a gate closed before
               | popped       | back-off complete   | an event      | active or back-off
               v              |                     | may help      |
           in flight --error--> error back-off      |               |
               |   |                                |               |
               |   +--rejected--> unschedulable ----+--backs off--> back-off --popped, if none is active--> in flight
               |   +--rejected, and an event since it was popped may help--> back-off
               | decided, or it has a node already
               v
            binding --seen bound--> done
               +--forgotten--> as after a rejected or failed attempt

A pod that is in flight or binding for too long becomes active again, so no lost message can lose a pod. From every
state a pod is done when it is seen bound or deleted, and binding when the queue learns of its decision. The rules are
those of kube-scheduler's scheduling queue: order, back-offs, queueing hints.

`scheduling` has the states and the rules; `watch_decoder` makes events of the watcher's stream, which `event_handlers`
handles. Here messages are dispatched and answered. InvariantBroken includes the pod's latest transitions.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from flotilla.results import Status
from services.queue import events
from services.queue.batch_contents import LONGEST_ATTEMPT, MAX_ENTRY_BYTES, BatchContents, size_of
from services.queue.event_handlers import EventHandlers
from services.queue.eviction_journal import EvictionJournal
from services.queue.pod_conditions import (
    first_held_notice,
    held_notice,
    nomination_cleared_notice,
    unconfirmed_notice,
)
from services.queue.scheduling.attempt_results import AttemptResults, CycleSession
from services.queue.scheduling.counters import Counters
from services.queue.scheduling.gang_events import GangEvents
from services.queue.scheduling.left_pods import LeftPod
from services.queue.scheduling.nominator import Nominator
from services.queue.scheduling.pod_groups import PodGroups
from services.queue.scheduling.pod_queues import BackoffPolicy
from services.queue.scheduling.popped_together import PoppedTogether
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo, RetryRecord
from services.queue.scheduling.queueing_hints import HintCall, QueueingHints
from services.queue.scheduling.scheduling_queue import SchedulingQueue, Timeouts
from shared.cluster.objects import ClusterObjects
from shared.deadlines import earliest
from shared.errors import MAX_REMEMBERED, FlotillaError, InvariantBroken, ProtocolError
from shared.framework.metering import PluginMeter
from shared.framework.profile import Framework
from shared.messages.binding import Evicted, Notice
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
from shared.plugins.devices.queued_claims import queued_claims
from shared.plugins.volumes.own_claims import queued_volumes
from shared.terms import Heard, Newest
from shared.ticks import next_tick

IN_FLIGHT_PODS = "PodPopped"


class QueueCore:
    def __init__(
        self,
        frameworks: Mapping[str, Framework],
        objects: ClusterObjects | None = None,
        *,
        epoch: int = 0,
        backoff: BackoffPolicy | None = None,
        timeouts: Timeouts | None = None,
        records: Mapping[str, RetryRecord] | None = None,
        stopwatch: Callable[[], float] | None = None,
        date: Callable[[float], float] = float,
    ) -> None:
        """`frameworks` by scheduler name; pods of other schedulers are ignored. `epoch`: the queue's term, 0 for none.

        `objects`: the cluster after the events told so far; the teller updates it. `records`: what StoreRetry stored
        before a restart. `stopwatch`: times plugins, in seconds. `date` converts the core's times to Unix times.
        """
        self.epoch = epoch
        self.refused: deque[ProtocolError] = deque(maxlen=MAX_REMEMBERED)
        self.objects = ClusterObjects() if objects is None else objects
        self._date = date
        self._problems: deque[FlotillaError] = deque(maxlen=MAX_REMEMBERED)
        self.schedulers = sorted(frameworks)
        groups = PodGroups()
        self._hints = QueueingHints(frameworks.values(), self.objects, self._problems, GangEvents(groups), stopwatch)
        self._queue = SchedulingQueue(
            self._hints,
            self._problems,
            backoff or BackoffPolicy(),
            timeouts or Timeouts(),
            records or {},
            groups,
            stopwatch,
        )
        self._handlers = EventHandlers(frameworks, self._queue, self._hints)
        self.claims_on_nodes = self._handlers.claims_on_nodes
        self._results = AttemptResults(self._queue, self.objects)
        self.evictions = EvictionJournal()
        self._session = CycleSession()
        self._cycle = Newest(0)
        """The cycle's term."""
        self._takes = Newest((0, 0))
        """The cycle's term, and the number of a Take."""
        self._snapshot = Newest(0)
        """The snapshot's term."""
        self._snapshot_seq = 0

    def take_over(self, epoch: int, records: Mapping[str, RetryRecord], now: float) -> None:
        """A standby, which has followed the watch, leads from now on. `records`: as at the start."""
        self.epoch = epoch
        self._queue.restore(records, now)

    def handle(self, event: events.Event, now: float) -> list[events.Effect]:
        queue = self._queue
        self._hints.clear_cache()
        queue.events.clear_cache()
        effects = self._dispatch(event, now)
        queue.settle_groups(now)
        if queue.groups.has_held:
            effects += [held_notice(held) for held in queue.groups.held_too_long(now)]
            effects += [first_held_notice(held) for held in queue.groups.first_events(now)]
        effects = [sent for effect in effects if (sent := self._sent(effect, now)) is not None]
        is_last = isinstance(event, events.TermEnds)
        effects += queue.group_conditions.take(now, is_last=is_last)
        effects += self._due_conditions(now, is_last=is_last)
        if self._session.waiting is not None:
            effects += self._serve(self._session.waiting, now)
        for pod in queue.given_up:
            effects.append(cleared := nomination_cleared_notice(pod))
            queue.conditions.send(cleared, now)
        queue.given_up.clear()
        if changes := queue.retries.changes:
            effects += [events.StoreRetry(uid, record) for uid, record in changes.items()]
            changes.clear()
        while self._problems:
            effects.append(events.Problem(self._problems.popleft()))
        return effects

    def _dispatch(self, event: events.Event, now: float) -> list[events.Effect]:
        match event:
            case events.WatchEvents():
                return self._handlers.handle_all(event, now)
            case Take():
                return self._on_take(event, now)
            case Outcomes():
                return self._on_outcomes(event, now)
            case Forgotten(epoch=epoch, pods=pods):
                if self._is_newest(self._snapshot, epoch, "forgotten", now):
                    self._results.on_forgotten(pods, now)
            case Assumed():
                if self._is_newest(self._snapshot, event.epoch, "assumed", now):
                    self._queue.take_back_bindings(frozenset(event.uids), now)
            case Absorbed():
                self._on_absorbed(event, now)
            case Evicted(uid=uid):
                info = self._queue.pods.get(uid)
                priority = None if info is None else self._queue.groups.priority_of(info.pod)
                self.evictions.record(event, priority, now)
                self._results.on_evicted(event, now)
            case Activate(uids=uids):
                for uid in uids:
                    if (info := self._queue.pods.get(uid)) is not None:
                        self._queue.activate(info, now)
            case events.ListingComplete(at=at):
                self._queue.retries.retain(self._queue.pods)
                self._handlers.on_listing_complete(at)
            case events.Tick():
                self._queue.flush(now)
            case events.TermEnds():
                return self._end_wait()
            case _:
                return self._handlers.handle(event, now)
        return []

    def next_deadline(self) -> float | None:
        deadline = self._queue.next_deadline()
        if self._session.waiting is None:
            return deadline
        return earliest(deadline, self._session.wait_ends, self._queue.early_at())

    def _sent(self, effect: events.Effect, now: float) -> events.Effect | None:
        """What of the effect is carried out now."""
        if isinstance(effect, Notice) and not effect.told_as:
            return self._queue.conditions.send(effect, now)
        return effect

    def _due_conditions(self, now: float, *, is_last: bool) -> list[events.Effect]:
        """Conditions that were delayed, and again those that the watch does not show yet.

        Those of unreadable pods are sent again a limited number of times. `is_last`: the term ends.
        """
        conditions = self._queue.conditions
        delayed = conditions.flush() if is_last else conditions.due_delayed(now)
        found: list[Notice | None] = [self._unshown(notice, notice) for notice in delayed]
        for notice, is_last_delay in conditions.due_again(now):
            again = self._unshown(notice, None if is_last_delay else notice)
            if again is None:
                conditions.delete(notice.uid)
            else:
                found.append(conditions.pass_on(again, now))
        return [notice for notice in found if notice is not None]

    def _unshown(self, notice: Notice, of_unreadable: Notice | None) -> Notice | None:
        """What of the notice the pod does not show; `of_unreadable` if the pod cannot be read."""
        info = self._queue.pods.get(notice.uid)
        if info is None:
            return of_unreadable
        return unconfirmed_notice(info.pod, notice, self._queue.nominator.unshown(info.pod))

    # Batches

    def _on_take(self, take: Take, now: float) -> list[events.Effect]:
        if not self._is_newest(self._cycle, take.epoch, f"take {take.number}", now):
            return []
        self._check_cycle(take.epoch, now)
        if self._takes.hear((take.epoch, take.number), now) is Heard.REFUTED:
            self._begin_session(take.epoch, now)
        try:
            batch = self._session.repeated(take)
        except ProtocolError as cause:
            self._refuse(cause)
            return []
        if batch is not None:
            return [events.SendBatch(batch, again=True)]
        effects: list[events.Effect] = []
        if self._session.is_first(take):
            for outcome in take.outcomes:
                effects += self._results.on_outcome(outcome, self._snapshot.position, now)
        self._session.wait(take, next_tick(now, TAKE_PATIENCE))
        self._queue.flush(now)
        return effects

    def _serve(self, take: Take, now: float) -> list[events.Effect]:
        """Answers with the pods there are; without any, only when the Take has waited long enough."""
        contents, effects = self._pop(take.most, now)
        if not contents.pods and now < self._session.wait_ends:
            return effects
        seq, epoch = self._snapshot_seq, self.epoch
        batch = Batch(take.epoch, take.number, contents.pods, seq, epoch, hears_outcomes=True, gangs=contents.gangs)
        self._session.answer(batch)
        return [*effects, events.SendBatch(batch)]

    def _end_wait(self) -> list[events.Effect]:
        """Answers the Take that waits, without pods: its cycle asks the next queue at once."""
        take = self._session.waiting
        if take is None:
            return []
        batch = Batch(take.epoch, take.number, [], self._snapshot_seq, self.epoch, hears_outcomes=True)
        self._session.answer(batch)
        return [events.SendBatch(batch)]

    def _pop(self, most: int, now: float) -> tuple[BatchContents, list[events.Effect]]:
        contents = BatchContents()
        effects: list[events.Effect] = []
        while len(contents.pods) < most and (first := self._queue.peek(now)) is not None:
            together = self._queue.groups.pop_with(first)
            if isinstance(together, Status):
                self._queue.hold(first, together.plugin, now)
                continue
            if contents.pods and len(contents.pods) + len(together.pods) > most:
                break
            queued = [self._queued(info, of, now) for info, of in zip(together.pods, together.gangs(), strict=True)]
            size = size_of(queued, together.gang)
            if size > MAX_ENTRY_BYTES:
                effects += self._fail(together, size, now)
                continue
            if not contents.has_room(together.gang, size):
                break
            self._queue.pop_together(together.pods, now)
            for info in together.pods:
                info.snapshot_epoch = self._snapshot.position
            told = zip(together.pods, queued, strict=True)
            contents.add([replace(each, attempt=info.attempts) for info, each in told], together.gang, size)
        return contents, effects

    def _fail(self, together: PoppedTogether, size: int, now: float) -> list[events.Effect]:
        """Ends an attempt at once, for a pod or gang that fits in no message."""
        gang, count = together.gang, len(together.pods)
        who = "" if gang is None else f"pod group {gang.key}: "
        what = "the pod takes" if gang is None else f"the {count:,} pods that are placed together take"
        why = f"{who}{what} {size:,} bytes in a message, and at most {MAX_ENTRY_BYTES:,} fit"
        effects: list[events.Effect] = []
        self._queue.pop_together(together.pods, now)
        for info in together.pods:
            failed = Outcome(info.uid, Verdict.FAILED, message=why)
            effects += self._results.on_outcome(failed, self._snapshot.position, now)
        return effects

    def _queued(self, info: QueuedPodInfo, gang: Gang | None, now: float) -> QueuedPod:
        """A pod that is about to be popped, as the cycle gets it, but for its attempt."""
        body = info.encoded(self._queue.nominator.applied(info.pod))
        users = self._queue.claim_users
        claims = queued_claims(info.pod, self.objects.devices, users)
        volumes = queued_volumes(info.pod, self.objects, users.volumes, self.claims_on_nodes)
        return QueuedPod(body, LONGEST_ATTEMPT, self._date(info.seen_at), self._date(now), gang, claims, volumes)

    def _check_cycle(self, epoch: int, now: float) -> None:
        if epoch != self._session.epoch:
            self._begin_session(epoch, now)

    def _begin_session(self, epoch: int, now: float) -> None:
        """A new cycle does not know what an earlier one had in flight: takes it back."""
        self._session.begin(epoch)
        self._queue.take_back_in_flight(now)

    # Outcomes

    def _on_outcomes(self, message: Outcomes, now: float) -> list[events.Effect]:
        if not self._is_newest(self._cycle, message.epoch, f"outcomes {message.number}", now):
            return []
        self._check_cycle(message.epoch, now)
        effects: list[events.Effect] = []
        try:
            is_new = self._session.is_new(message.number, now)
        except ProtocolError as cause:
            self._refuse(cause)
            return []
        if is_new:
            for outcome in message.outcomes:
                effects += self._results.on_outcome(outcome, self._snapshot.position, now)
            effects += self._results.on_hints(message.hints)
        effects.append(Received(message.epoch, message.number, self.epoch))
        return effects

    def _on_absorbed(self, message: Absorbed, now: float) -> None:
        before = self._snapshot.position
        if not self._is_newest(self._snapshot, message.epoch, "absorbed", now):
            return
        if before not in (0, message.epoch):
            self._queue.take_back_bindings(frozenset(), now)  # the new snapshot's Assumed must have been lost
        self._snapshot_seq = message.seq
        self._handlers.on_absorbed((message.watch_epoch, message.watch_seq), now)

    def _is_newest(self, leader: Newest[int], epoch: int, what: str, now: float) -> bool:
        """Whether to accept the message; a refuted newest term is given up for this one."""
        newest = leader.position
        heard = leader.hear(epoch, now)
        if heard is Heard.OLD:
            self._refuse(ProtocolError(f"{what} of epoch {epoch}, now {newest}"))
        elif heard is Heard.REFUTED:
            self._problems.append(ProtocolError(f"{what} of epoch {epoch} accepted: epoch {newest} has gone silent"))
        return heard is not Heard.OLD

    def _refuse(self, cause: ProtocolError) -> None:
        self.refused.append(cause)
        self._queue.counters.refused += 1

    # Introspection

    @property
    def cycle_epoch(self) -> int:
        """The newest term of the cycle."""
        return self._cycle.position

    @property
    def counters(self) -> Counters:
        return self._queue.counters

    @property
    def meter(self) -> PluginMeter:
        """Times PreEnqueue plugins."""
        return self._queue.plugins.meter

    @property
    def hint_calls(self) -> deque[HintCall]:
        return self._hints.calls

    def counts(self) -> dict[PodState, int]:
        return {state: len(container) for state, container in self._queue.states.by_state.items()}

    def pods_in(self, state: PodState) -> Iterator[QueuedPodInfo]:
        """In the order in which they leave the state; read only."""
        return iter(self._queue.states.by_state[state])

    def contents(self) -> QueueContents:
        def uids(*states: PodState) -> list[str]:
            return [info.uid for state in states for info in self.pods_in(state)]

        return QueueContents(
            active=uids(PodState.ACTIVE),
            backoff=uids(PodState.BACKOFF, PodState.ERROR_BACKOFF),
            unschedulable=uids(PodState.UNSCHEDULABLE),
            gated=uids(PodState.GATED),
            in_flight=uids(PodState.IN_FLIGHT),
            binding=uids(PodState.BINDING),
        )

    def nominated(self) -> dict[str, list[str]]:
        """Uids of nominated pods by node."""
        return self._queue.nominator.by_node()

    def left(self, namespace: str, name: str) -> LeftPod | None:
        """The last pod of this name that left the queue, if it is remembered."""
        return self._queue.left.of(namespace, name)

    def foreign_scheduler(self, key: str) -> str:
        """The schedulerName of the pending pod of this namespace and name, if no profile here has it."""
        return self._queue.groups.others.foreign_scheduler(key)

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Why pods cannot be read, by uid."""
        return self._handlers.unreadable

    @property
    def groups(self) -> PodGroups:
        """Read only."""
        return self._queue.groups

    @property
    def nominator(self) -> Nominator:
        """Read only."""
        return self._queue.nominator

    def in_flight_events(self) -> Counter[str]:
        """In-flight events by label, and as PodPopped the number of in-flight pods."""
        found = Counter(change.label for change in self._queue.events)
        found[IN_FLIGHT_PODS] = len(self._queue.events)
        return found

    def pod(self, uid: str) -> QueuedPodInfo | None:
        """Read only."""
        return self._queue.pods.get(uid)

    def validate(self) -> None:
        """Raises InvariantBroken if the queue contradicts itself, or a Take waits though there are active pods."""
        self._queue.validate()
        if self._session.waiting is not None and self.counts()[PodState.ACTIVE]:
            raise InvariantBroken("a Take waits though there are pods")
