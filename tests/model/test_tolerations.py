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
