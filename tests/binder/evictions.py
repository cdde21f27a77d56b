"""The machine that carries out evictions, with an API server that is played by hand."""

from typing import TypeVar

from msgspec.structs import replace

from services.binder.events import Tick
from services.binder.eviction_core import Effect, Event, EvictionCore
from services.binder.eviction_state import Answered, Done, EvictionCall, Found, Reply, Step
from shared.kube.events_and_conditions import ObservedCondition, ObservedPod
from shared.messages.binding import Displaced, Evict, Evicted

E = TypeVar("E")


def victim(name: str, attempt: int = 0) -> Displaced:
    return Displaced(f"uid-{name}", "default", name, attempt)


def evict(
    *victims: Displaced, uid: str = "high", attempt: int = 7, epoch: int = 1, window: float = 0.0, gang: str = ""
) -> Evict:
    return Evict(epoch, attempt, uid, "default", uid, "my-scheduler", "n1", list(victims), window=window, gang=gang)


def standing(
    pod: Displaced, node: str = "n1", *, terminating: bool = False, conditions: tuple[ObservedCondition, ...] = ()
) -> Found:
    return Found(ObservedPod(pod.uid, node, terminating, 3, list(conditions)))


class Script:
    """Feeds the machine and validates it after every event. `asks` are not answered yet."""

    def __init__(self) -> None:
        self.machine = EvictionCore()
        self.now = 1000.0
        self.effects: list[Effect] = []
        self.asks: list[EvictionCall] = []

    def handle(self, event: Event) -> list[Effect]:
        effects = self.machine.handle(event, self.now)
        self.machine.validate()
        self.effects += effects
        self.asks += [effect for effect in effects if isinstance(effect, EvictionCall)]
        return effects

    def answer(self, name: str, reply: Reply) -> list[Effect]:
        """To what was asked about this victim."""
        (ask,) = [ask for ask in self.asks if ask.victim.name == name]
        self.asks.remove(ask)
        return self.handle(Answered(ask, reply))

    def carry_out(self, name: str) -> list[Effect]:
        """A bound victim, step by step, as it goes well."""
        effects: list[Effect] = []
        while (ask := next((ask for ask in self.asks if ask.victim.name == name), None)) is not None:
            effects += self.answer(name, standing(ask.victim) if ask.step is Step.LOOK_UP else Done())
        return effects

    def asked(self) -> dict[str, Step]:
        return {ask.victim.name: ask.step for ask in self.asks}

    def pass_time(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.handle(Tick())

    def told(self) -> list[Evicted]:
        """Without their preemptions."""
        return [replace(evicted, preemption=None) for evicted in self.all(Evicted)]

    def all(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.effects if isinstance(effect, kind)]
