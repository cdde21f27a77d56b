"""Which evictions are asked for again when there is a new binder."""

from msgspec.structs import replace

from services.snapshot.dispatch.binders import PendingEvictions
from services.snapshot.dispatch.order_dispatcher import BINDER_TIMEOUT, OrderDispatcher
from services.snapshot.state.preemption_victims import EVICTION_WINDOW
from shared.messages.binding import BinderBeat, Displaced, Evict, Evicted


def an_evict(name: str, attempt: int) -> Evict:
    return Evict(1, attempt, f"uid-{name}", "default", name, "default-scheduler", "n", [], [], window=EVICTION_WINDOW)


def names(pending: PendingEvictions, now: float) -> list[str]:
    return [evict.name for evict in pending.resend(now)]


def test_an_eviction_without_a_reported_end_is_pending() -> None:
    pending = PendingEvictions()
    first, second = an_evict("a", 1), an_evict("b", 2)
    pending.add(first, 0.0)
    pending.add(second, 0.0)
    assert names(pending, 1.0) == ["a", "b"]
    assert [evict.window for evict in pending.resend(1.0)] == [EVICTION_WINDOW - 1.0] * 2, "what is left of it"
    assert pending.end(Evicted("uid-a", 1))
    assert not pending.end(Evicted("uid-b", 1))
    assert names(pending, 1.0) == ["b"]
    assert pending.end(Evicted("uid-b", 2, "no right to"))
    assert not pending.end(Evicted("uid-b", 2)), "by another binder"
    assert pending.resend(1.0) == []


def test_after_some_time_it_is_not_asked_for_any_more() -> None:
    pending = PendingEvictions()
    pending.add(an_evict("a", 1), 0.0)
    pending.add(an_evict("b", 2), 5.0)
    assert names(pending, EVICTION_WINDOW) == ["b"]
    assert names(pending, EVICTION_WINDOW + 5.0) == []


def test_a_binder_is_new_until_it_is_heard_of_and_again_once_it_was_lost() -> None:
    dispatcher = OrderDispatcher(lambda attempt, now: None)
    first, second = BinderBeat("one", "first", 10), BinderBeat("one", "second", 10)
    assert not dispatcher.is_alive((first.binder, first.incarnation))
    dispatcher.on_beat(first, 0.0)
    assert dispatcher.is_alive((first.binder, first.incarnation))
    assert not dispatcher.is_alive((second.binder, second.incarnation))
    dispatcher.tick(BINDER_TIMEOUT + 0.1)
    assert not dispatcher.is_alive((first.binder, first.incarnation))


def test_an_eviction_is_known_with_its_victims_and_no_others() -> None:
    pending = PendingEvictions()
    victims = [Displaced("uid-v", "default", "v"), Displaced("uid-w", "default", "w")]
    pending.add(replace(an_evict("a", 1), victims=victims), 0.0)
    assert pending.has_victims("uid-a", 1, ["uid-v"])
    assert pending.has_victims("uid-a", 1, ["uid-w", "uid-v"])
    assert not pending.has_victims("uid-a", 1, ["uid-v", "uid-x"])
    assert not pending.has_victims("uid-a", 2, ["uid-v"])
    pending.end(Evicted("uid-a", 1))
    assert not pending.has_victims("uid-a", 1, ["uid-v"])
