"""An eviction has a reason that still holds, and a time: an order may have lain somewhere for minutes."""

from typing import Any

import pytest

from shared.messages.binding import NominationOf
from tests.binder.evictions import Script, evict, standing, victim
from tests.binder.world import HIGH, World, until, world

pytestmark = pytest.mark.asyncio


async def evicted(w: World) -> str:
    """What is said of the end of an eviction of the bound pod `low` for the pod `high`."""
    w.evict(w.victim("low"), waits=False)
    return (await w.evicted_of()).failure


async def test_victims_go_while_the_preemptor_waits_for_their_place() -> None:
    async with world() as w:
        w.pod("low", "n1")
        w.pod("high", nominated="n1")
        assert await evicted(w) == ""
        assert w.terminating("low")


@pytest.mark.parametrize(
    ("preemptor", "why"),
    [
        (None, "is gone"),
        ({"node": "n2"}, "is on node n2"),
        ({"nominated": "n2"}, "is nominated to node n2 now"),
        ({"priority": 0}, "has priority 0, and the victim 0"),
        ({"priority": -1}, "has priority -1, and the victim 0"),
        ({"policy": "Never"}, "its preemptionPolicy is Never"),
    ],
)
async def test_no_victim_is_evicted_for_a_preemptor_that_does_not_need_it(
    preemptor: dict[str, Any] | None, why: str
) -> None:
    async with world() as w:
        w.pod("low", "n1")
        if preemptor is not None:
            w.pod("high", **preemptor)
        assert why in await evicted(w)
        assert not w.terminating("low")
        assert w.condition_of("low", "DisruptionTarget") is None


async def test_no_victim_is_touched_after_the_window() -> None:
    """The core gets an answer long after its time, as when the process was stopped meanwhile."""
    a = victim("a")
    script = Script()
    script.handle(evict(a, window=5.0))
    script.now += 600.0
    script.answer("a", standing(a))
    assert script.asks == []
    assert "told to go within" in script.told()[0].failure


async def test_the_window_of_the_order_counts_where_it_is_shorter() -> None:
    script = Script()
    script.handle(evict(victim("a"), window=5.0))
    assert script.machine.next_deadline() == script.now + 5.0


async def test_the_snapshot_is_asked_for_this_very_nomination_before_a_victim_is_marked_and_before_it_goes() -> None:
    async with world() as w:
        w.pod("low", "n1")
        w.pod("high", nominated="n1")
        assert await evicted(w) == ""
        assert w.asked == [NominationOf("uid-high", 7, "n1", ["uid-low"])] * 2


async def test_a_marked_victim_stays_once_the_eviction_has_ended_elsewhere() -> None:
    """Another binder had it, too, and reported a failure: the preemptor is tried again."""
    async with world() as w:
        w.stands_until = 1
        w.pod("low", "n1")
        w.pod("high", nominated="n1")
        assert "does not know this nomination" in await evicted(w)
        assert not w.terminating("low")
        condition = w.condition_of("low", "DisruptionTarget")
        assert condition is not None
        assert condition["status"] == "False"


async def test_no_victim_is_evicted_for_an_unknown_nomination() -> None:
    """Forged under its credentials, or revoked while the order lay somewhere."""
    async with world() as w:
        w.stands = False
        w.pod("low", "n1")
        w.pod("high", nominated="n1")
        assert "does not know this nomination" in await evicted(w)
        assert not w.terminating("low")
        assert w.condition_of("low", "DisruptionTarget") is None


@pytest.mark.parametrize("epoch", [None, 0])
async def test_no_victim_is_evicted_while_the_snapshot_does_not_answer(epoch: int | None) -> None:
    """Or one answers that is of an older term than the order."""
    async with world() as w:
        w.snapshot_epoch = epoch
        w.pod("low", "n1")
        w.pod("high", nominated="n1")
        w.evict(w.victim("low"), waits=False)
        await until(lambda: len(w.asked) > 1)
        assert not w.terminating("low")
        w.snapshot_epoch = 2
        assert (await w.evicted_of()).failure == ""
        assert w.terminating("low")


async def test_of_several_victims_only_those_of_lower_priority_go() -> None:
    async with world() as w:
        w.pod("low", "n1")
        w.pod("critical", "n1", priority=HIGH)
        w.pod("high", nominated="n1")
        w.evict(w.victim("critical"), w.victim("low"), waits=False)
        assert "and the victim 1000" in (await w.evicted_of()).failure
        assert not w.terminating("critical")
        assert w.condition_of("critical", "DisruptionTarget") is None


@pytest.mark.parametrize("answers_more", [True, False], ids=["this release", "last release"])
async def test_questions_about_many_victims_share_messages(answers_more: bool) -> None:
    """A snapshot of the last release answers the first question of a message only; the others are asked again."""
    async with world() as w:
        w.answers_more = answers_more
        names = [f"v{i}" for i in range(20)]
        for name in names:
            w.pod(name, "n1")
        w.pod("high", nominated="n1")
        w.evict(*(w.victim(name) for name in names), waits=False)
        assert (await w.evicted_of()).failure == ""
        assert all(w.terminating(name) for name in names)
        asked = NominationOf("uid-high", 7, "n1", [f"uid-{name}" for name in names])
        assert w.asked == [asked] * 40
        assert (w.messages_asked < 40) is answers_more
