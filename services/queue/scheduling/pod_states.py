"""The states of the queue's pods: a container for each state, and the one way from state to state."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count

from services.queue.scheduling.counters import Counters
from services.queue.scheduling.in_flight_events import InFlightEvents
from services.queue.scheduling.pod_groups import PodGroups
from services.queue.scheduling.pod_queues import DeadlineQueue, PodContainer, PodHeap, UnschedulablePods
from services.queue.scheduling.queued_pod_info import TRANSITIONS, PodState, QueuedPodInfo
from shared.errors import InvariantBroken

IN_FLIGHT = frozenset({PodState.IN_FLIGHT, PodState.BINDING})
"""With cycle or a binder: events are collected until the pod comes back."""
WAITING = frozenset({PodState.UNSCHEDULABLE, PodState.GATED})


class PodStates:
    def __init__(self, groups: PodGroups, events: InFlightEvents, counters: Counters, in_flight_timeout: float) -> None:
        self._groups, self._events, self._counters = groups, events, counters
        numbers = count(1)
        self.active = PodHeap(lambda info: info.sort_key, numbers)
        self.backoff = PodHeap(lambda info: (info.backoff_until, info.sort_key), numbers)
        self.error_backoff = PodHeap(lambda info: (info.backoff_until, info.sort_key), numbers)
        self.unschedulable = UnschedulablePods()
        self.gated = UnschedulablePods()
        self.in_flight = DeadlineQueue(in_flight_timeout)
        self.binding = DeadlineQueue(in_flight_timeout)
        self.by_state: Mapping[PodState, PodContainer] = {
            PodState.ACTIVE: self.active,
            PodState.BACKOFF: self.backoff,
            PodState.ERROR_BACKOFF: self.error_backoff,
            PodState.UNSCHEDULABLE: self.unschedulable,
            PodState.GATED: self.gated,
            PodState.IN_FLIGHT: self.in_flight,
            PodState.BINDING: self.binding,
        }

    def move(
        self, info: QueuedPodInfo, state: PodState, now: float, why: str, gating_plugin: str | None = None
    ) -> None:
        """The one way from state to state, along TRANSITIONS."""
        before = info.state
        if state not in TRANSITIONS[before]:
            raise InvariantBroken(f"pod {info.pod.key}: {before} to {state} ({why}); before: {info.history()}")
        if before is not PodState.NEW:
            self.by_state[before].discard(info)
        if gating_plugin is not None or info.gating_plugin is not None:
            self._counters.set_gating_plugin(info, gating_plugin)
        if (before in IN_FLIGHT) is not (state in IN_FLIGHT):
            self._events.end(info.uid) if before in IN_FLIGHT else self._events.start(info.uid)
        info.state = state
        info.record(now, state, why)
        if before is PodState.NEW or info.gang is not None or info.uid in self._groups:
            self._groups.moved(info, now)
        if state is PodState.DONE:
            return
        if state is PodState.ACTIVE and info.active_at is None:
            info.active_at = now
        self._counters.incoming[state, why] += 1
        self.by_state[state].add(info)

    @contextmanager
    def taken_out(self, info: QueuedPodInfo, now: float) -> Iterator[None]:
        """Takes the pod out of its container while what it is ordered or grouped by changes."""
        container = None if info.state in IN_FLIGHT else self.by_state[info.state]
        if container is not None:
            container.discard(info)
        yield
        self._groups.moved(info, now)
        if container is not None:
            container.add(info)

    def validate(self, pods: Mapping[str, QueuedPodInfo]) -> None:
        """Every pod is in one container and knows its state."""
        for state, container in self.by_state.items():
            container.validate()
            found = list(container)
            if len(found) != len(container):
                raise InvariantBroken(f"{len(found)} pods are {state}, counted as {len(container)}")
            for info in found:
                if info.state is not state or pods.get(info.uid) is not info:
                    raise InvariantBroken(f"pod {info.pod.key} is in the container of {state}: {info.history()}")
                if (info.gating_plugin is not None) != (state is PodState.GATED):
                    raise InvariantBroken(f"pod {info.pod.key}: {state}, gate {info.gating_plugin}: {info.history()}")
        if sum(map(len, self.by_state.values())) != len(pods):
            raise InvariantBroken(f"{len(pods)} pods are known, but not as many are in the containers")
        self._events.validate({info.uid for state in IN_FLIGHT for info in self.by_state[state]})
