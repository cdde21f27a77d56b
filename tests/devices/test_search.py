"""The search: what it finds, that its shortcuts change nothing, and that it ends."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.devices.errors import AllocationError
from shared.devices.offers import OfferedDevice
from shared.devices.pools import Slices
from shared.devices.requests import PreparedRequest
from shared.devices.search import Search
from shared.devices.selectors import Selectors
from shared.devices.state import DeviceState
from shared.model.devices import ResourceClaim, ResourceSlice
from tests.devices.builders import (
    CLASSES,
    NODE,
    allocation,
    cel,
    claim,
    device,
    everything,
    exactly,
    first_of,
    slice_of,
)


def evaluate(expression: str, candidate: OfferedDevice) -> bool | str:
    """`x`: the device has the attribute x; `x!`: the same, but devices without it are an error."""
    found = expression.rstrip("!") in candidate.device.attributes
    return found if found or not expression.endswith("!") else f"CEL runtime error: no such key: {expression}"


class PlainSearch(Search):
    """Without shortcuts."""

    def _may_skip(self, claim: int, request: int) -> bool:
        return False

    def _are_enough(self, claim: int, request: PreparedRequest, start: int, needed: int) -> bool:
        return True

    def _is_hopeless(self) -> bool:
        return False


class Counting(Search):
    """Tells how many steps it took."""

    @property
    def steps(self) -> int:
        return self._steps


def run(
    kind: type[Search],
    slices: Sequence[ResourceSlice],
    claims: Sequence[ResourceClaim],
    state: DeviceState | None = None,
) -> list[list[str]] | str | None:
    """By claim `request=device`; None if there is no solution; the error."""
    pools = Slices(slices).pools_for(NODE)
    try:
        search = kind(NODE, pools, claims, state or DeviceState(), CLASSES, Selectors(evaluate))
        found = search.run()
    except AllocationError as error:
        return str(error)
    if found is None:
        return None
    return [[f"{taken.request.full_name}={taken.device.id.device}" for taken in each] for each in found.devices]


def steps(slices: Sequence[ResourceSlice], claims: Sequence[ResourceClaim]) -> int:
    pools = Slices(slices).pools_for(NODE)
    search = Counting(NODE, pools, claims, DeviceState(), CLASSES, Selectors(evaluate))
    search.run()
    return search.steps


def gpus(count: int, **fields: Any) -> ResourceSlice:
    """Devices with distinct attributes, as drivers publish them."""
    return slice_of([device(f"g{n:02}", attributes={"d/uuid": {"string": str(n)}}, **fields) for n in range(count)])


# What is found


def test_devices_are_taken_in_order_and_every_request_begins_with_the_first_one() -> None:
    slices = [gpus(4)]
    assert run(Search, slices, [claim(exactly("a", 2)), claim(exactly("b"))]) == [["a=g00", "a=g01"], ["b=g02"]]


def test_devices_in_use_are_left_out() -> None:
    state = DeviceState([allocation("g00", "g02")])
    assert run(Search, [gpus(4)], [claim(exactly("a", 2))], state) == [["a=g01", "a=g03"]]


def test_an_earlier_request_takes_another_device_when_a_later_one_needs_its_first_choice() -> None:
    slices = [slice_of([device("both", attributes={"x": {"int": 1}}), device("plain")])]
    wanted = claim(exactly("a"), exactly("b", selectors=cel("x")))
    assert run(Search, slices, [wanted]) == [["a=plain", "b=both"]]


def test_the_first_alternative_that_allows_the_rest_is_chosen() -> None:
    wanted = claim(first_of("a", {"count": 4}, {"count": 3}, {"count": 1}), exactly("b", 2))
    assert run(Search, [gpus(4)], [wanted]) == [["a/s2=g00", "b=g01", "b=g02"]]


def test_distinct_attribute_remembers_one_value_a_request() -> None:
    values = [device(f"g{n}", attributes={"v": {"string": value}}) for n, value in enumerate("aba")]
    wanted = claim(exactly("r", 3), constraints=[{"distinctAttribute": "d/v"}])
    assert run(Search, [slice_of(values)], [wanted]) == [["r=g0", "r=g1", "r=g2"]]
    assert run(Search, [slice_of([values[0], values[2], values[1]])], [wanted]) is None


def test_admin_access_takes_a_device_in_use_but_once_a_claim() -> None:
    state = DeviceState([allocation("g00")])
    watching = claim(exactly("a", adminAccess=True), exactly("b", adminAccess=True))
    assert run(Search, [gpus(2)], [watching], state) == [["a=g00", "b=g01"]]


def counting_slices(devices: Sequence[dict[str, Any]], memory: str) -> list[ResourceSlice]:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}
    counters = [{"name": "set", "counters": {"memory": {"value": memory}}}]
    return [
        slice_of([], "counters", pool=pool, sharedCounters=counters),
        slice_of(devices, "devices", pool=pool),
    ]


def drawing(name: str, memory: str, **fields: Any) -> dict[str, Any]:
    counters = [{"counterSet": "set", "counters": {"memory": {"value": memory}}}]
    return device(name, consumesCounters=counters, **fields)


def test_counters_of_a_device_refused_by_a_taint_stay_drawn() -> None:
    taints = [{"key": "bad", "effect": "NoSchedule"}]
    slices = counting_slices([drawing("g0", "6Gi", taints=taints), drawing("g1", "6Gi")], "10Gi")
    assert run(Search, slices, [claim(exactly("a"))]) is None
    tolerant = exactly("a", tolerations=[{"operator": "Exists"}])
    assert run(Search, slices, [claim(tolerant)]) == [["a=g0"]]


def test_an_alternative_meets_the_counters_that_an_earlier_one_has_left_drawn() -> None:
    """So a shortcut that spares looking at the tainted device would change the answer."""
    taints = [{"key": "bad", "effect": "NoSchedule"}]
    devices = [drawing("g0", "6Gi", taints=taints), drawing("g1", "6Gi", attributes={"x": {"int": 1}})]
    wanted = claim(first_of("a", {"count": 2}, {"count": 1, "selectors": cel("x")}))
    assert run(Search, counting_slices(devices, "10Gi"), [wanted]) is None
    assert run(Search, counting_slices(devices, "12Gi"), [wanted]) == [["a/s1=g1"]]


def test_counters_of_allocated_devices_count() -> None:
    slices = counting_slices([drawing("g0", "6Gi"), drawing("g1", "6Gi"), drawing("g2", "4Gi")], "10Gi")
    assert run(Search, slices, [claim(exactly("a"))], DeviceState([allocation("g1")])) == [["a=g2"]]


def test_a_shareable_device_serves_several_requests_of_a_claim() -> None:
    shared = device("g", allowMultipleAllocations=True, capacity={"memory": {"value": "10Gi"}})
    asked: dict[str, Any] = {"capacity": {"requests": {"memory": "4Gi"}}}
    both = claim(exactly("a", **asked), exactly("b", **asked))
    assert run(Search, [slice_of([shared])], [both]) == [["a=g", "b=g"]]
    assert run(Search, [slice_of([shared])], [claim(exactly("a", 2, **asked))]) is None
    three = claim(*(exactly(name, **asked) for name in "abc"))
    assert run(Search, [slice_of([shared])], [three]) is None


def test_all_means_at_least_one_device() -> None:
    assert run(Search, [gpus(2)], [claim(everything("a"))]) == [["a=g00", "a=g01"]]
    assert run(Search, [gpus(2)], [claim(everything("a", selectors=cel("none")))]) is None


def test_an_error_of_a_selector_counts_once_a_device_is_reached() -> None:
    slices = [slice_of([device("with", attributes={"x": {"int": 1}}), device("without")])]
    assert run(Search, slices, [claim(exactly("a", selectors=cel("x!")))]) == [["a=with"]]
    error = "claim default/c: selector #0: CEL runtime error: no such key: x!"
    assert run(Search, slices, [claim(exactly("a", 2, selectors=cel("x!")))]) == error


def test_an_allocation_holds_32_devices() -> None:
    assert run(Search, [gpus(40)], [claim(exactly("a", 33))]) == (
        "claim default/c: number of requested devices 33 exceeds the claim limit of 32"
    )
    other = claim(exactly("a", 30), first_of("b", {"count": 3}, {"count": 2}))
    found = run(Search, [gpus(40)], [other])
    assert isinstance(found, list)
    assert found[0][-1] == "b/s1=g31"


# That it ends


@pytest.mark.parametrize("identical", [True, False])
def test_one_device_too_few_is_known_at_once(identical: bool) -> None:
    devices = slice_of([device(f"g{n:02}") for n in range(31)]) if identical else gpus(31)
    assert run(Search, [devices], [claim(exactly("a", 32))]) is None
    assert steps([devices], [claim(exactly("a", 32))]) <= 1000


def test_two_requests_for_more_than_there_is_are_soon_known_to_fail() -> None:
    wanted = [claim(exactly("a", 8), exactly("b", 9), constraints=[{"matchAttribute": "d/numa"}])]
    devices = slice_of([device(f"g{n:02}", attributes={"numa": {"int": n % 2}}) for n in range(32)])
    assert run(Search, [devices], wanted) is None
    assert steps([devices], wanted) < 10_000


def test_devices_with_counters_and_a_constraint_are_soon_known_not_to_suffice() -> None:
    wanted = [claim(exactly("a", 9), exactly("b", 8), constraints=[{"matchAttribute": "d/v"}])]
    for values in (1, 2):
        devices = [drawing(f"g{n:02}", "1Gi", attributes={"v": {"int": n % values}}) for n in range(16)]
        slices = counting_slices(devices, "40Gi")
        assert run(Search, slices, wanted) is None
        assert steps(slices, wanted) < 10_000


def test_pools_of_one_name_have_the_counters_of_the_first_that_was_looked_at() -> None:
    """Also if that was for a request that could not be served, so looking for enough devices spares it not."""
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}

    def of(driver: str, memory: str) -> list[ResourceSlice]:
        counters = [{"name": "set", "counters": {"memory": {"value": memory}}}]
        devices = [drawing(f"{driver}0", "2Gi", attributes={driver: {"int": 1}})]
        return [
            slice_of([], f"{driver}-counters", driver=driver, pool=pool, sharedCounters=counters),
            slice_of(devices, f"{driver}-devices", driver=driver, pool=pool),
        ]

    slices = [*of("d", "4Gi"), *of("e", "1Gi")]
    wanted = claim(first_of("a", {"count": 2, "selectors": cel("d")}, {"count": 1, "selectors": cel("e")}))
    assert run(PlainSearch, slices, [wanted]) == [["a/s1=e0"]]
    assert run(Search, slices, [wanted]) == [["a/s1=e0"]]


def test_a_search_that_no_shortcut_helps_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.devices.search.MAX_STEPS", 20_000)
    devices = [device(f"g{n:02}", attributes={"v": {"int": n // 3}}) for n in range(24)]
    alike = [{"matchAttribute": "d/v"}]
    wanted = [claim(exactly("a", 2), constraints=alike, name=f"c{n}") for n in range(9)]
    assert run(Search, [slice_of(devices)], wanted) == "node n: timed out trying to allocate devices"


def numbered(count: int, values: int, **fields: Any) -> list[dict[str, Any]]:
    """Devices of different capacity, so that none can stand in for another, with an attribute of few values."""
    return [
        device(f"g{n:02}", attributes={"v": {"int": n % values}}, capacity={"m": {"value": str(100 + n)}}, **fields)
        for n in range(count)
    ]


SHARED: dict[str, Any] = {"allowMultipleAllocations": True}


@pytest.mark.parametrize(
    ("devices", "wanted"),
    [
        (numbered(16, 1), claim(exactly("a", 9), exactly("b", 8))),
        (numbered(16, 2), claim(exactly("a", 5), exactly("b", 4), constraints=[{"matchAttribute": "d/v"}])),
        (numbered(32, 7), claim(*map(exactly, "abcdefgh"), constraints=[{"distinctAttribute": "d/v"}])),
        (numbered(8, 1, **SHARED), claim(*(exactly(f"r{n}", capacity={"requests": {"m": "50"}}) for n in range(17)))),
    ],
)
def test_more_than_there_can_be_is_known_without_a_search(devices: list[dict[str, Any]], wanted: ResourceClaim) -> None:
    assert run(Search, [slice_of(devices)], [wanted]) is None
    assert steps([slice_of(devices)], [wanted]) == 0


def test_more_counters_than_there_are_are_known_without_a_search() -> None:
    devices = [drawing(f"g{n:02}", f"{1000 + n}Mi") for n in range(30)]
    wanted = claim(exactly("a", 8), exactly("b", 8))
    assert steps(counting_slices(devices, "15Gi"), [wanted]) == 0
    assert run(Search, counting_slices(devices, "15Gi"), [wanted]) is None
    assert run(Search, counting_slices(devices, "16Gi"), [wanted]) is not None


def test_a_pod_with_many_claims_is_no_deeper_than_python_goes() -> None:
    claims = [claim(*(exactly(f"r{n}") for n in range(20)), name=f"c{place}") for place in range(30)]
    found = run(Search, [gpus(600)], claims)
    assert isinstance(found, list)
    assert found[-1][-1] == "r19=g599"


# The shortcuts change nothing

NAMES = ("x", "y")
small = st.integers(0, 2)
FEATURES = ("taints", "sharing", "counters", "errors", "all", "admin", "first", "match", "distinct", "capacity")
features = st.sets(st.sampled_from(FEATURES), max_size=4)
"""A situation has few of them, so that each is there often enough to matter."""


@st.composite
def devices(draw: st.DrawFn, has: set[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "attributes": {name: {"int": draw(st.integers(0, 1))} for name in NAMES if draw(st.integers(0, 2))}
    }
    if "taints" in has and draw(st.booleans()):
        fields["taints"] = [{"key": "t", "value": "", "effect": "NoSchedule"}]
    if "sharing" in has and draw(st.booleans()):
        fields["allowMultipleAllocations"] = True
        if draw(st.integers(0, 2)):
            fields["capacity"] = {"m": {"value": str(draw(st.integers(1, 3)))}}
    if "counters" in has and draw(st.integers(0, 2)):
        counters = {"m": {"value": str(draw(st.integers(1, 2)))}}
        fields["consumesCounters"] = [{"counterSet": "set", "counters": counters}]
    return fields


@st.composite
def requests(draw: st.DrawFn, name: str, has: set[str]) -> dict[str, Any]:
    def fields() -> dict[str, Any]:
        found: dict[str, Any] = {}
        if draw(st.booleans()):
            strict = "errors" in has and draw(st.booleans())
            found["selectors"] = cel(draw(st.sampled_from(NAMES)) + "!" * strict)
        if "taints" in has and draw(st.booleans()):
            found["tolerations"] = [{"operator": "Exists"}]
        if "capacity" in has and draw(st.booleans()):
            found["capacity"] = {"requests": {"m": "1"}}
        return found

    if "all" in has and draw(st.integers(0, 2)) == 0:
        return everything(name, **fields())
    if "first" in has and draw(st.booleans()):
        return first_of(name, *({"count": draw(st.integers(1, 3)), **fields()} for _ in range(draw(st.integers(1, 3)))))
    admin = {"adminAccess": True} if "admin" in has and draw(st.booleans()) else {}
    return exactly(name, draw(st.integers(1, 3)), **fields(), **admin)


@st.composite
def claims(draw: st.DrawFn, name: str, has: set[str]) -> ResourceClaim:
    made = [draw(requests(f"r{place}", has)) for place in range(draw(st.integers(1, 3)))]
    constraints = [
        {f"{kind}Attribute": f"d/{draw(st.sampled_from(NAMES))}"}
        | ({"requests": ["r0"]} if draw(st.booleans()) else {})
        for kind in ("match", "distinct")
        if kind in has
    ]
    return claim(*made, name=name, constraints=constraints)


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[ResourceSlice], list[ResourceClaim], DeviceState]:
    has = draw(features)
    made = draw(st.lists(devices(has), min_size=1, max_size=3))
    # repetition, so that there are devices that can stand in for each other
    order = draw(st.lists(st.sampled_from(range(len(made))), min_size=2, max_size=6))
    named = [device(f"g{n}", **made[kind]) for n, kind in enumerate(order)]
    wanted = [draw(claims(f"c{n}", has)) for n in range(draw(st.integers(1, 2)))]
    exclusive = [each["name"] for each in named if "allowMultipleAllocations" not in each]
    used = draw(st.lists(st.sampled_from(exclusive), unique=True, max_size=1)) if exclusive else []
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}
    counters = [{"name": "set", "counters": {"m": {"value": str(draw(st.integers(1, 5)))}}}]
    slices = [slice_of([], "counters", pool=pool, sharedCounters=counters), slice_of(named, "devices", pool=pool)]
    return slices, wanted, DeviceState([allocation(*used)])


@settings(max_examples=400, deadline=None)
@given(situations())
def test_shortcuts_change_no_result(situation: tuple[list[ResourceSlice], list[ResourceClaim], DeviceState]) -> None:
    slices, wanted, state = situation
    plain = run(PlainSearch, slices, wanted, state)
    if plain != "node n: timed out trying to allocate devices":
        assert run(Search, slices, wanted, state) == plain


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.tuples(st.booleans(), st.booleans(), small), min_size=1, max_size=5),
    counts=st.lists(st.tuples(st.sampled_from(["", "x", "y"]), st.integers(1, 3)), min_size=1, max_size=2),
    matching=st.booleans(),
)
def test_a_solution_is_found_exactly_if_there_is_one(
    values: list[tuple[bool, bool, int]], counts: list[tuple[str, int]], matching: bool
) -> None:
    """Against all ways to give each request a set of devices."""
    made = []
    for number, (x, y, numa) in enumerate(values):
        attributes = {name: {"int": 1} for name, has in (("x", x), ("y", y)) if has}
        made.append(device(f"g{number}", attributes={**attributes, "numa": {"int": numa}}))
    asked = [
        exactly(f"r{n}", count, **({"selectors": cel(needs)} if needs else {}))
        for n, (needs, count) in enumerate(counts)
    ]
    wanted = claim(*asked, constraints=[{"matchAttribute": "d/numa"}] if matching else [])

    def fits(sets: Sequence[tuple[int, ...]]) -> bool:
        chosen = [number for each in sets for number in each]
        right = all(
            not needs or values[number][needs == "y"]
            for (needs, _), each in zip(counts, sets, strict=True)
            for number in each
        )
        same = not matching or len({values[number][2] for number in chosen}) == 1
        return right and same and len(set(chosen)) == len(chosen)

    choices = [list(itertools.combinations(range(len(values)), count)) for _, count in counts]
    solutions = [sets for sets in itertools.product(*choices) if fits(sets)]
    found = run(Search, [slice_of(made)], [wanted])
    if not solutions:
        assert found is None
    else:
        assert found == [[f"r{n}=g{number}" for n, each in enumerate(solutions[0]) for number in each]]
