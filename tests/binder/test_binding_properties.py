"""Random events in random order: every order ends once, and nothing is left over."""

from collections import Counter, defaultdict
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from flotilla.plugin import BindingState, PermitPlugin, PostBindPlugin, PreBindPlugin, ReservePlugin
from flotilla.results import SUCCESS, ApiCall, Code, Pause, Permission, PreBindSteps, Status, error, unschedulable
from services.binder.attempts import AttemptState
from services.binder.events import AttemptEnded, Call, Done, Effect, Leave, LookUp, Refused, Unknown, Where
from shared.messages.binding import BindingOrders, BindingOutcomes, Withdraw
from shared.messages.queue import Received
from shared.messages.state import BindingOrder
from shared.model.objects import Pod
from testing.builders import pod
from tests.binder.support import Script, api_call, binding_framework, only

MOODS = st.sampled_from(["", "full", "wait", "forbid", "break", "prepare", "pause"])
UIDS = st.sampled_from(["a", "b"])
RESULTS = st.sampled_from([Done(), Refused(403, "no"), Refused(404, "gone"), Refused(409, "conflict"), Unknown("?")])


class Moody(ReservePlugin, PermitPlugin, PreBindPlugin, PostBindPlugin):
    """Its answers depend on the pod's labels, and it keeps count of what it holds for each pod."""

    name = "Moody"

    def __init__(self) -> None:
        self.holds: Counter[str] = Counter()
        self.taken_back_without = 0

    def reserve(self, state: BindingState, node: str) -> Status:
        if self._mood(state) == "full":
            self.holds[state.pod.uid] += 1  # and is taken back again by those who run it
            return unschedulable("full")
        self.holds[state.pod.uid] += 1
        return SUCCESS

    def unreserve(self, state: BindingState, node: str) -> None:
        if not self.holds[state.pod.uid]:
            self.taken_back_without += 1
        self.holds[state.pod.uid] -= 1

    def permit(self, state: BindingState, node: str) -> Permission:
        mood = self._mood(state)
        if mood == "wait":
            return Permission(Status(Code.WAIT), 5.0)
        return Permission(unschedulable("no") if mood == "forbid" else SUCCESS)

    def pre_bind(self, state: BindingState, node: str) -> Status | list[ApiCall] | PreBindSteps:
        mood = self._mood(state)
        if mood == "pause":
            return self._in_steps()
        if mood == "break":
            return error("broken")
        return [api_call("/1"), api_call("/2")] if mood == "prepare" else []

    def _in_steps(self) -> PreBindSteps:
        for _ in range(3):
            answer = yield api_call("/look")
            if answer.status == 403:
                return unschedulable("no")
            yield Pause(2.0, 15.0)
        return SUCCESS

    def post_bind(self, state: BindingState, node: str) -> None:
        pass

    def _mood(self, state: BindingState) -> str:
        return state.pod.metadata.annotations.get("mood", "")


class AnyWay(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.plugin = Moody()
        self.script = Script(binding_framework(self.plugin))
        self.attempts = 0
        self.orders: dict[tuple[str, int], BindingOrder] = {}
        self.newest: dict[str, int] = {}
        self.calls: list[Call] = []
        self.look_ups: list[LookUp] = []
        self.reports: list[BindingOutcomes] = []
        self.ends: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.told: dict[tuple[str, int], set[str]] = defaultdict(set)
        self.bound: Counter[str] = Counter()
        self.leaving = False

    def take(self, effects: list[Effect]) -> None:
        self.calls += only(Call, effects)
        self.look_ups += only(LookUp, effects)
        for report in only(BindingOutcomes, effects):
            self.reports.append(report)
            for outcome in report.outcomes:
                if outcome.bound or outcome.failed:
                    self.told[outcome.uid, outcome.attempt].add(outcome.reason)
        for end in only(AttemptEnded, effects):
            self.ends[end.order.uid, end.order.attempt].append(end.reason)
            self.bound[end.order.uid] += end.reason == ""

    @rule(uid=UIDS, mood=MOODS, seconds=st.integers(0, 20))
    def order(self, uid: str, mood: str, seconds: int) -> None:
        self.attempts += 1
        order = self.script.an_order(uid, self.attempts, window=float(seconds), pod=binding_pod(uid, mood))
        self.orders[uid, self.attempts] = order
        self.newest[uid] = self.attempts
        self.give(order)

    @precondition(lambda self: self.orders)
    @rule(data=st.data())
    def order_again(self, data: st.DataObject) -> None:
        """A later snapshot has the newest ones only."""
        uid, attempt = data.draw(st.sampled_from(list(self.orders)))
        order = self.orders[uid, attempt]
        self.give(replace(order, epoch=self.script.epoch) if attempt == self.newest[uid] else order)

    def give(self, order: BindingOrder) -> None:
        self.take(self.script.handle(BindingOrders(order.epoch, [order])))

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), result=RESULTS, again=st.booleans())
    def answer(self, data: st.DataObject, result: Any, again: bool) -> None:
        call = data.draw(st.sampled_from(self.calls))
        if not again:
            self.calls.remove(call)
        self.take(self.script.answer(call, result))

    @precondition(lambda self: self.look_ups)
    @rule(data=st.data(), where=st.sampled_from(Where), node=st.sampled_from(["n1", "n2"]), again=st.booleans())
    def look(self, data: st.DataObject, where: Where, node: str, again: bool) -> None:
        look_up = data.draw(st.sampled_from(self.look_ups))
        if not again:
            self.look_ups.remove(look_up)
        self.take(self.script.found(look_up, where, node if where is Where.ON_NODE else ""))

    @rule(uid=UIDS, plugin=st.sampled_from(["Moody", "Stranger"]), allow=st.booleans())
    def permit(self, uid: str, plugin: str, allow: bool) -> None:
        self.take(self.script.permit(plugin, allow, "no", uid))

    @rule(uid=UIDS, ahead=st.integers(-3, 1))
    def withdraw(self, uid: str, ahead: int) -> None:
        """Of an attempt that is here, has been, or comes next."""
        self.take(
            self.script.handle(Withdraw(uid, self.attempts + ahead, "Other", "preempted", epoch=self.script.epoch))
        )

    @precondition(lambda self: self.reports)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        report = data.draw(st.sampled_from(self.reports))
        self.take(self.script.handle(Received(0, report.number)))

    @rule(seconds=st.sampled_from([0.01, 0.5, 2, 10]))
    def pass_time(self, seconds: float) -> None:
        self.take(self.script.pass_time(seconds))

    @rule()
    def epoch(self) -> None:
        self.script.epoch += 1

    @precondition(lambda self: not self.leaving)
    @rule(sure=st.integers(0, 9))
    def leave(self, sure: int) -> None:
        if sure == 9:
            self.leaving = True
            self.take(self.script.handle(Leave()))

    @invariant()
    def each_attempt_ends_once_and_is_told_alike(self) -> None:
        assert all(len(reasons) == 1 for reasons in self.ends.values())
        assert all(len(reasons) == 1 for reasons in self.told.values())
        assert all(self.told[attempt] == set(self.ends[attempt]) for attempt in list(self.told))

    @invariant()
    def what_is_held_is_reserved_and_nothing_else(self) -> None:
        held = Counter(a.order.uid for a in self.script.core._attempts.all() if a.state is not AttemptState.QUEUED)
        assert +self.plugin.holds == held + +self.bound
        assert self.plugin.taken_back_without == 0

    def teardown(self) -> None:
        """Left alone, everything is over in the end."""
        for _ in range(100):
            self.take(self.script.pass_time(0.5))
            for report in self.reports:
                self.script.handle(Received(0, report.number))
        assert self.script.core.held == 0
        assert self.script.core.unacknowledged == 0
        self.each_attempt_ends_once_and_is_told_alike()
        self.what_is_held_is_reserved_and_nothing_else()


def binding_pod(uid: str, mood: str) -> Pod:
    made = pod(uid).uid(uid).build()
    return replace(made, metadata=replace(made.metadata, annotations={"mood": mood}))


TestAnyWay = AnyWay.TestCase
TestAnyWay.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
