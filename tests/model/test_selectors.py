import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.objects import (
    LabelOperator,
    LabelSelector,
    LabelSelectorRequirement,
    NodeOperator,
    NodeSelector,
    NodeSelectorTerm,
)
from shared.model.selectors import (
    label_selector_matches,
    node_selector_matches,
    node_selector_term_matches,
    parse_int64,
    required_node_affinity_matches,
    requirement_matches,
    unparsable,
)
from testing.builders import expr, node, pod, selector, term

LABELS = {"zone": "a", "cores": "8", "empty": ""}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("0" * 5000 + "1", 1),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("", None),
        ("+", None),
        ("--1", None),
        (" 1", None),
        ("1\n", None),
        ("1_000", None),
        ("0x10", None),
        ("1.0", None),
        ("٣", None),
        ("9" * 5000, None),
    ],
)
def test_parse_int64(text: str, number: int | None) -> None:
    assert parse_int64(text) == number


@given(st.integers(-(2**65), 2**65))
def test_parse_int64_reads_exactly_64_bits(number: int) -> None:
    assert parse_int64(str(number)) == (number if -(2**63) <= number < 2**63 else None)


@pytest.mark.parametrize(
    ("key", "operator", "values", "matches"),
    [
        ("zone", "In", ["a", "b"], True),
        ("zone", "In", ["b"], False),
        ("none", "In", ["a"], False),
        ("none", "In", [""], False),
        ("empty", "In", [""], True),
        ("zone", "NotIn", ["b"], True),
        ("zone", "NotIn", ["a"], False),
        ("none", "NotIn", ["a"], True),
        ("zone", "Exists", [], True),
        ("empty", "Exists", [], True),
        ("none", "Exists", [], False),
        ("zone", "DoesNotExist", [], False),
        ("none", "DoesNotExist", [], True),
        ("cores", "Gt", ["7"], True),
        ("cores", "Gt", ["8"], False),
        ("cores", "Lt", ["+9"], True),
        ("cores", "Lt", ["8"], False),
        ("cores", "Gt", ["few"], False),
        ("zone", "Gt", ["1"], False),
        ("none", "Lt", ["1"], False),
    ],
)
def test_requirements(key: str, operator: NodeOperator, values: list[str], matches: bool) -> None:
    assert requirement_matches(expr(key, operator, *values), LABELS) is matches


def needs(key: str, operator: LabelOperator, *values: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator=operator, values=list(values))


@pytest.mark.parametrize(
    ("labels", "matches"),
    [
        (None, False),
        (selector(), True),
        (selector(zone="a"), True),
        (selector(zone="b"), False),
        (selector(none=""), False),
        (selector({"zone": "a"}, needs("cores", "In", "8")), True),
        (selector({"zone": "a"}, needs("cores", "DoesNotExist")), False),
    ],
)
def test_label_selectors(labels: LabelSelector | None, matches: bool) -> None:
    assert label_selector_matches(labels, LABELS) is matches


@pytest.mark.parametrize(
    ("candidate", "matches"),
    [
        (term(), False),
        (term(expr("zone", "In", "a")), True),
        (term(expr("zone", "In", "a"), expr("cores", "Gt", "8")), False),
        (term(name="n1"), True),
        (term(name="n2"), False),
        (term(expr("zone", "In", "a"), name="n2"), False),
        (NodeSelectorTerm(match_fields=[expr("metadata.name", "NotIn", "n2")]), True),
        (NodeSelectorTerm(match_fields=[expr("metadata.name", "NotIn", "n1")]), False),
        (term(expr("cores", "Gt", "few")), False),
        (term(expr("zone", "In", "a"), expr("none", "Lt", "many")), False),
    ],
)
def test_node_selector_terms(candidate: NodeSelectorTerm, matches: bool) -> None:
    assert node_selector_term_matches(candidate, LABELS, "n1") is matches
    assert node_selector_matches(NodeSelector(node_selector_terms=[candidate]), LABELS, "n1") is matches


def test_a_node_without_a_name_has_no_fields_to_compare() -> None:
    assert node_selector_term_matches(term(name="n1"), LABELS, "")


def test_one_matching_term_is_enough_even_beside_an_unparsable_one() -> None:
    terms = [term(expr("cores", "Gt", "few")), term(), term(expr("zone", "Exists"))]
    assert node_selector_matches(NodeSelector(node_selector_terms=terms), LABELS, "n1")
    assert not node_selector_matches(NodeSelector(node_selector_terms=terms[:2]), LABELS, "n1")
    assert not node_selector_matches(NodeSelector(), LABELS, "n1")


def test_why_a_term_cannot_be_parsed() -> None:
    assert unparsable(term(expr("zone", "In", "x"), expr("cores", "Lt", "4"))) is None
    assert unparsable(term(expr("zone", "Exists"), expr("cores", "Gt", "few"))) == (
        "matchExpressions[1].values[0]: Invalid value: \"few\": for 'Gt', 'Lt' operators, the value must be an integer"
    )


def test_required_node_affinity() -> None:
    target = node("n1").label(LABELS).build()
    in_zone_a, in_zone_b = expr("zone", "In", "a"), expr("zone", "In", "b")
    for candidate, matches in [
        (pod("p"), True),
        (pod("p").node_selector(zone="a", cores="8"), True),
        (pod("p").node_selector(zone="a", cores="9"), False),
        (pod("p").prefer_node(1, in_zone_b), True),
        (pod("p").require_node(in_zone_a), True),
        (pod("p").require_node(in_zone_b, in_zone_a), True),
        (pod("p").require_node(in_zone_b), False),
        (pod("p").require_node(), False),
        (pod("p").node_selector(zone="b").require_node(in_zone_a), False),
        (pod("p").require_node(term(name="n1")), True),
    ]:
        assert required_node_affinity_matches(candidate.build(), target) is matches
