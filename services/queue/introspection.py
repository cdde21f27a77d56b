"""Describes the queue's pods: in pages for `flotilla queue`, and as lines of a log."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from flotilla.events import ANY_EVENT as WITHOUT_EVENTS
from flotilla.events import Action, Registration, Resource
from services.queue.core import QueueCore
from services.queue.scheduling.gang_plugins import DOMAIN_LABELS, GANG_PLUGINS, OWN_TREE
from services.queue.scheduling.left_pods import LeftPod
from services.queue.scheduling.pod_states import IN_FLIGHT, WAITING
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from services.queue.scheduling.queueing_hints import hinting_plugins
from shared.bounded import Listings
from shared.devices.pod_claims import own_claims
from shared.devices.shortages import Shortages
from shared.framework.clusterevents import NAMES, names_of
from shared.framework.profile import Framework
from shared.messages.inspection import (
    LONGEST_TEXT,
    MAX_BODIES_BYTES,
    MAX_PODS,
    MAX_UNREADABLE,
    DescribedPod,
    EvictionsListed,
    ListEvictions,
    ListQueue,
    Move,
    PodLeft,
    QueueListed,
    RecordedPreemption,
)
from shared.messages.queue import name_of_gang
from shared.model.objects import group_of

LISTED_STATES = (
    PodState.ACTIVE,
    PodState.BACKOFF,
    PodState.ERROR_BACKOFF,
    PodState.UNSCHEDULABLE,
    PodState.GATED,
    PodState.IN_FLIGHT,
    PodState.BINDING,
)
"""In the order of listings: the next pod to be popped first."""
BROKEN_GATE = "-"
ANY_EVENT = f"{Resource.ANY}{NAMES[Action.ALL]}"
MAX_LINES = 1000
MAX_SHORTAGES = 32
"""Lines about the claims of one pod."""
DEVICES = "DynamicResources"
MAX_IN_FULL = 8
"""Pods of one name described in full; there may be two while the earlier one terminates."""
_PODS = (Resource.ASSIGNED_POD, Resource.UNSCHEDULABLE_POD)


class Introspection:
    def __init__(self, core: QueueCore, date: Callable[[float], float] = float, began: float = 0.0) -> None:
        """`date` converts the core's times to Unix times. `began`: when the core did."""
        self._core = core
        self._began = began
        self._date = date
        self._listings: Listings[QueuedPodInfo] = Listings()

    def answer(self, request: ListQueue, now: float) -> QueueListed:
        wall = self._date(now)
        limit = min(request.limit, MAX_PODS)
        page = self._listings.page(request.listing, request.after, limit, lambda: self._list(request), now)
        counts = {state.value: count for state, count in self._core.counts().items()}
        if page is None:
            return QueueListed("", wall, counts, 0, [])
        if request.bodies:
            page = page.within(MAX_BODIES_BYTES, lambda info: len(info.encoded(info.pod)))
        in_full = bool(request.name) and page.total <= MAX_IN_FULL
        nodes = self._nominated_nodes()
        pods = [
            describe(
                info,
                nodes.get(info.uid, ""),
                wall - now,
                shortage=self._core.groups.shortage(info),
                in_full=in_full,
                claims=self._shortages(info) if in_full else (),
                with_body=request.bodies,
                has_domains=self._has_domains(info),
                violates=self._core.evictions.violated_by(info.uid) if in_full and info.uid in nodes else (),
            )
            for info in page.items
            if info.state is not PodState.DONE
        ]
        foreign, left = "", None
        if request.name and not page.total:
            left = self._core.left(request.namespace, request.name)
            foreign = self._core.foreign_scheduler(f"{request.namespace}/{request.name}")
        schedulers = self._core.schedulers
        unreadable = {} if request.listing else dict(islice(self._core.unreadable.items(), MAX_UNREADABLE))
        return QueueListed(
            page.listing,
            wall,
            counts,
            page.total,
            pods,
            page.next,
            schedulers,
            foreign,
            {uid: shorten(problem) for uid, problem in unreadable.items()},
            None if left is None else _left(left, wall - now),
        )

    def evictions(self, request: ListEvictions, now: float) -> EvictionsListed:
        """`now` and all times inside are the core's; the answer has Unix times."""
        journal = self._core.evictions
        earliest = now - request.since if request.since else -math.inf
        found = [
            RecordedPreemption(
                self._date(entry.at),
                entry.uid,
                entry.preemption.namespace,
                entry.preemption.name,
                entry.preemption.node,
                entry.priority,
                entry.preemption.victims,
                entry.failure,
                name_of_gang(entry.preemption.gang),
            )
            for entry in journal.since(earliest, now)
        ]
        return EvictionsListed(self._date(now), self._date(self._began), found, journal.dropped)

    def expire(self, now: float) -> None:
        self._listings.expire(now)

    def lines(self, now: float) -> Iterator[str]:
        """Counts by state, then the pods, up to a limit."""
        counts = {state: count for state, count in self._core.counts().items() if count}
        yield f"the queue holds {', '.join(f'{count} {state}' for state, count in counts.items()) or 'nothing'}"
        nodes, lines = self._nominated_nodes(), 0
        for state in LISTED_STATES:
            for info in self._core.pods_in(state):
                if lines == MAX_LINES:
                    yield f"and {sum(counts.values()) - lines} more pods: flotilla dump lists all"
                    return
                lines += 1
                yield _line(describe(info, nodes.get(info.uid, "")), now)

    def _shortages(self, info: QueuedPodInfo) -> tuple[str, ...]:
        """What the claims of a pod lack that no node had devices for."""
        if DEVICES not in info.rejecting_plugins:
            return ()
        devices = self._core.objects.devices
        own = own_claims(info.pod, devices.claims)
        if isinstance(own, str) or not own:
            return ()
        from shared.devices.cel_selectors import evaluate  # it takes a while, and few ask

        found = Shortages(devices.slices.values(), devices.classes, devices.claims.values(), evaluate)
        return tuple(map(shorten, islice(found.of(own), MAX_SHORTAGES)))

    def _has_domains(self, info: QueuedPodInfo) -> bool:
        ref = group_of(info.pod)
        group = None if ref is None else self._core.groups.get(ref)
        return group is not None and bool(group.levels)

    def _nominated_nodes(self) -> dict[str, str]:
        return {uid: node for node, uids in self._core.nominated().items() for uid in uids}

    def _list(self, request: ListQueue) -> Sequence[QueuedPodInfo]:
        return [
            info
            for state in LISTED_STATES
            if not request.states or state.value in request.states
            for info in self._core.pods_in(state)
            if request.namespace in ("", info.pod.namespace) and request.name in ("", info.pod.name)
        ]


def describe(
    info: QueuedPodInfo,
    nominated: str,
    zero: float = 0.0,
    *,
    shortage: str = "",
    in_full: bool = False,
    claims: tuple[str, ...] = (),
    with_body: bool = False,
    has_domains: bool = False,
    violates: tuple[str, ...] = (),
) -> DescribedPod:
    """`nominated`: the pod's nominated node, if any. `in_full`: with its transitions and its whole last message.

    `shortage`: why its group holds it now. `claims`: what its claims lack. `has_domains`: whether its group has
    topology constraints. `violates`: as in DescribedPod. `zero`: the Unix time of the queue's time 0; all times of the
    description are Unix times.
    """
    pod, state = info.pod, info.state
    moves = _moves(info.transitions, zero)
    arrival = _arrival(moves, state)
    return DescribedPod(
        uid=info.uid,
        namespace=pod.namespace,
        name=pod.name,
        scheduler=info.framework.name,
        state=state.value,
        since=zero + info.queued_at if arrival is None else arrival.at,
        first_seen=zero + info.seen_at,
        queued_at=zero + info.queued_at,
        why="" if arrival is None else arrival.why,
        priority=pod.priority,
        attempts=info.attempts,
        rejections=info.rejections,
        errors=info.errors,
        plugins=info.rejecting_plugins,
        gate=BROKEN_GATE if info.gating_plugin == "" else info.gating_plugin or "",
        gate_reason=shorten(shortage or info.gate_reason) if state is PodState.GATED else "",
        requeue_events=awaited_events(info, has_domains=has_domains) if state in WAITING else (),
        backoff_until=zero + info.backoff_ends if state in (PodState.BACKOFF, PodState.ERROR_BACKOFF) else None,
        deadline=zero + info.deadline if state in IN_FLIGHT else None,
        node=info.node if state is PodState.BINDING else "",
        message=info.last_failure if in_full else shorten(info.last_failure),
        failed_at=None if info.failed_at is None else zero + info.failed_at,
        nominated=nominated,
        history=moves if in_full else (),
        created=pod.metadata.creation_timestamp if in_full else None,
        claims=claims,
        body=bytes(info.encoded(pod)) if with_body else b"",
        gang=_gang(info),
        violates=violates,
    )


def _gang(info: QueuedPodInfo) -> str:
    """The pod group with whose other members it stands in the queue, or is held."""
    ref = group_of(info.pod) if info.gang is not None or info.gating_plugin in GANG_PLUGINS else None
    return "" if ref is None else ref.key


def awaited_events(info: QueuedPodInfo, *, has_domains: bool = False) -> tuple[str, ...]:
    """The events of which any may help the pod; for a gated pod, those of the gating plugin only.

    None for a member of a pod group that is held: other members release it.
    """
    if info.gating_plugin in GANG_PLUGINS:
        return ()
    plugins = hinting_plugins(info) if info.gating_plugin is None else (info.gating_plugin,)
    return _awaited_events(info.framework, plugins, has_domains)


@lru_cache(maxsize=256)
def _awaited_events(framework: Framework, plugins: tuple[str, ...], has_domains: bool) -> tuple[str, ...]:
    of_gangs = (*OWN_TREE, DOMAIN_LABELS) if has_domains else OWN_TREE
    registered = {**framework.registrations, **dict.fromkeys(GANG_PLUGINS, of_gangs)}
    if any(plugin not in registered or _registers_nothing(registered[plugin]) for plugin in plugins):
        return (ANY_EVENT,)
    return labels(each for plugin in plugins for each in registered[plugin])


def _registers_nothing(registrations: Iterable[Registration]) -> bool:
    """Whether these are what a plugin without `events` waits for."""
    every = {(each.resource, each.actions) for each in WITHOUT_EVENTS}
    return every <= {(each.resource, each.actions) for each in registrations if each.hint is None}


def labels(registrations: Iterable[Registration]) -> tuple[str, ...]:
    """The registered events by kube-scheduler's labels, each once: `NodeAdd`, `AssignedPodDelete`."""
    found: dict[str, None] = {}
    for registration in registrations:
        for resource in _PODS if registration.resource is Resource.POD else (registration.resource,):
            found |= {f"{resource}{name}": None for name in names_of(registration.actions)}
    return tuple(found)


def shorten(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def _moves(log: tuple[float | str, ...], zero: float) -> tuple[Move, ...]:
    return tuple(
        Move(zero + float(at), str(state), str(why))
        for at, state, why in zip(log[::3], log[1::3], log[2::3], strict=True)
    )


def _left(pod: LeftPod, zero: float) -> PodLeft:
    return PodLeft(pod.uid, pod.created, pod.attempts, _moves(pod.transitions, zero))


def _arrival(moves: tuple[Move, ...], state: PodState) -> Move | None:
    """The move to the current state; later entries of the same state are remarks."""
    found: Move | None = None
    for move in reversed(moves):
        if move.state != state:
            break
        found = move
    return found


def _line(pod: DescribedPod, now: float) -> str:
    parts = [f"pod {pod.namespace}/{pod.name} ({pod.uid}): {pod.state} for {max(0.0, now - pod.since):.1f} s"]
    parts.append(f"tried {pod.attempts}x")
    if pod.gate:
        parts.append(f"gate {pod.gate}" + (f" ({pod.gate_reason})" if pod.gate_reason else ""))
    if rejecting := [plugin for plugin in pod.plugins if plugin != pod.gate]:
        parts.append(f"rejected by {', '.join(rejecting)}")
    if pod.nominated:
        parts.append(f"nominated to {pod.nominated}")
    return ", ".join(parts)
