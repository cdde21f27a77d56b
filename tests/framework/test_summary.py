from hypothesis import given, settings
from hypothesis import strategies as st

from shared.config.points import ExtensionPoint
from shared.framework.profile import merge
from shared.messages.evaluation import Summary
from tests.framework.plugins import CountNodes, framework

FRAMEWORK = framework({ExtensionPoint.SCORE: ["CountNodes"]}, CountNodes())


@st.composite
def summaries(draw: st.DrawFn) -> Summary:
    ranges = {}
    for name in draw(st.sets(st.sampled_from(["A", "B"]))):
        low = draw(st.integers(-5, 5))
        ranges[name] = (low, low + draw(st.integers(0, 5)))
    names = draw(st.lists(st.sampled_from("abc"), max_size=3))
    plugins = {"CountNodes": {"pods": draw(st.integers(0, 9)), "names": sorted(names)}} if draw(st.booleans()) else {}
    nodes = draw(st.integers(0, 9))
    return Summary(nodes=nodes, feasible=draw(st.integers(0, nodes)), plugins=plugins, ranges=ranges)


@settings(deadline=None, max_examples=150)
@given(st.lists(summaries(), max_size=6), st.integers(0, 6))
def test_shards_may_be_merged_in_any_order_and_grouping(parts: list[Summary], cut: int) -> None:
    whole = merge(FRAMEWORK, parts)
    shuffled = parts[cut:] + parts[:cut]
    assert merge(FRAMEWORK, shuffled) == whole
    assert merge(FRAMEWORK, reversed(parts)) == whole
    assert merge(FRAMEWORK, [merge(FRAMEWORK, parts[:cut]), merge(FRAMEWORK, parts[cut:])]) == whole
    assert merge(FRAMEWORK, [*parts, Summary()]) == whole


@settings(deadline=None, max_examples=100)
@given(st.lists(summaries(), min_size=1, max_size=6))
def test_a_merged_summary_is_that_of_all_nodes(parts: list[Summary]) -> None:
    whole = merge(FRAMEWORK, parts)
    assert whole.nodes == sum(part.nodes for part in parts)
    assert whole.feasible == sum(part.feasible for part in parts)
    for name in ("A", "B"):
        ranges = [part.ranges[name] for part in parts if name in part.ranges]
        expected = (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None
        assert whole.ranges.get(name) == expected
    known = [part.plugins["CountNodes"] for part in parts if part.plugins]
    if known:
        assert whole.plugins["CountNodes"]["pods"] == sum(each["pods"] for each in known)
        assert whole.plugins["CountNodes"]["names"] == sorted(name for each in known for name in each["names"])
    else:
        assert whole.plugins == {}


def test_a_guess_is_right_when_it_leads_to_the_same_scores() -> None:
    known = Summary(nodes=5, feasible=3, plugins={"CountNodes": {"pods": 1}}, ranges={"A": (0, 4)})
    assert known.agrees_with(Summary(nodes=9, feasible=1, plugins=known.plugins, ranges=known.ranges))
    assert not known.agrees_with(None)
    assert not known.agrees_with(Summary(nodes=5, feasible=3, plugins=known.plugins, ranges={"A": (0, 5)}))
    assert not known.agrees_with(Summary(nodes=5, feasible=3, plugins={}, ranges=known.ranges))
