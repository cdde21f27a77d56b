"""Random events in random order: every eviction ends once, the last victim last, and nothing is left over."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.binder.eviction_core import Effect
from services.binder.eviction_state import (
    Answered,
    Done,
    EvictionCall,
    Failed,
    Gone,
    RecordPreempted,
    Reply,
    Step,
)
from shared.messages.binding import Displaced, Evict, Evicted
from tests.binder.evictions import Script, evict, standing, victim

NAMES = st.lists(st.sampled_from("abcd"), max_size=4)
MOODS = st.sampled_from(["well", "well", "well", "gone", "going", "unbound", "busy", "silence", "forbidden"])


def reply_to(ask: EvictionCall, mood: str) -> Reply:
    match mood:
        case "gone":
            return Gone()
        case "busy" | "silence" | "forbidden":
            return Failed(mood, final=mood == "forbidden", maybe_done=mood == "silence")
        case _ if ask.step is not Step.LOOK_UP:
            return Done()
        case _:
            return standing(ask.victim, "" if mood == "unbound" else "n1", terminating=mood == "going")


class AnyWay(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.script = Script()
        self.evicts: dict[int, Evict] = {}
        self.told: dict[int, set[str]] = {}
        self.asked: dict[int, list[str]] = {}

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Evicted):
                self.told.setdefault(effect.attempt, set()).add(effect.failure)
            elif isinstance(effect, EvictionCall):
                last = self.evicts[effect.key[1]].victims[-1].uid
                asked = self.asked.setdefault(effect.key[1], [])
                assert last not in asked or effect.victim.uid == last
                asked.append(effect.victim.uid)

    @rule(names=NAMES, attempt=st.integers(0, 2))
    def evict(self, names: list[str], attempt: int) -> None:
        victims: list[Displaced] = [victim(name, attempt) for name in dict.fromkeys(names)]
        number = len(self.evicts) + 1
        self.evicts[number] = evict(*victims, attempt=number)
        self.take(self.script.handle(self.evicts[number]))

    @precondition(lambda self: self.evicts)
    @rule(data=st.data())
    def evict_again(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(list(self.evicts)))
        self.take(self.script.handle(self.evicts[number]))

    @precondition(lambda self: self.script.asks)
    @rule(data=st.data(), mood=MOODS, again=st.booleans())
    def answer(self, data: st.DataObject, mood: str, again: bool) -> None:
        ask = data.draw(st.sampled_from(self.script.asks))
        if not again:
            self.script.asks.remove(ask)
        self.take(self.script.handle(Answered(ask, reply_to(ask, mood))))

    @rule(seconds=st.sampled_from([0.1, 0.25, 2.0, 8.0]))
    def pass_time(self, seconds: float) -> None:
        self.take(self.script.pass_time(seconds))

    @invariant()
    def each_is_told_alike(self) -> None:
        assert all(len(failures) == 1 for failures in self.told.values())

    @invariant()
    def no_victim_reads_of_one_preemption_twice(self) -> None:
        read = Counter((effect.evict.attempt, effect.victim.uid) for effect in self.script.all(RecordPreempted))
        assert not read or max(read.values()) == 1

    def teardown(self) -> None:
        """Left alone, everything is over in the end."""
        for _ in range(100):
            self.take(self.script.pass_time(0.5))
        assert self.script.machine.held == 0
        assert self.told.keys() == self.evicts.keys()
        self.each_is_told_alike()


TestAnyWay = AnyWay.TestCase
TestAnyWay.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
