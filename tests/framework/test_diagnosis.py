import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flotilla.results import Status, unresolvable, unschedulable
from shared.framework.profile import NO_NODES, merge_rejections, unfit_message
from shared.messages.evaluation import Rejections

CPU, MEMORY = "Insufficient cpu", "Insufficient memory"
TAINT = "node(s) had untolerated taint(s)"


@pytest.mark.parametrize(
    ("nodes", "pre_filter", "rejections", "message"),
    [
        (0, None, [], NO_NODES),
        (0, unschedulable("whatever"), [], NO_NODES),
        (3, None, [], "0/3 nodes are available:"),
        (3, None, [Rejections(unschedulable(CPU), 3)], f"0/3 nodes are available: 3 {CPU}."),
        (
            5,
            None,
            [Rejections(unresolvable(TAINT), 1), Rejections(unschedulable(CPU), 4)],
            f"0/5 nodes are available: 1 {TAINT}, 4 {CPU}.",
        ),
        (
            5,
            None,
            [Rejections(unschedulable(CPU, MEMORY), 2), Rejections(unschedulable(CPU), 3)],
            f"0/5 nodes are available: 2 {MEMORY}, 5 {CPU}.",
        ),
        # The parts are sorted as text: ten comes before two.
        (
            12,
            None,
            [Rejections(unschedulable(CPU), 2), Rejections(unschedulable(MEMORY), 10)],
            f"0/12 nodes are available: 10 {MEMORY}, 2 {CPU}.",
        ),
        (4, unresolvable("no such claim"), [], "0/4 nodes are available: no such claim."),
        (4, unresolvable("one", "two"), [Rejections(unschedulable(CPU), 4)], "0/4 nodes are available: one, two."),
    ],
)
def test_the_message(nodes: int, pre_filter: Status | None, rejections: list[Rejections], message: str) -> None:
    assert unfit_message(nodes, pre_filter, rejections) == message


STATUSES = st.sampled_from(
    [unschedulable(CPU).by("Fit"), unschedulable(CPU).by("Other"), unschedulable(CPU, MEMORY), unresolvable(CPU)]
)
PARTS = st.lists(st.builds(Rejections, STATUSES, st.integers(1, 9)), max_size=8)


@settings(deadline=None, max_examples=100)
@given(PARTS, st.integers(0, 8))
def test_rejections_of_several_shards_add_up(parts: list[Rejections], cut: int) -> None:
    whole = {part.status: part.nodes for part in merge_rejections(parts)}
    assert whole == {status: sum(p.nodes for p in parts if p.status == status) for status in {p.status for p in parts}}
    in_two = merge_rejections([*merge_rejections(parts[cut:]), *merge_rejections(parts[:cut])])
    assert {part.status: part.nodes for part in in_two} == whole
    assert unfit_message(9, None, in_two) == unfit_message(9, None, parts)
