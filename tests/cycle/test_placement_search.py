"""The search by itself, on small clusters that a few lines describe, against all placements."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from services.cycle.round.ladder_merge import Placement
from services.cycle.round.placement_search import MAX_STEPS, Offered, PlacementSearch

Where = Counter[tuple[str, str]]
"""How many pods of each class are on each node."""


@dataclass
class Cluster:
    """`free`: by node; `size`: by class. No pod of a class goes to a node with one that it keeps `apart` from, nor, if
    it wants to be `near` to another class, to one without it.
    """

    free: dict[str, int]
    size: dict[str, int]
    wanted: dict[str, int]
    apart: set[tuple[str, str]] = field(default_factory=set)
    near: dict[str, str] = field(default_factory=dict)

    def admits(self, class_id: str, node: str, where: Where) -> bool:
        used = sum(self.size[each] * count for (each, there), count in where.items() if there == node)
        others = {each for (each, there), count in where.items() if there == node and count}
        kept_out = any((each, class_id) in self.apart or (class_id, each) in self.apart for each in others)
        near = self.near.get(class_id)
        return used + self.size[class_id] <= self.free[node] and not kept_out and (near is None or near in others)

    def offered(self, where: Where) -> dict[str, Offered]:
        return {class_id: self._offered(class_id, where) for class_id in self.wanted}

    def _offered(self, class_id: str, where: Where) -> Offered:
        options = [Placement(node, 0, 0) for node in self.free if self.admits(class_id, node, where)]
        room = 0
        for node, free in self.free.items():
            used = sum(self.size[each] * count for (each, there), count in where.items() if there == node)
            alone = (class_id, class_id) in self.apart
            room += min(1, (free - used) // self.size[class_id]) if alone else (free - used) // self.size[class_id]
        return Offered(options, room)

    @cached_property
    def most(self) -> int:
        """How many members have room together, by all placements."""
        return self._most(Counter(), {})

    def _most(self, where: Where, known: dict[frozenset[tuple[tuple[str, str], int]], int]) -> int:
        state = frozenset(where.items())
        if state not in known:
            known[state] = best = sum(where.values())
            for class_id, count in self.wanted.items():
                if sum(n for (each, _), n in where.items() if each == class_id) == count:
                    continue
                for node in self.free:
                    if self.admits(class_id, node, where):
                        best = max(best, self._most(where + Counter([(class_id, node)]), known))
            known[state] = best
        return known[state]


def search(cluster: Cluster, least: int, *, any_order: bool = True, steps: int = MAX_STEPS) -> PlacementSearch:
    found = PlacementSearch(cluster.wanted, least, any_order=any_order, steps=steps)
    while not found.outcome:
        where = Counter((class_id, placement.node) for class_id, placement in found.placed)
        found.take(cluster.offered(where))
    return found


def random_cluster(dice: random.Random) -> Cluster:
    classes = "abc"[: dice.randint(1, 3)]
    pairs = [(one, other) for one in classes for other in classes]
    return Cluster(
        free={f"n{i}": dice.randint(0, 6) for i in range(dice.randint(1, 4))},
        size={each: dice.randint(1, 4) for each in classes},
        wanted={each: dice.randint(1, 3) for each in classes},
        apart=set(dice.sample(pairs, dice.choice([0, 0, 1, 2]) if len(pairs) > 1 else 0)),
        near={each: dice.choice(classes) for each in classes if dice.random() < 0.15},
    )


def test_a_placement_is_found_if_and_only_if_there_is_one() -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    dice, ended = random.Random(seed), 0
    for _ in range(1000):
        cluster = random_cluster(dice)
        least = dice.randint(1, sum(cluster.wanted.values()))
        found = search(cluster, least, any_order=bool(cluster.near))
        if found.outcome == "found":
            assert len(found.placed) >= least
            _check(cluster, found.placed)
        else:
            assert found.is_cut or cluster.most < least, cluster
        ended += not found.is_cut
    assert ended >= 980


def _check(cluster: Cluster, placed: list[tuple[str, Placement]]) -> None:
    where: Where = Counter()
    for class_id, placement in placed:
        assert cluster.admits(class_id, placement.node, where)
        where[class_id, placement.node] += 1
    assert all(cluster.wanted[class_id] >= n for class_id, n in Counter(each for each, _ in placed).items())


def test_the_hardest_class_goes_first_and_not_where_only_others_can_be() -> None:
    """The large pods fit on one node only, which is the best for the small ones too."""
    cluster = Cluster({"n0": 8, "n1": 3}, {"small": 1, "large": 8}, {"small": 3, "large": 1})
    found = search(cluster, 4, any_order=False)
    assert [(class_id, placement.node) for class_id, placement in found.placed] == [
        ("large", "n0"),
        *[("small", "n1")] * 3,
    ]
    assert found.steps == 4


def test_a_member_is_taken_back_that_leaves_too_little_room() -> None:
    """Bins of 6 and 5 for sizes 3, 3 and 5: the node with less room must be left for the 5."""
    cluster = Cluster({"n0": 5, "n1": 6}, {"five": 5, "three": 3}, {"five": 1, "three": 2})
    found = search(cluster, 3, any_order=False)
    assert sorted((class_id, placement.node) for class_id, placement in found.placed) == [
        ("five", "n0"),
        ("three", "n1"),
        ("three", "n1"),
    ]


def test_the_search_ends_after_a_number_of_steps_and_says_so() -> None:
    free = {f"n{i}": 5 for i in range(6)}
    cluster = Cluster(free, {"two": 2, "three": 3}, {"two": 7, "three": 6})
    found = search(cluster, 13, any_order=True, steps=50)
    assert (found.outcome, found.steps, found.is_cut) == ("none", 50, True)


def test_nodes_that_are_not_offered_cut_the_search() -> None:
    found = PlacementSearch({"a": 2}, 2, any_order=False)
    offer: Mapping[str, Offered] = {"a": Offered([Placement("n0", 1, 0)], 9, complete=False)}
    found.take(offer)
    found.take({"a": Offered([], 0)})
    assert (found.outcome, found.is_cut) == ("none", True)
