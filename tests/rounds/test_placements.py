"""Places: which pod is where, and how little of it is kept twice."""

import random

import pytest

from services.snapshot.state.placements import Placements
from shared.errors import InvariantBroken
from shared.messages.state import Loads
from shared.model.load import load_of
from tests.rounds.support import small_pod, uid


def test_equal_loads_are_one_object() -> None:
    places = Placements()
    places.put("p", "a", load_of(small_pod("p")), assumed=True)
    places.put("q", "b", load_of(small_pod("q")), assumed=False)
    places.put("r", "b", load_of(small_pod("r", cpu="2")), assumed=False)
    assert places["p"].load is places["q"].load
    assert places["r"].load is not places["p"].load
    places.remove("p")
    places.put("s", "a", load_of(small_pod("s")), assumed=False)
    assert places["s"].load is places["q"].load
    places.validate()


def test_a_pod_that_is_put_elsewhere_leaves_its_place() -> None:
    places = Placements()
    places.put("p", "a", load_of(small_pod("p")), assumed=True)
    places.put("p", "b", load_of(small_pod("p", cpu="2")), assumed=False)
    assert (places["p"].node, places["p"].load.requests["cpu"], places["p"].assumed) == ("b", 2000, False)
    assert (list(places.on_node("a")), list(places.on_node("b"))) == ([], ["p"])
    places.validate()


@pytest.mark.parametrize("seed", range(5))
def test_every_index_agrees_after_any_puts_and_removals(seed: int) -> None:
    dice, places = random.Random(seed), Placements()
    plain: dict[str, tuple[str, int]] = {}
    for _ in range(300):
        name = uid(f"p{dice.randrange(20)}")
        if name in plain and dice.random() < 0.4:
            places.remove(name)
            del plain[name]
        else:
            where, cpu = dice.choice("abc"), dice.randint(1, 4)
            places.put(name, where, load_of(small_pod("any", cpu=str(cpu))), assumed=dice.random() < 0.5)
            plain[name] = (where, cpu * 1000)
        places.validate()
        assert {u: (place.node, place.load.requests["cpu"]) for u, place in places.items()} == plain
        for node in "abc":
            assert set(places.on_node(node)) == {u for u, (where, _) in plain.items() if where == node}
        by_value = {place.load.requests["cpu"]: id(place.load) for _, place in places.items()}
        assert {id(place.load) for _, place in places.items()} == set(by_value.values())
        assert (name in places) == (name in plain) == (places.get(name) is not None)


def test_an_index_that_does_not_agree_is_noticed() -> None:
    places = Placements()
    places.put("p", "a", load_of(small_pod("p")), assumed=True)
    places["p"].node = "b"
    with pytest.raises(InvariantBroken):
        places.validate()


def test_a_message_numbers_each_load_once() -> None:
    one, other = load_of(small_pod("p")), load_of(small_pod("q", cpu="2"))
    loads = Loads()
    assert [loads.number(load) for load in (one, other, one)] == [0, 1, 0]
    assert loads.items == [one, other]
