"""Allocator: shared searches change no result, and devices counted for a class."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.devices.allocator import Allocator
from shared.devices.errors import AllocationError
from shared.devices.offers import OfferedDevice
from shared.devices.pools import DeviceNode
from shared.model.codec import convert
from shared.model.devices import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from tests.devices.builders import ANY, NODE, allocation, cel, claim, device, everything, exactly, first_of, slice_of

NODES = [DeviceNode(name, {"zone": "a" if name < "c" else "b"}) for name in "abcd"]
ZONE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}


def evaluate(expression: str, candidate: OfferedDevice) -> bool | str:
    """`x`: the device has the attribute x; `shared`: it can be shared; `error`."""
    if expression == "error":
        return "CEL runtime error: no"
    return candidate.shareable if expression == "shared" else expression in candidate.device.attributes


def allocator(slices: Sequence[ResourceSlice], allocations: Sequence[AllocationResult] = ()) -> Allocator:
    made = Allocator(evaluate)
    made.put_class(ANY)
    for each in slices:
        made.put_slice(each)
    for done in allocations:
        made.add(done)
    return made


def allocate(made: Allocator, node: DeviceNode, claims: Sequence[ResourceClaim]) -> list[AllocationResult] | str:
    step = made.step(node, claims)
    return step if isinstance(step, str) else made.allocations(node, claims, step)


def answer(made: Allocator, node: DeviceNode, claims: Sequence[ResourceClaim]) -> list[AllocationResult] | str:
    try:
        return allocate(made, node, claims)
    except AllocationError as error:
        return f"error: {error}"


KINDS: list[dict[str, Any]] = [
    {},
    {"attributes": {"x": {"int": 1}}},
    {"allowMultipleAllocations": True, "capacity": {"m": {"value": "2"}}},
    {"taints": [{"key": "t", "effect": "NoSchedule"}]},
    {"consumesCounters": [{"counterSet": "set", "counters": {"m": {"value": "1"}}}]},
]
WANTED = [
    [claim(exactly("r"))],
    [claim(exactly("r", 2), name="other")],
    [claim(exactly("r", selectors=cel("x")))],
    [claim(exactly("r", capacity={"requests": {"m": "1"}}))],
    [claim(everything("r"))],
    [claim(first_of("r", {"count": 3}, {"count": 1})), claim(exactly("s", adminAccess=True), name="d")],
]


@st.composite
def clusters(draw: st.DrawFn) -> list[ResourceSlice]:
    """Each node has a pool of its own, of one of two lists of devices; some have a part in a pool for a zone."""
    lists = [draw(st.lists(st.sampled_from(range(len(KINDS))), min_size=1, max_size=4)) for _ in range(2)]
    slices = []
    for node in NODES:
        devices = [device(f"g{n}", **KINDS[kind]) for n, kind in enumerate(draw(st.sampled_from(lists)))]
        pool = {"name": node.name, "generation": 1, "resourceSliceCount": 2}
        counters = [{"name": "set", "counters": {"m": {"value": "1"}}}]
        slices += [
            slice_of(devices, f"{node.name}-devices", nodeName=node.name, pool=pool),
            slice_of([], f"{node.name}-counters", nodeName=node.name, pool=pool, sharedCounters=counters),
        ]
    if draw(st.booleans()):
        pool = {"name": "zone", "generation": 1, "resourceSliceCount": draw(st.integers(1, 2))}
        slices.append(slice_of([device("z0"), device("z1")], "zone", nodeName="", nodeSelector=ZONE, pool=pool))
    return slices


@settings(max_examples=150, deadline=None)
@given(
    clusters(),
    st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(range(len(WANTED))), st.booleans()), max_size=12),
)
def test_a_shared_search_finds_what_a_search_of_its_own_finds(
    slices: list[ResourceSlice], steps: list[tuple[DeviceNode, int, bool]]
) -> None:
    sharing, made = allocator(slices), list[AllocationResult]()
    for node, wanted, undo in steps:
        found = answer(sharing, node, WANTED[wanted])
        assert found == answer(allocator(slices, made), node, WANTED[wanted])
        if undo and made:
            sharing.remove(made.pop())
        elif isinstance(found, list):
            for each in found:
                sharing.add(each)
                made.append(each)


def test_nodes_with_devices_alike_share_a_search_until_one_is_used() -> None:
    asked: list[str] = []

    def ask(expression: str, candidate: OfferedDevice) -> bool:
        asked.append(candidate.id.pool)
        return True

    made = Allocator(ask)
    made.put_class(ANY)
    for node in NODES:
        pool = {"name": node.name, "resourceSliceCount": 1}
        devices = [device(f"g{n}", attributes={"uuid": {"string": f"{node.name}{n}"}}) for n in range(2)]
        made.put_slice(slice_of(devices, node.name, nodeName=node.name, pool=pool))
    steps = [made.searches]
    for place, node in enumerate(NODES):
        found = allocate(made, node, [claim(exactly("r", selectors=cel("x")), name=f"c{place}")])
        assert isinstance(found, list)
        assert found[0].devices.results[0].pool == node.name
        steps.append(made.searches)
    assert steps == [0, 1, 1, 1, 1]
    made.add(allocation("g0", pool="a"))
    other = allocate(made, NODES[0], [claim(exactly("r", selectors=cel("x")))])
    assert isinstance(other, list)
    assert [each.device for each in other[0].devices.results] == ["g1"]
    assert made.searches == 2
    assert sorted(asked) == ["a", "a", "b", "b", "c", "c", "d", "d"]


def test_slices_and_classes_that_change_change_the_answer() -> None:
    made = allocator([slice_of([device("g")])])
    wanted = [claim(exactly("r"))]
    assert isinstance(allocate(made, NODE, wanted), list)
    made.remove_slice("s")
    assert allocate(made, NODE, wanted) == "cannot allocate all claims"
    made.put_slice(slice_of([device("g")]))
    assert isinstance(allocate(made, NODE, wanted), list)
    selectors = {"selectors": cel("x")}
    made.put_class(convert(DeviceClass, {"metadata": {"name": "any"}, "spec": selectors}))
    assert allocate(made, NODE, wanted) == "cannot allocate all claims"
    made.remove_class("any")
    with pytest.raises(AllocationError, match="could not retrieve device class any"):
        allocate(made, NODE, wanted)


def test_invalid_pools_are_named_as_the_reason() -> None:
    made = allocator([slice_of([device("g"), device("g")])])
    assert allocate(made, NODE, [claim(exactly("r"))]) == "invalid resource pools were encountered"


def test_a_search_out_of_steps_is_not_repeated_for_an_equal_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.devices.search.MAX_STEPS", 20_000)
    devices = [device(f"g{n:02}", attributes={"v": {"int": n // 3}}) for n in range(24)]
    made = allocator(
        [slice_of(devices, name, nodeName=name, pool={"name": name, "resourceSliceCount": 1}) for name in "ab"]
    )
    alike = [{"matchAttribute": "d/v"}]
    wanted = [claim(exactly("r", 2), constraints=alike, name=f"c{n}") for n in range(9)]
    for node in NODES[:2]:
        with pytest.raises(AllocationError, match=f"node {node.name}: timed out"):
            allocate(made, node, wanted)
        assert made.searches == 1


@pytest.mark.parametrize(
    ("selector", "totals"),
    [(None, (4, 1)), ("x", (1, 1)), ("shared", (0, 0)), ("error", (0, 0))],
)
def test_the_devices_of_a_class_are_counted_for_the_score(selector: str | None, totals: tuple[int, int]) -> None:
    slices = [
        slice_of([device("g", attributes={"x": {"int": 1}}), device("s", allowMultipleAllocations=True)], "1"),
        slice_of([device("h")], "2", nodeName="", allNodes=True, pool={"name": "q"}),
        slice_of([device("i")], "3", nodeName="other", pool={"name": "r"}),
        slice_of([device("j", nodeName="n"), device("k")], "4", nodeName="", perDeviceNodeSelection=True),
    ]
    spec = {"selectors": [] if selector is None else cel(selector)}
    device_class = convert(DeviceClass, {"metadata": {"name": "c"}, "spec": spec})
    made = allocator(slices, [allocation("g")])
    assert made.class_totals(NODE, device_class) == totals
