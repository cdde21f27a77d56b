"""What disruption budgets allow for."""

from collections.abc import Sequence

from shared.cluster.nodetable import NodeTable
from shared.framework.dry_run import Budgets
from shared.model.load import load_of
from shared.model.objects import PodDisruptionBudget
from testing.builders import PodBuilder, node, pod
from tests.plugins.preemption.support import budget

WEB = {"app": "web"}


def violating(pods: Sequence[PodBuilder], *budgets: PodDisruptionBudget) -> list[bool]:
    table = NodeTable()
    table.add_node(node("n1").build())
    for each in budgets:
        table.objects.upsert(each)
    for builder in pods:
        built = builder.build()
        table.add_pod(built.uid, "n1", load_of(built), built.key)
    taken = Budgets(table.objects).left_after([placed for _, placed in table.placed_at(0)])
    return [any(allowed < 0 for allowed in left.values()) for left in taken]


def web(name: str) -> PodBuilder:
    return pod(name).label(WEB)


def test_the_first_ones_use_a_budget_up() -> None:
    assert violating([web("a"), web("b"), web("c")], budget("b", 2, WEB)) == [False, False, True]
    assert violating([web("a"), web("b")]) == [False, False]


def test_every_budget_that_is_about_a_pod_counts_it() -> None:
    front = web("a").label(tier="front")
    budgets = [budget("one", 0, {"tier": "front"}), budget("other", 1, WEB)]
    assert violating([front, web("b")], *budgets) == [True, True]


def test_a_disruption_that_was_counted_in_already_is_free() -> None:
    assert violating([web("a"), web("b")], budget("b", 0, WEB, "a")) == [False, True]
    assert violating([web("a"), web("b")], budget("b", 1, WEB, "a")) == [False, False]


def test_a_budget_about_no_pod() -> None:
    assert violating([web("a")], budget("none", 0, None), budget("empty", 0, {})) == [False]
    assert violating([pod("bare")], budget("b", 0, WEB)) == [False]
    assert violating([pod("a", "elsewhere").label(WEB)], budget("b", 0, WEB)) == [False]
