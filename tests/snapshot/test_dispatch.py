"""Which binder gets which orders, what happens to them when it is lost, and whose word on them is enough."""

from msgspec.structs import replace

from services.snapshot.dispatch.order_dispatcher import (
    BINDER_TIMEOUT,
    MIN_WINDOW,
    REPORT_TIMEOUT,
    OrderDispatcher,
    Sends,
    messages,
)
from services.snapshot.events import BindingReport
from services.snapshot.state.ledger import AttemptKey, bounded
from shared.cluster.devices import ClaimAllocation, DeviceDecision
from shared.messages.binding import LONGEST_WAIT, OVERDUE, BinderBeat, BindingOrders, BindingOutcome
from shared.messages.codec import encode
from shared.messages.limits import MAX_BODY
from shared.messages.state import EPOCH_SHIFT, Assignment, BindingOrder
from shared.model.devices import AllocatedConfiguration, AllocationResult, DeviceAllocation, OpaqueConfiguration

FIRST = 1 << EPOCH_SHIFT
"""The first attempt of the first term."""
ONE, TWO = ("one", "first"), ("two", "first")
V, W = "7", "8"
"""Versions of a pod."""


def attempt(number: int) -> AttemptKey:
    return f"uid-{number}", FIRST + number


class Ledger:
    """Plays the ledger: `windows` end at these times, and nothing is in it that has none."""

    def __init__(self) -> None:
        self.windows: dict[AttemptKey, float] = {}
        self.versions: dict[AttemptKey, str] = {}
        self.epoch = 1

    def order(self, of: AttemptKey, now: float) -> BindingOrder | None:
        left = self.windows.get(of, now) - now
        if left <= 0:
            return None
        uid, number = of
        version = self.versions.get(of, V)
        return BindingOrder(Assignment(uid, "default", uid, "p", "a", version), self.epoch, number, left)


class Play:
    """A dispatcher with its ledger and some binders, which beat whenever time passes."""

    def __init__(self, *names: str, room: int = 10) -> None:
        self.ledger = Ledger()
        self.dispatcher = OrderDispatcher(self.ledger.order)
        self.now = 0.0
        self.room = room
        self.living = dict.fromkeys(names, "first")
        self.beat()

    def give(self, *numbers: int, window: float = 30.0) -> dict[str, list[int]]:
        attempts = [attempt(number) for number in numbers]
        self.ledger.windows |= dict.fromkeys(attempts, self.now + window)
        return sent(self.dispatcher.dispatch(attempts, self.now))

    def beat(self) -> dict[str, list[int]]:
        sends: Sends = []
        for name, incarnation in self.living.items():
            sends += self.dispatcher.on_beat(BinderBeat(name, incarnation, self.room), self.now)
        return sent(sends)

    def pass_time(self, until: float) -> list[tuple[float, dict[str, list[int]]]]:
        """What was sent when."""
        told = []
        while self.now < until:
            self.now = min(self.now + 0.5, until)
            sends = (self.beat(), sent(self.dispatcher.tick(self.now)))
            told += [(self.now, each) for each in sends if each]
        return told

    def tells(self, process: tuple[str, str], outcome: BindingOutcome) -> dict[str, list[int]]:
        self.dispatcher.on_outcome(process, outcome, self.now)
        return sent(self.dispatcher.fill(self.now))

    def is_sole(self, process: tuple[str, str], version: str = V) -> bool:
        return self.dispatcher.is_sole(process, attempt(1), version)


def sent(sends: Sends) -> dict[str, list[int]]:
    return {name: [order.attempt - FIRST for order in orders] for name, orders in sends}


def told(number: int = 1, reason: str = "", **fields: object) -> BindingOutcome:
    return BindingOutcome(*attempt(number), reason, **fields)  # type: ignore[arg-type]


def test_orders_wait_until_there_is_a_binder() -> None:
    play = Play()
    assert play.give(1) == {}
    play.living["one"] = "first"
    assert play.beat() == {"one": [1]}
    assert (play.dispatcher.waiting, play.dispatcher.held) == (0, 1)


def test_no_binder_gets_more_orders_than_it_has_room_for() -> None:
    play = Play("one", room=2)
    assert play.give(1, 2, 3) == {"one": [1, 2]}
    assert play.tells(ONE, told(1)) == {"one": [3]}


def test_orders_that_wait_go_together_once_several_have_ended() -> None:
    play = Play("one", room=3)
    play.give(1, 2, 3, 4, 5, 6)
    for number in (1, 2):
        play.dispatcher.on_outcome(ONE, told(number), play.now)
    assert play.tells(ONE, told(3)) == {"one": [4, 5, 6]}


def test_orders_are_shared_among_binders() -> None:
    shares = Play("one", "two").give(*range(6))
    assert {name: len(numbers) for name, numbers in shares.items()} == {"one": 3, "two": 3}


def test_the_orders_of_a_lost_binder_go_to_others_first() -> None:
    play = Play("one", room=2)
    play.give(1, 2, 3)
    play.living = {}
    assert play.pass_time(BINDER_TIMEOUT + 0.5) == []
    assert (play.dispatcher.waiting, play.dispatcher.held) == (3, 0)
    play.living = {"two": "first"}
    assert play.beat() == {"two": [1, 2]}


def test_a_restarted_binder_has_lost_its_orders() -> None:
    play = Play("one")
    play.give(1)
    assert play.beat() == {}
    play.living["one"] = "second"
    assert play.beat() == {"one": [1]}


def test_an_order_without_a_report_is_sent_again_to_the_same_process_under_a_new_number() -> None:
    play = Play("one")
    play.give(1, 2)
    play.tells(ONE, told(2))
    assert play.pass_time(REPORT_TIMEOUT) == [(REPORT_TIMEOUT, {"one": [1]})]
    messages = [play.dispatcher.addressed("one", 1, []) for _ in range(2)]
    assert [message.incarnation for message in messages] == ["first", "first"]
    assert 0 < messages[0].number < messages[1].number


def test_an_order_that_waits_for_a_permit_is_not_sent_again_before_the_wait_ends() -> None:
    play = Play("one")
    play.give(1, window=100.0)
    play.tells(ONE, told(wait=60.0))
    assert play.pass_time(62.5) == []
    assert play.pass_time(63.0) == [(63.0, {"one": [1]})]


def test_a_late_report_of_a_wait_does_not_keep_a_renewed_order_from_being_sent_again() -> None:
    play = Play("one")
    play.give(1, window=100.0)
    play.ledger.versions[attempt(1)] = W
    assert play.give(1, window=100.0) == {"one": [1]}
    play.tells(ONE, told(wait=60.0, version=V))
    assert play.pass_time(REPORT_TIMEOUT) == [(REPORT_TIMEOUT, {"one": [1]})]
    play.tells(ONE, told(wait=60.0, version=W))
    assert play.pass_time(REPORT_TIMEOUT + 60.0) == []


def test_no_binder_can_report_an_endless_wait() -> None:
    assert bounded(float("nan")) == bounded(-1.0) == bounded(1e30) == LONGEST_WAIT
    assert bounded(5.0) == 5.0


def test_an_outcome_of_an_order_without_a_holder_is_ignored() -> None:
    play = Play("one")
    assert play.tells(ONE, told(1)) == {}
    play.give(1)
    play.tells(ONE, told(1))
    assert play.tells(ONE, told(1)) == {}
    assert (play.dispatcher.waiting, play.dispatcher.held) == (0, 0)


def test_a_new_term_dispatches_every_order_again() -> None:
    play = Play("one")
    play.give(1)
    play.dispatcher.clear()
    assert play.give(1) == {"one": [1]}


def test_an_order_that_is_given_twice_is_held_once() -> None:
    """A commit that comes while a term begins is dispatched by itself, and again with all that stands in the ledger."""
    play = Play("one", "two")
    play.give(1)
    assert play.give(1) == {}
    assert play.dispatcher.held == 1
    play.living = {}
    play.pass_time(100.0)
    assert play.dispatcher.held == 0


# Windows


def test_a_repeated_order_has_what_is_left_of_its_window() -> None:
    """Extended or not: the dispatcher knows of no deadline of its own."""
    play = Play("one")
    play.give(1)
    play.ledger.windows[attempt(1)] = 200.0  # a permit's wait
    play.now = 100.0
    play.living = {"two": "first"}
    play.beat()
    ((name, (order,)),) = play.dispatcher.tick(play.now)
    assert (name, order.window) == ("two", 100.0)


def test_an_order_that_left_the_ledger_is_not_sent_again_and_takes_no_room() -> None:
    play = Play("one", room=1)
    play.give(1)
    play.give(2)
    del play.ledger.windows[attempt(1)]
    assert play.pass_time(REPORT_TIMEOUT + 0.5) == [(REPORT_TIMEOUT + 0.5, {"one": [2]})]
    assert play.dispatcher.held == 1


# Versions


def test_an_order_with_another_version_goes_at_once_to_the_binder_that_has_it() -> None:
    play = Play("one", "two", room=1)
    play.give(1)
    play.ledger.versions[attempt(1)] = W
    assert play.give(1) == {"one": [1]}
    assert play.is_sole(ONE, W), "with that version it was sent once"
    assert not play.is_sole(ONE, V)


# Whose word is enough


def taken_over() -> Play:
    """`one` had the order and is not heard of for a while; `two` has it now."""
    play = Play("one")
    play.give(1)
    play.living = {"two": "first"}
    play.pass_time(3.0)
    assert play.dispatcher.holds(TWO, attempt(1))
    return play


def test_the_sole_holder_of_an_order_is_believed() -> None:
    play = Play("one")
    play.give(1)
    assert play.is_sole(ONE)
    assert not play.is_sole(("one", "second")), "another process of its name knows nothing"
    assert not play.is_sole(TWO)


def test_of_an_order_that_two_processes_had_neither_is_the_sole_holder() -> None:
    play = taken_over()
    assert not play.is_sole(ONE)
    assert not play.is_sole(TWO)


def test_a_process_that_had_an_order_twice_may_have_forgotten_what_it_did() -> None:
    play = Play("one")
    play.give(1)
    play.pass_time(REPORT_TIMEOUT)
    assert not play.is_sole(ONE)


def test_an_order_of_an_earlier_term_has_no_sole_holder() -> None:
    play = Play("one")
    play.ledger.epoch = 2
    play.give(1)
    assert not play.is_sole(ONE)


def test_any_binder_may_report_a_pod_bound_or_gone() -> None:
    for outcome in (told(), told(reason="the pod is gone", gone=True)):
        play = taken_over()
        play.tells(ONE, outcome)
        assert play.dispatcher.held == 0


def test_the_failure_of_a_process_that_lost_the_order_changes_nothing() -> None:
    play = taken_over()
    play.tells(ONE, told(reason="refused"))
    assert play.dispatcher.held == 1
    play.tells(TWO, told(reason="refused"))
    assert play.dispatcher.held == 0


# Handed back


HANDED_BACK = told(reason="the binder is leaving", handed_back=True)


def leaving(**fields: float) -> Play:
    """The first of two binders has it, and takes no more."""
    play = Play("one", room=1)
    play.give(1, **fields)
    play.dispatcher.on_beat(BinderBeat("one", "first", 0), 0.1)
    return play


def test_an_order_that_is_handed_back_goes_to_another_binder_at_once() -> None:
    play = leaving()
    play.dispatcher.on_beat(BinderBeat("two", "first", 9), 0.1)
    assert sent(play.dispatcher.hand_back(ONE, HANDED_BACK, 0.2) or []) == {"two": [1]}
    assert play.dispatcher.hand_back(ONE, HANDED_BACK, 0.3) == [], "it is with another one by now"


def test_an_order_that_is_handed_back_waits_for_a_binder() -> None:
    play = leaving()
    assert play.dispatcher.hand_back(ONE, HANDED_BACK, 0.2) == []
    assert sent(play.dispatcher.on_beat(BinderBeat("two", "first", 9), 0.3)) == {"two": [1]}


def test_an_order_that_is_handed_back_too_late_goes_to_no_other_binder() -> None:
    assert leaving(window=30.0).dispatcher.hand_back(ONE, HANDED_BACK, 30.1 - MIN_WINDOW) is None


def test_the_orders_of_a_binder_that_says_it_is_gone_go_to_others_at_once() -> None:
    play = leaving()
    play.dispatcher.on_beat(BinderBeat("two", "first", 9), 0.1)
    assert sent(play.dispatcher.on_beat(BinderBeat("one", "first", 0, gone=True), 0.2)) == {"two": [1]}
    assert not play.dispatcher.is_alive(("one", "first"))
    assert not play.is_sole(TWO), "the first may have called on Bind"


def test_an_outcome_of_an_old_order_is_none_of_a_new_one() -> None:
    play = Play("one")
    play.give(1)
    play.tells(ONE, replace(told(reason="no"), attempt=FIRST))
    assert play.dispatcher.held == 1


def test_only_the_holder_reports_on_an_order_and_any_binder_on_one_that_none_holds() -> None:
    """The binder that may extend the deadline may also end the wait."""
    play = Play("one")
    play.give(1)
    outcomes = [told(1, wait=5.0), told(2, wait=5.0)]
    reports = [play.dispatcher.report_of(process, outcome) for process in (ONE, TWO) for outcome in outcomes]
    one, two = (BindingReport(outcome, sure=False) for outcome in outcomes)
    assert reports == [one, two, None, two]


def test_an_attempt_whose_deadline_has_passed_at_its_binder_is_fenced_though_it_was_the_only_one() -> None:
    play = Play("one")
    play.give(1)
    overdue = told(1, OVERDUE, version="")
    assert play.dispatcher.report_of(ONE, overdue) == BindingReport(overdue, sure=False, sole=True)
    assert play.dispatcher.report_of(TWO, overdue) == BindingReport(overdue, sure=False, sole=False)


def test_orders_that_wait_without_any_binder_are_missed_since_its_last_beat() -> None:
    play = Play("one")
    assert play.dispatcher.no_binder(play.now) == ""
    play.give(1)
    play.living.clear()
    play.pass_time(2.0)
    assert play.dispatcher.no_binder(play.now) == "", "it may still beat"
    play.pass_time(7.0)
    assert play.dispatcher.no_binder(play.now) == "nothing has been heard from a binder for 7 s, 1 order waits"
    play.give(2)
    assert play.dispatcher.no_binder(play.now) == "nothing has been heard from a binder for 7 s, 2 orders wait"
    play.living["two"] = "first"
    play.beat()
    assert play.dispatcher.no_binder(play.now) == ""


def test_where_no_binder_was_ever_heard_of_seconds_count_from_the_first_look() -> None:
    play = Play()
    play.pass_time(3.0)
    assert play.dispatcher.no_binder(play.now) == "", "nothing waits"
    play.give(1)
    assert play.dispatcher.no_binder(play.now) == "nothing has been heard from a binder for 2 s, 1 order waits"


def test_orders_that_wait_for_a_binder_with_room_are_not_missed() -> None:
    play = Play("one", room=0)
    play.give(1)
    assert play.dispatcher.no_binder(play.now) == ""


def test_orders_with_large_parameters_for_drivers_go_in_messages_that_fit() -> None:
    opaque = OpaqueConfiguration(driver="d", parameters={"text": "x" * 40_000})
    allocation = AllocationResult(devices=DeviceAllocation(config=[AllocatedConfiguration(opaque=opaque)]))
    devices = DeviceDecision([ClaimAllocation("default/c", "c", allocation)])
    orders = [
        BindingOrder(Assignment(f"uid-{number}", "default", "p", "p", "a", V, devices=devices), 1, FIRST, 30.0)
        for number in range(300)
    ]
    parts = list(messages(orders))
    assert [order for part in parts for order in part] == orders
    assert len(parts) < 10
    assert all(len(encode(BindingOrders(1, part))) <= MAX_BODY for part in parts)
