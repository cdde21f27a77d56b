"""The binder's two machines, as one for whoever runs them: bindings and evictions do not touch each other."""

from collections.abc import Sequence

from services.binder import events
from services.binder.core import BinderCore
from services.binder.eviction import eviction_core, eviction_state
from services.binder.eviction.eviction_core import Evicting
from shared.messages.binding import Evict

Event = events.Event | eviction_core.Event
Effect = events.Effect | eviction_core.Effect


class Cores:
    def __init__(self, binding: BinderCore, evictions: Evicting) -> None:
        self._binding = binding
        self._evictions = evictions

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        match event:
            case Evict() | eviction_state.Answered() | eviction_state.Heard():
                return self._evictions.handle(event, now)
            case events.Tick() | events.Leave():
                return [*self._binding.handle(event, now), *self._evictions.handle(event, now)]
            case _:
                return self._binding.handle(event, now)

    def next_deadline(self) -> float:
        return min(self._binding.next_deadline(), self._evictions.next_deadline())

    def validate(self) -> None:
        self._binding.validate()
        self._evictions.validate()
