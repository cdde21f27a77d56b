"""Which set of victims is chosen for several pods, compared with every possible one."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence

import pytest

from shared.framework.victim_sets import NOBODY, choose, cost_of, undominated, victims_of
from shared.messages.preemption import Candidate, Victim

CASES = range(600)


def victim(uid: str, priority: int = 0, started: float | None = None, **more: object) -> Victim:
    return Victim(uid, f"ns/{uid}", priority, started, **more)  # type: ignore[arg-type]


def drawn(dice: random.Random) -> tuple[list[Candidate], int, dict[str, int]]:
    """Ladders of a few nodes: more pods may need fewer victims, as ladders of kube-scheduler's dry run may."""
    budgets = {} if dice.random() < 0.5 else {"full": 0}
    ladders: list[Candidate] = []
    for n in range(dice.randint(1, 4)):
        there = [
            victim(
                f"v{n}{i}",
                dice.randint(-1, 2),
                dice.choice([None, 1.0, 2.0, 3.0]),
                violates=violates,
                budgets={"full": -1} if violates else {},
            )
            for i, violates in ((i, bool(budgets) and dice.random() < 0.4) for i in range(4))
        ]
        rungs = range(1, dice.randint(1, 4))
        ladders += [Candidate(f"n{n}", dice.sample(there, dice.randint(0, 4)), members) for members in rungs]
    return ladders, dice.randint(1, 7), budgets


def every_choice(ladders: Sequence[Candidate], wanted: int) -> Iterator[list[Candidate]]:
    """At most one rung of each node, for enough pods."""
    by_node: dict[str, list[Candidate | None]] = {}
    for each in ladders:
        by_node.setdefault(each.node, [None]).append(each)
    for picked in itertools.product(*by_node.values()):
        choice = [each for each in picked if each is not None]
        if sum(each.members for each in choice) >= wanted:
            yield choice


def test_the_cheapest_choice_is_found_if_there_is_any() -> None:
    for seed in CASES:
        ladders, wanted, budgets = drawn(random.Random(seed))
        costs = [cost_of(victims_of(each), budgets) for each in every_choice(ladders, wanted)]
        chosen = choose(ladders, wanted, budgets)
        if chosen is None:
            assert not costs, f"seed {seed}"
            continue
        assert len({each.node for each in chosen}) == len(chosen)
        assert sum(each.members for each in chosen) >= wanted
        assert cost_of(victims_of(chosen), budgets) == min(costs), f"seed {seed}"


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_nodes_left_out_by_a_shard_are_not_missed(shards: int) -> None:
    left_out, cases = 0, range(shards, 1200, 8)
    for seed in cases:
        dice = random.Random(seed)
        ladders, _, budgets = drawn(dice)
        for n in range(4, 12):  # some like others, so that there is something to leave out
            alike = dice.choice(ladders).node if ladders else ""
            ladders += [Candidate(f"n{n}", each.victims, each.members) for each in ladders if each.node == alike]
        wanted = dice.randint(1, 4)
        by_shard: list[list[Candidate]] = [[] for _ in range(shards)]
        for each in ladders:
            by_shard[int(each.node[1:]) % shards].append(each)
        kept = [each for of_shard in by_shard for each in undominated(of_shard, wanted, 64)]
        left_out += len(ladders) - len(kept)
        assert _cost(kept, wanted, budgets) == _cost(ladders, wanted, budgets), f"seed {seed}"
        whole = undominated(dice.sample(ladders, len(ladders)), wanted, 64)
        assert undominated(kept, wanted, 64) == whole, f"seed {seed}: another choice than of one shard"
    assert left_out > len(cases) / 2


def test_only_so_many_nodes_are_offered() -> None:
    ladders = [Candidate(f"n{i}", [victim(f"v{i}", priority=i)]) for i in range(9)]
    assert [each.node for each in undominated(ladders, 2, 64)] == ["n0", "n1"]
    assert [each.node for each in undominated(ladders, 5, 3)] == ["n0", "n1", "n2"]


def test_a_budget_counts_down_over_all_nodes() -> None:
    """Each node alone may lose one of the pods that the budget protects."""
    guarded = [victim(f"g{i}", priority=0, budgets={"b": 0}) for i in range(2)]
    free = victim("f", priority=5)
    ladders = [Candidate("n0", [guarded[0]]), Candidate("n1", [guarded[1]]), Candidate("n2", [free])]
    chosen = choose(ladders, 2, {"b": 1})
    assert chosen is not None
    assert cost_of(victims_of(chosen), {"b": 1}).violations == 0
    assert "n2" in {each.node for each in chosen}
    assert [each.node for each in choose(ladders, 2, {"b": 2}) or ()] == ["n0", "n1"]


def test_pods_that_fit_as_it_is_cost_nothing() -> None:
    free, full = Candidate("n0", [], 2), Candidate("n1", [victim("v")], 3)
    assert choose([free, full], 2, {}) == [free]
    assert choose([free, full], 3, {}) == [full]
    assert cost_of([], {}).highest == NOBODY


def _cost(ladders: Sequence[Candidate], wanted: int, budgets: Mapping[str, int]) -> object:
    chosen = choose(ladders, wanted, budgets)
    return None if chosen is None else cost_of(victims_of(chosen), budgets)
