"""The vector kernels against Python integers, one element at a time."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.plugin import ScaleToHighest, match_requirement
from shared.cluster.view import TableView
from shared.model.objects import NodeSelectorRequirement
from shared.model.resources import MAX_AMOUNT
from shared.model.selectors import requirement_matches
from shared.plugins.noderesources import (
    balance,
    by_shape,
    least_allocated,
    most_allocated,
    shape_table,
    weighted_mean,
)
from testing.builders import node
from tests.plugins.cluster import table_of
from tests.plugins.scalar import broken_line, evenness
from tests.plugins.strategies import REQUIREMENTS, VALUES

USED = st.one_of(st.integers(0, 300), st.integers(0, MAX_AMOUNT), st.integers(0, 500 * MAX_AMOUNT))
CAPACITY = st.one_of(st.integers(1, 300), st.integers(1, MAX_AMOUNT))
PAIRS = st.lists(st.tuples(USED, CAPACITY), min_size=1, max_size=8)
POINTS = st.dictionaries(st.integers(0, 100), st.integers(0, 10), min_size=1, max_size=5).map(
    lambda points: [(utilization, 10 * points[utilization]) for utilization in sorted(points)]
)


def column(values: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


@given(PAIRS, POINTS)
def test_shares_of_capacity(pairs: list[tuple[int, int]], points: list[tuple[int, int]]) -> None:
    used, capacity = column([u for u, _ in pairs]), column([c for _, c in pairs])
    assert least_allocated(used, capacity).tolist() == [0 if u > c else (c - u) * 100 // c for u, c in pairs]
    assert most_allocated(used, capacity).tolist() == [min(u, c) * 100 // c for u, c in pairs]
    shape = shape_table(points)
    expected = [broken_line(points, 100 if u > c else u * 100 // c) for u, c in pairs]
    assert by_shape(used, capacity, shape).tolist() == expected
    # Pods x nodes, as when several pods are judged at once.
    requests = column([0, 1, MAX_AMOUNT])
    both = least_allocated(used + requests[:, None], capacity)
    assert both.tolist() == [[0 if u + r > c else (c - u - r) * 100 // c for u, c in pairs] for r in requests.tolist()]


@given(POINTS)
def test_a_shape_is_the_broken_line_through_its_points(points: list[tuple[int, int]]) -> None:
    table = shape_table(points)
    assert table.tolist() == [broken_line(points, utilization) for utilization in range(101)]
    assert all(table[utilization] == score for utilization, score in points)


@pytest.mark.parametrize(
    ("points", "at", "score"),
    [
        ([(0, 0), (100, 100)], 33, 33),
        ([(0, 100), (100, 0)], 33, 67),
        ([(0, 0), (3, 10)], 1, 3),
        ([(0, 10), (3, 0)], 1, 7),
        ([(0, 10), (3, 0)], 2, 4),
        ([(10, 50)], 0, 50),
        ([(10, 50)], 100, 50),
        ([(10, 50), (20, 70)], 9, 50),
        ([(10, 50), (20, 70)], 21, 70),
    ],
)
def test_slopes_truncate_towards_zero(points: list[tuple[int, int]], at: int, score: int) -> None:
    assert shape_table(points)[at] == score


@given(
    st.lists(st.lists(st.integers(0, 100), min_size=3, max_size=3), min_size=1, max_size=5),
    st.lists(st.lists(st.integers(0, 100), min_size=3, max_size=3), min_size=5, max_size=5),
    st.booleans(),
)
def test_weighted_means(scores: list[list[int]], weights: list[list[int]], rounded: bool) -> None:
    """Three nodes; the weights differ from node to node, or are the first node's for all."""
    weights = weights[: len(scores)]
    of_each = weighted_mean(np.array(scores), np.array(weights), rounded=rounded)
    of_all = weighted_mean(np.array(scores), np.array(weights)[:, :1], rounded=rounded)
    for i in range(3):
        assert of_each[i] == mean([line[i] for line in scores], [line[i] for line in weights], rounded)
        assert of_all[i] == mean([line[i] for line in scores], [line[0] for line in weights], rounded)
    both = weighted_mean(np.array([scores, scores[::-1]]), np.array([weights, weights]), rounded=rounded)
    assert both[0].tolist() == of_each.tolist()
    assert both[1].tolist() == weighted_mean(np.array(scores[::-1]), np.array(weights), rounded=rounded).tolist()


def mean(scores: list[int], weights: list[int], rounded: bool) -> int:
    total, weight = sum(score * weight for score, weight in zip(scores, weights, strict=True)), sum(weights)
    if not weight:
        return 0
    return (2 * total + weight) // (2 * weight) if rounded else total // weight


@given(
    st.integers(1, 4).flatmap(
        lambda resources: st.lists(
            st.lists(st.tuples(USED, CAPACITY, st.booleans()), min_size=resources, max_size=resources),
            min_size=1,
            max_size=5,
        )
    )
)
def test_balance(nodes: list[list[tuple[int, int, bool]]]) -> None:
    """`nodes`: for each node and resource the use, the capacity and whether the resource counts."""
    used = np.array([[u for u, _, _ in of_node] for of_node in nodes], dtype=np.int64).T
    capacity = np.array([[c for _, c, _ in of_node] for of_node in nodes], dtype=np.int64).T
    counted = np.array([[counts for _, _, counts in of_node] for of_node in nodes], dtype=np.bool_).T
    some = [evenness([min(u / c, 1.0) for u, c, counts in of_node if counts]) for of_node in nodes]
    every = [evenness([min(u / c, 1.0) for u, c, _ in of_node]) for of_node in nodes]
    assert balance(used, capacity, counted).tolist() == some
    assert balance(used, capacity, None).tolist() == every
    assert balance(used, capacity, np.ones_like(counted)).tolist() == every
    # Pods in front.
    full = np.maximum(used, capacity)
    assert balance(np.stack([used, full]), capacity, counted).tolist() == [some, [100] * len(nodes)]


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6))
def test_scaling_to_the_highest(raw: list[int]) -> None:
    low, high = min(raw), max(raw)
    expected = [100 * score // high if high else 0 for score in raw]
    assert ScaleToHighest()(column(raw), low, high).tolist() == expected
    assert ScaleToHighest(reversed=True)(column(raw), low, high).tolist() == [100 - score for score in expected]


@given(REQUIREMENTS, st.lists(st.none() | VALUES, min_size=1, max_size=6), st.lists(VALUES, max_size=3))
def test_requirements_over_a_column_of_labels(
    requirement: NodeSelectorRequirement, values: list[str | None], before: list[str]
) -> None:
    """`before`: values that the table has seen and no node has any more."""
    table = table_of(*(node(f"n{i}") for i in range(len(values))))
    for value in before:
        table.label_values(requirement.key).id(value)
    labels = [{} if value is None else {requirement.key: value} for value in values]
    for i, own in enumerate(labels):
        table.upsert_node(node(f"n{i}").label(own).build())
    matching = match_requirement(TableView(table), requirement).tolist()
    assert matching == [requirement_matches(requirement, own) for own in labels]
    assert match_requirement(TableView(table, np.zeros(0, dtype=np.intp)), requirement).tolist() == []


def test_every_gt_and_lt_of_odd_values() -> None:
    odd = ["", "-", "+5", "-5", "05", " 5", "5.0", "0x5", "5e0", "9223372036854775807", "9223372036854775808", "five"]
    table = table_of(*(node(f"n{i}").label(k=value) for i, value in enumerate(odd)))
    fits = {"Gt": ["+5", "05", "9223372036854775807"], "Lt": ["-5"]}
    for operator, bound in product(("Gt", "Lt"), ("0", "00")):
        requirement = NodeSelectorRequirement(key="k", operator="Gt" if operator == "Gt" else "Lt", values=[bound])
        matching = match_requirement(TableView(table), requirement)
        assert [value for value, fit in zip(odd, matching, strict=True) if fit] == fits[operator]
