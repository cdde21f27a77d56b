"""Which binder gets which orders, and what happens to them when it is lost."""

from msgspec.structs import replace

from services.snapshot.dispatch import BINDER_PATIENCE, LATE, WORD_PATIENCE, Dispatcher, Sends
from shared.messages.binding import BinderBeat, BindingOutcome
from shared.messages.state import EPOCH_SHIFT, BindingOrder


def order(number: int) -> BindingOrder:
    return BindingOrder(1, number, f"uid-{number}", "default", f"p{number}", "default-scheduler", "a", 1e9)


def beat(name: str, room: int = 10, incarnation: str = "first") -> BinderBeat:
    return BinderBeat(name, incarnation, room)


def sent(sends: Sends) -> dict[str, list[int]]:
    return {name: [o.attempt for o in orders] for name, orders in sends}


def done(number: int) -> BindingOutcome:
    return BindingOutcome(f"uid-{number}", number)


def test_orders_wait_until_there_is_a_binder() -> None:
    dispatcher = Dispatcher()
    assert dispatcher.give([order(1)], 0.0) == []
    assert sent(dispatcher.beat(beat("one"), 1.0)) == {"one": [1]}
    assert (dispatcher.waiting, dispatcher.held) == (0, 1)


def test_nobody_gets_more_than_it_has_room_for() -> None:
    dispatcher = Dispatcher()
    dispatcher.beat(beat("one", room=2), 0.0)
    assert sent(dispatcher.give([order(n) for n in (1, 2, 3)], 0.0)) == {"one": [1, 2]}
    assert sent(dispatcher.word("one", done(1), 0.1)) == {"one": [3]}
    assert sent(dispatcher.beat(beat("two", room=5), 0.2)) == {}


def test_binders_share_what_there_is() -> None:
    dispatcher = Dispatcher()
    dispatcher.beat(beat("one"), 0.0)
    dispatcher.beat(beat("two"), 0.0)
    shares = sent(dispatcher.give([order(n) for n in range(6)], 0.0))
    assert {name: len(numbers) for name, numbers in shares.items()} == {"one": 3, "two": 3}


def test_the_orders_of_a_lost_binder_go_to_others_first() -> None:
    dispatcher = Dispatcher()
    dispatcher.beat(beat("one", room=2), 0.0)
    dispatcher.give([order(n) for n in (1, 2, 3)], 0.0)
    assert sent(dispatcher.tick(BINDER_PATIENCE)) == {}
    assert sent(dispatcher.tick(BINDER_PATIENCE + 0.1)) == {}
    assert (dispatcher.waiting, dispatcher.held) == (3, 0)
    assert sent(dispatcher.beat(beat("two", room=2), 3.0)) == {"two": [1, 2]}


def test_a_binder_that_began_anew_has_lost_its_orders() -> None:
    dispatcher = Dispatcher()
    dispatcher.beat(beat("one"), 0.0)
    dispatcher.give([order(1)], 0.0)
    assert sent(dispatcher.beat(beat("one"), 0.5)) == {}
    assert sent(dispatcher.beat(beat("one", incarnation="second"), 1.0)) == {"one": [1]}


def test_what_there_is_no_word_on_is_sent_again() -> None:
    dispatcher = Dispatcher()
    dispatcher.beat(beat("one"), 0.0)
    dispatcher.give([order(1), order(2)], 0.0)
    dispatcher.word("one", done(2), 1.0)
    dispatcher.beat(beat("one"), WORD_PATIENCE)
    assert sent(dispatcher.tick(WORD_PATIENCE)) == {"one": [1]}
    assert sent(dispatcher.tick(WORD_PATIENCE)) == {}


def test_what_waits_for_a_permit_is_not_sent_again_before_that_is_over() -> None:
    dispatcher = Dispatcher()
    dispatcher.beat(beat("one"), 0.0)
    dispatcher.give([order(1)], 0.0)
    assert dispatcher.word("one", BindingOutcome("uid-1", 1, until=60.0), 0.1) == []
    dispatcher.beat(beat("one"), 59.0)
    assert sent(dispatcher.tick(59.0)) == {}
    dispatcher.beat(beat("one"), 64.0)
    assert sent(dispatcher.tick(64.0)) == {"one": [1]}


def test_a_word_on_what_nobody_has_is_passed_over() -> None:
    dispatcher = Dispatcher()
    assert dispatcher.word("one", done(1), 0.0) == []
    dispatcher.beat(beat("one"), 0.0)
    dispatcher.give([order(1)], 0.0)
    dispatcher.word("one", done(1), 0.1)
    assert dispatcher.word("one", done(1), 0.2) == []
    assert (dispatcher.waiting, dispatcher.held) == (0, 0)


def test_in_a_new_term_every_order_is_given_anew() -> None:
    dispatcher = Dispatcher()
    dispatcher.beat(beat("one"), 0.0)
    dispatcher.give([order(1)], 0.0)
    dispatcher.clear()
    assert sent(dispatcher.give([order(1)], 0.1)) == {"one": [1]}


def test_who_has_lost_an_order_is_not_believed_that_it_failed() -> None:
    dispatcher = Dispatcher()
    dispatcher.beat(beat("one", room=1), 0.0)
    dispatcher.give([order(1)], 0.0)
    dispatcher.beat(beat("two"), BINDER_PATIENCE)
    assert sent(dispatcher.tick(BINDER_PATIENCE + 0.1)) == {"two": [1]}
    failed, waits = BindingOutcome("uid-1", 1, "rejected"), BindingOutcome("uid-1", 1, until=20.0)
    assert not dispatcher.believes("one", failed)
    assert dispatcher.word("one", failed, 3.0) == []
    assert dispatcher.held == 1
    assert not dispatcher.believes("two", failed), "the other one may have asked for it to be bound"
    assert dispatcher.believes("two", waits)
    assert dispatcher.believes("one", done(1)), "it may have bound it before"
    assert dispatcher.word("one", done(1), 3.1) == []
    assert dispatcher.held == 0


def test_of_an_order_from_an_earlier_term_only_that_it_is_bound_is_believed() -> None:
    attempt = 1 << EPOCH_SHIFT
    dispatcher = Dispatcher()
    dispatcher.beat(beat("one"), 0.0)
    dispatcher.give([replace(order(1), epoch=2, attempt=attempt)], 0.0)
    preempted = BindingOutcome("uid-1", attempt, "preempted")
    for _ in range(2):
        assert not dispatcher.believes("one", preempted)
        assert dispatcher.word("one", preempted, 0.1) == []
    assert dispatcher.believes("one", BindingOutcome("uid-1", attempt))
    dispatcher.give([replace(order(2), epoch=2, attempt=2 << EPOCH_SHIFT)], 0.0)
    assert dispatcher.believes("one", BindingOutcome("uid-2", 2 << EPOCH_SHIFT, "preempted"))


FIRST = 1 << EPOCH_SHIFT
"""An attempt that only this term can have given to anybody."""


def handed_back() -> BindingOutcome:
    return BindingOutcome("uid-1", FIRST, "the binder is leaving", handed_back=True)


def with_order(**fields: float) -> Dispatcher:
    """The first of two binders has it, and takes no more."""
    dispatcher = Dispatcher()
    dispatcher.beat(beat("one"), 0.0)
    dispatcher.give([replace(order(1), attempt=FIRST, **fields)], 0.0)
    dispatcher.beat(beat("one", room=0), 0.1)
    return dispatcher


def test_an_order_that_is_handed_back_goes_to_another_binder_at_once() -> None:
    dispatcher = with_order()
    dispatcher.beat(beat("two"), 0.1)
    assert sent(dispatcher.hand_back("one", handed_back(), 0.2) or []) == {"two": [FIRST]}
    assert dispatcher.hand_back("one", handed_back(), 0.3) == [], "it is with another one by now"
    assert dispatcher.believes("two", BindingOutcome("uid-1", FIRST, "no such node")), "nobody else can have bound it"


def test_an_order_that_is_handed_back_waits_for_a_binder() -> None:
    dispatcher = with_order()
    assert dispatcher.hand_back("one", handed_back(), 0.2) == []
    assert sent(dispatcher.beat(beat("two"), 0.3)) == {"two": [FIRST]}


def test_an_order_that_is_handed_back_too_late_is_nobodys() -> None:
    assert with_order(deadline=30.0).hand_back("one", handed_back(), 29.0) is None


def test_the_orders_of_a_binder_that_says_it_is_gone_go_to_others_at_once() -> None:
    dispatcher = with_order()
    dispatcher.beat(beat("two"), 0.1)
    assert sent(dispatcher.beat(BinderBeat("one", "first", 0, gone=True), 0.2)) == {"two": [FIRST]}
    assert not dispatcher.believes("two", BindingOutcome("uid-1", FIRST, "conflict")), "the first may have bound it"
    assert not dispatcher.knows(beat("one"))


FAILED = BindingOutcome("uid-1", FIRST, "refused")
GONE = BindingOutcome("uid-1", FIRST, "the pod is gone", gone=True)


class Binders:
    """Which tell of order 1, and beat whenever time passes."""

    def __init__(self, *names: str) -> None:
        self.dispatcher = Dispatcher()
        self.now = 0.0
        self.living = dict.fromkeys(names, "first")
        self._beat()
        self.dispatcher.give([replace(order(1), attempt=FIRST, deadline=30.0)], self.now)

    def pass_time(self, until: float) -> None:
        while self.now < until:
            self.now = min(self.now + 0.5, until)
            self._beat()
            self.dispatcher.tick(self.now)

    def holder(self) -> str:
        return next(iter(self.dispatcher._holder.values()), "")

    def tells(self, name: str, outcome: BindingOutcome = FAILED, incarnation: str = "first") -> bool:
        """Whether it is believed."""
        believed = self.dispatcher.believes(name, outcome, incarnation)
        self.dispatcher.word(name, outcome, self.now, incarnation)
        return believed

    def _beat(self) -> None:
        for name, incarnation in self.living.items():
            self.dispatcher.beat(beat(name, 9, incarnation), self.now)


def taken_over() -> Binders:
    """`one` had the order and is not heard of for a while; `two` has it now."""
    binders = Binders("one")
    del binders.living["one"]
    binders.living["two"] = "first"
    binders.pass_time(3.0)
    assert binders.holder() == "two"
    return binders


def test_a_failure_is_believed_once_all_who_had_the_order_have_told_of_theirs() -> None:
    binders = taken_over()
    assert not binders.tells("two"), "the other one may be about to bind it"
    binders.living["one"] = "first"
    assert not binders.tells("one"), "and so may this one, for all that is known of it"
    assert binders.tells("two")
    assert (binders.holder(), binders.dispatcher.doubtful()) == ("", [])


def test_what_another_process_of_the_same_name_says_counts_for_itself_alone() -> None:
    binders = taken_over()
    assert not binders.tells("one", incarnation="second")
    assert not binders.tells("two")
    assert not binders.tells("one", incarnation="first")
    assert not binders.tells("two", incarnation="zeroth")
    assert binders.tells("two")


def test_who_gets_its_own_order_back_is_believed() -> None:
    binders = taken_over()
    del binders.living["two"]
    binders.living["one"] = "first"
    binders.pass_time(6.0)
    assert binders.holder() == "one"
    assert not binders.tells("one")
    assert not binders.tells("two")
    assert binders.tells("one")


def test_that_a_pod_is_gone_is_believed_of_anybody() -> None:
    binders = taken_over()
    assert binders.tells("one", GONE)
    assert (binders.holder(), binders.dispatcher.held) == ("", 0)
    again = taken_over()
    assert again.tells("two", GONE)
    assert again.holder() == ""


def test_a_failure_is_not_believed_while_the_order_waits_for_somebody() -> None:
    """The next one that has room would bind a pod that is forgotten."""
    binders = Binders("one")
    del binders.living["one"]
    binders.pass_time(3.0)
    assert binders.dispatcher.waiting == 1
    assert not binders.tells("one")
    binders.living["two"] = "first"
    binders.pass_time(4.0)
    assert binders.tells("two"), "the other one has told of its failure"


def test_a_pod_is_looked_up_once_all_others_have_ended_for_long_enough() -> None:
    binders = Binders("one")
    binders.living = {"one": "second", "two": "first"}
    binders.pass_time(0.5)
    teller = binders.holder()
    incarnation = binders.living[teller]
    binders.pass_time(0.5 + LATE - 0.5)
    assert not binders.tells(teller, incarnation=incarnation)
    assert binders.dispatcher.doubtful() == []
    binders.pass_time(0.5 + LATE)
    assert not binders.tells(teller, incarnation=incarnation), "what it knows may be older than the last call"
    assert [order.uid for order in binders.dispatcher.doubtful()] == ["uid-1"]
    assert binders.dispatcher.doubtful() == []
    assert not binders.tells(teller, incarnation=incarnation), "it is looked up by now"


def test_who_has_said_that_it_is_gone_has_ended() -> None:
    binders = Binders("one")
    binders.dispatcher.beat(replace(beat("one"), gone=True), 0.0)
    binders.living = {"two": "first"}
    binders.pass_time(LATE)
    assert not binders.tells("two")
    assert [order.uid for order in binders.dispatcher.doubtful()] == ["uid-1"]


def test_who_is_only_not_heard_of_may_bind_until_the_deadline() -> None:
    binders = taken_over()
    binders.pass_time(29.5)
    assert not binders.tells("two")
    assert binders.dispatcher.doubtful() == []
    binders.pass_time(33.5)
    assert binders.holder() == ""
    assert not binders.tells("two"), "the snapshot looks it up"


def test_two_processes_of_one_name_have_not_ended_while_both_are_heard_of() -> None:
    binders = taken_over()
    for i in range(60):
        binders.living["one"] = ("first", "second")[i % 2]
        binders.pass_time(binders.now + 0.25)
        binders.tells("two")
        assert binders.dispatcher.doubtful() == []


def test_who_had_it_in_an_earlier_term_nobody_knows() -> None:
    dispatcher = Dispatcher()
    dispatcher.beat(beat("one"), 0.0)
    dispatcher.give([replace(order(1), attempt=FIRST, epoch=2)], 0.0)
    assert not dispatcher.believes("one", FAILED, "first")
    dispatcher.word("one", FAILED, 20.0, "first")
    assert (dispatcher.doubtful(), dispatcher.held) == ([], 1)
    assert dispatcher.believes("one", GONE, "first")
