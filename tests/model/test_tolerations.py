import pytest

from shared.model.affinity import is_tolerated, repel, tolerates
from shared.model.objects import Taint, Toleration

TAINT = Taint(key="k", value="1", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoSchedule"), True),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(key="x", operator="Exists"), False),
        (Toleration(key="k", value="1"), True),
        (Toleration(key="k", operator="", value="1"), True),
        (Toleration(key="k", value="2"), False),
        (Toleration(key="k"), False),
        (Toleration(key="x", value="1"), False),
        (Toleration(key="k", value="1", effect="NoSchedule"), True),
        (Toleration(key="k", value="1", effect="PreferNoSchedule"), False),
        (Toleration(key="k", operator="Lt", value="2"), False),
        (Toleration(key="k", operator="Gt", value="0"), False),
    ],
)
def test_tolerates(toleration: Toleration, covers: bool) -> None:
    assert tolerates(toleration, TAINT) is covers
    assert is_tolerated(TAINT, [toleration]) is covers


def test_an_empty_value_is_a_value() -> None:
    assert tolerates(Toleration(key="k"), Taint(key="k", effect="NoExecute"))


def test_one_of_many_is_enough() -> None:
    assert is_tolerated(TAINT, [Toleration(key="x", value="1"), Toleration(key="k", operator="Exists")])
    assert not is_tolerated(TAINT, [])


@pytest.mark.parametrize("effect", ["", "Never", "PreferNoSchedule"])
def test_a_taint_of_an_unknown_effect_repels_no_pod(effect: str) -> None:
    assert not repel([Taint(key="a", effect=effect)], [])


@pytest.mark.parametrize("operator", ["Like", "Lt", "Gt"])
def test_a_toleration_of_an_unknown_operator_tolerates_nothing(operator: str) -> None:
    taint = Taint(key="a", value="b", effect="NoSchedule")
    assert repel([taint], [Toleration(key="a", operator=operator, value="b")])


@pytest.mark.parametrize(
    ("operator", "bound", "value", "covers"),
    [
        ("Lt", "2", "1", True),
        ("Lt", "1", "1", False),
        ("Gt", "0", "1", True),
        ("Gt", "1", "1", False),
        ("Gt", "-5", "-4", True),
        ("Lt", "10", "9", True),
        ("Gt", "9223372036854775806", "9223372036854775807", True),
        ("Lt", "9223372036854775808", "1", False),
        ("Lt", "02", "1", False),
        ("Lt", "2", "01", False),
        ("Lt", "+2", "1", False),
        ("Gt", "-0", "1", False),
        ("Lt", "2", "", False),
        ("Lt", "", "1", False),
        ("Lt", "2.5", "1", False),
        ("Like", "2", "1", False),
    ],
)
def test_tolerations_that_compare_look_at_integers(operator: str, bound: str, value: str, covers: bool) -> None:
    toleration, taint = (
        Toleration(key="k", operator=operator, value=bound),
        Taint(key="k", value=value, effect="NoExecute"),
    )
    assert tolerates(toleration, taint, compares=True) is covers
    assert repel([taint], [toleration], compares=True) is not covers
    assert not tolerates(toleration, taint)
