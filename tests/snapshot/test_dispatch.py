"""Which binder gets which orders, and what happens to them when it is lost."""

from msgspec.structs import replace

from services.snapshot.dispatch import BINDER_PATIENCE, WORD_PATIENCE, Dispatcher, Sends
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
