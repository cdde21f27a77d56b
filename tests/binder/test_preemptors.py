"""An eviction has a reason that still holds, and a time: an order may have lain somewhere for minutes."""

import pytest

from tests.binder.evictions import Script, evict, standing, victim
from tests.binder.world import World, world

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
        ({"nominated": "n2"}, "is nominated to node n2 by now"),
    ],
)
async def test_nobody_goes_for_a_preemptor_that_has_no_use_for_it(preemptor: dict[str, str] | None, why: str) -> None:
    async with world() as w:
        w.pod("low", "n1")
        if preemptor is not None:
            w.pod("high", **preemptor)
        assert why in await evicted(w)
        assert not w.terminating("low")
        assert w.condition_of("low", "DisruptionTarget") is None


async def test_no_victim_is_touched_after_the_window() -> None:
    """The machine is told of an answer long after its time, as when the process was stopped meanwhile."""
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
