"""Pools of a node: which slices count, order, and what makes a pool unusable."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.devices.footprint import add_checked
from shared.devices.pools import DeviceNode, Pool, Slices
from shared.devices.state import DeviceState
from shared.errors import InvariantBroken
from shared.model.devices import AllocationResult, ResourceSlice
from tests.devices.builders import NODE, allocation, device, share, slice_of

ZONE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}


def pool(name: str = "p", generation: int = 1, slices: int = 1) -> dict[str, Any]:
    return {"name": name, "generation": generation, "resourceSliceCount": slices}


def shown(pools: tuple[Pool, ...]) -> list[str]:
    def state(each: Pool) -> str:
        if each.usable:
            return ",".join(device.id.device for device in each.devices)
        return "incomplete" if each.incomplete else "invalid"

    return [f"{each.id}: {state(each)}" for each in pools]


def pools_of(*slices: ResourceSlice, node: DeviceNode = NODE) -> list[str]:
    return shown(Slices(slices).pools_for(node))


def test_pools_are_ordered_by_driver_and_name_and_slices_by_name() -> None:
    slices = [
        slice_of([device("c")], "s3", pool=pool("b", slices=2)),
        slice_of([device("d")], "s2", pool=pool("b", slices=2)),
        slice_of([device("a")], "s1", pool=pool("z"), driver="a"),
        slice_of([device("e", bindingConditions=["ready"])], "s0", pool=pool("a")),
    ]
    assert pools_of(*slices) == ["a/z: a", "d/b: d,c", "d/a: e"]


def test_the_highest_generation_counts() -> None:
    old, new = slice_of([device("old")], "s1"), slice_of([device("new")], "s2", pool=pool(generation=2))
    assert pools_of(old, new) == ["d/p: new"]


def test_a_newer_generation_elsewhere_hides_an_incomplete_pool() -> None:
    here = slice_of([device("g")], pool=pool(slices=2))
    elsewhere = slice_of([device("h")], "s2", nodeName="m", pool=pool(generation=2))
    assert pools_of(here, elsewhere) == []
    assert pools_of(here) == ["d/p: incomplete"]
    complete = slice_of([device("g")])
    assert pools_of(complete, elsewhere) == ["d/p: g"]


def test_slices_for_other_nodes_complete_a_pool() -> None:
    here, there = (
        slice_of([device(name)], name, pool=pool(slices=2), nodeName=node) for name, node in (("g", "n"), ("h", "m"))
    )
    assert pools_of(here, there) == ["d/p: g"]


@pytest.mark.parametrize(
    "devices",
    [
        [device("g"), device("g")],
        [device("g", consumesCounters=[{"counterSet": "lost", "counters": {}}])],
        [device("g", consumesCounters=[{"counterSet": "set", "counters": {"lost": {"value": "1"}}}])],
    ],
)
def test_pools_that_contradict_themselves_are_invalid(devices: list[dict[str, Any]]) -> None:
    counters = [{"name": "set", "counters": {"m": {"value": "1"}}}]
    slices = [
        slice_of([], "counters", pool=pool(slices=2), sharedCounters=counters),
        slice_of(devices, "devices", pool=pool(slices=2)),
    ]
    assert pools_of(*slices) == ["d/p: invalid"]


def test_a_counter_set_may_be_there_once() -> None:
    counters = [{"name": "set", "counters": {"m": {"value": "1"}}}]
    slices = [slice_of([], name, pool=pool(slices=2), sharedCounters=counters) for name in "ab"]
    assert pools_of(*slices) == ["d/p: invalid"]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"nodeName": "n"}, True),
        ({"nodeName": "m"}, False),
        ({"nodeName": None, "allNodes": True}, True),
        ({"nodeName": None, "nodeSelector": ZONE}, False),
        ({"nodeName": None}, False),
    ],
)
def test_a_slice_is_for_a_node_by_name_by_selector_or_for_all(where: dict[str, Any], found: bool) -> None:
    kept = {name: value for name, value in where.items() if value is not None}
    made = slice_of([device("g")], **{**kept, **({} if "nodeName" in kept else {"nodeName": ""})})
    assert bool(pools_of(made)) is found


def test_a_slice_is_for_a_node_by_labels_and_by_device() -> None:
    labelled = DeviceNode("n", {"zone": "a"})
    assert pools_of(slice_of([device("g")], nodeName="", nodeSelector=ZONE), node=labelled) == ["d/p: g"]
    devices = [device("g", nodeName="m"), device("h", nodeSelector=ZONE)]
    per_device = slice_of(devices, nodeName="", perDeviceNodeSelection=True)
    assert pools_of(per_device) == []
    assert pools_of(per_device, node=labelled) == ["d/p: g,h"]


COUNTS = {("p", 1): 2, ("p", 2): 1, ("q", 1): 3, ("q", 2): 2}
"""Slices of a pool, by name and generation."""
PLACES: list[dict[str, Any]] = [{"nodeName": "n"}, {"nodeName": "m"}, {"nodeName": "", "allNodes": True}]


@st.composite
def some_slices(draw: st.DrawFn) -> ResourceSlice:
    """With devices, or with counters; for a node, or for all."""
    name, where = draw(st.sampled_from("abcd")), draw(st.sampled_from(PLACES))
    group, generation = draw(st.sampled_from(list(COUNTS)))
    named = pool(group, generation, COUNTS[group, generation])
    if draw(st.booleans()):
        counters = [{"name": draw(st.sampled_from("st")), "counters": {"m": {"value": "1"}}}]
        return slice_of([], name, pool=named, sharedCounters=counters, **where)
    draws = [{"counterSet": "s", "counters": {"m": {"value": "1"}}}] if draw(st.booleans()) else []
    return slice_of([device(draw(st.sampled_from([name, "same"])), consumesCounters=draws)], name, pool=named, **where)


def plainly(slices: list[ResourceSlice], node: DeviceNode) -> list[str]:
    """The pools that matter to a node, from all slices at once."""
    found = []
    specs = [each.spec for each in sorted(slices, key=lambda each: each.name)]
    specs.sort(key=lambda spec: (spec.node_name != node.name, bool(spec.shared_counters)))
    for driver, name in sorted({(spec.driver, spec.pool.name) for spec in specs}):
        everywhere = [spec for spec in specs if (spec.driver, spec.pool.name) == (driver, name)]
        seen = [spec for spec in everywhere if spec.shared_counters or spec.all_nodes or spec.node_name == node.name]
        newest = max((spec.pool.generation for spec in seen), default=None)
        seen = [spec for spec in seen if spec.pool.generation == newest]
        if not seen:
            continue
        checked = seen
        if len(seen) != seen[0].pool.resource_slice_count:
            if any(spec.pool.generation > seen[0].pool.generation for spec in everywhere):
                continue
            checked = [spec for spec in everywhere if spec.pool.generation == newest]
            if len(checked) != seen[0].pool.resource_slice_count:
                found.append(f"{driver}/{name}: incomplete")
                continue
        sets = [each.name for spec in seen for each in spec.shared_counters]
        drawn = {draw.counter_set for spec in checked for each in spec.devices for draw in each.consumes_counters}
        names = [each.name for spec in seen for each in spec.devices]
        if len(set(sets)) != len(sets) or len(set(names)) != len(names) or not drawn <= set(sets):
            found.append(f"{driver}/{name}: invalid")
        elif names:
            found.append(f"{driver}/{name}: {','.join(sorted(names))}")
    return found


def sorted_names(shown_pool: str) -> str:
    id_, _, names = shown_pool.partition(": ")
    return f"{id_}: {','.join(sorted(names.split(',')))}"


@settings(max_examples=300)
@given(st.lists(st.one_of(some_slices(), st.sampled_from("abcd")), max_size=12))
def test_slices_changed_one_by_one_make_the_pools_of_all_slices(changes: list[ResourceSlice | str]) -> None:
    changed = Slices()
    present: dict[str, ResourceSlice] = {}
    nodes = [DeviceNode(name, {}) for name in "nmo"]
    known = {node.name: (changed.version(node.name), shown(changed.pools_for(node))) for node in nodes}
    for change in changes:
        if isinstance(change, str):
            changed.remove(change)
            present.pop(change, None)
        else:
            changed.put(change)
            present[change.name] = change
        for node in nodes:
            now = shown(changed.pools_for(node))
            with_devices = [sorted_names(each) for each in now if not each.endswith(": ")]
            assert with_devices == plainly(list(present.values()), node)
            version, before = known[node.name]
            if version == changed.version(node.name):
                assert now == before
            known[node.name] = changed.version(node.name), now


# The state


shares = st.builds(share, st.sampled_from("xy"), st.sampled_from([None, "1", "2"]))


def seen(state: DeviceState) -> list[Any]:
    ids = [each.id for each in Slices([slice_of([device(name) for name in "abxy"])]).pools_for(NODE)[0].devices]
    return [(state.in_use(each), state.is_allocated(each), state.capacity(each)) for each in ids]


@given(st.lists(st.one_of(shares, st.sampled_from("ab").map(allocation)), max_size=8), st.data())
def test_removing_an_allocation_undoes_adding_it(made: list[AllocationResult], data: st.DataObject) -> None:
    state = DeviceState(made)
    removed = data.draw(st.permutations(range(len(made))))
    half = removed[: len(removed) // 2]
    for place in half:
        state.remove(made[place])
    assert seen(state) == seen(DeviceState(each for place, each in enumerate(made) if place not in half))


def test_devices_with_admin_access_do_not_count() -> None:
    assert seen(DeviceState([allocation("a", admin=True)])) == seen(DeviceState())


def test_giving_back_what_was_not_taken_is_a_fault() -> None:
    with pytest.raises(InvariantBroken, match="d/p/a is given back"):
        DeviceState().remove(allocation("a"))


# The footprint of a decision

COUNTED = [
    slice_of([], "counters", pool=pool(slices=2), sharedCounters=[{"name": "set", "counters": {"m": {"value": "3"}}}]),
    slice_of(
        [
            *(
                device(name, consumesCounters=[{"counterSet": "set", "counters": {"m": {"value": "2"}}}])
                for name in "ab"
            ),
            device("x", allowMultipleAllocations=True, capacity={"m": {"value": "3"}}),
        ],
        "devices",
        pool=pool(slices=2),
    ),
]


@pytest.mark.parametrize(
    ("before", "decided", "reason"),
    [
        ([], [allocation("a")], None),
        ([allocation("a")], [allocation("a")], "device d/p/a is in use"),
        ([], [allocation("a"), allocation("a")], "device d/p/a is in use"),
        ([allocation("a")], [allocation("a", admin=True)], None),
        ([], [allocation("c")], "device d/p/c is not offered any more"),
        ([], [allocation("a", pool="q")], "device d/q/a is not offered any more"),
        ([allocation("a")], [allocation("b")], "counter m of set in pool d/p does not suffice for b"),
        ([], [allocation("a", "b")], "counter m of set in pool d/p does not suffice for b"),
        ([share("x", "2")], [share("x", "1")], None),
        ([share("x", "2")], [share("x", "2")], "device d/p/x has less m left than 2"),
        ([share("x", "2")], [allocation("x")], "device d/p/x is in use"),
        ([allocation("x")], [share("x", "2")], "device d/p/x is in use"),
    ],
)
def test_a_decision_is_refused_if_what_it_takes_is_not_free_any_more(
    before: list[AllocationResult], decided: list[AllocationResult], reason: str | None
) -> None:
    state = DeviceState(before)
    assert add_checked(state, Slices(COUNTED).pools_for(NODE), decided) == reason
    expected = DeviceState(before if reason is not None else [*before, *decided])
    assert seen(state) == seen(expected)


def counted(pool_name: str, driver: str, total: str, *devices: dict[str, Any]) -> list[ResourceSlice]:
    """A pool with one counter, of which each device takes 2."""
    draws = [{"counterSet": "set", "counters": {"m": {"value": "2"}}}]
    sets = [{"name": "set", "counters": {"m": {"value": total}}}]
    of = pool(pool_name, slices=2)
    return [
        slice_of([], f"{driver}-counters", driver=driver, pool=of, sharedCounters=sets),
        slice_of(
            [{**each, "consumesCounters": draws} for each in devices], f"{driver}-devices", driver=driver, pool=of
        ),
    ]


SHAREABLE = device("x", allowMultipleAllocations=True, capacity={"m": {"value": "3"}})


@pytest.mark.parametrize(
    ("before", "decided", "reason"),
    [
        ([share("x", "1"), allocation("a")], [share("x", "1")], None),
        ([], [share("x", "1"), share("x", "1")], None),
        ([allocation("a")], [share("x", "1")], "counter m of set in pool d/p does not suffice for x"),
    ],
)
def test_only_the_first_user_of_a_shared_device_draws_its_counters(
    before: list[AllocationResult], decided: list[AllocationResult], reason: str | None
) -> None:
    pools = Slices(counted("p", "d", "2", device("a"), SHAREABLE)).pools_for(NODE)
    assert add_checked(DeviceState(before), pools, decided) == reason


@pytest.mark.parametrize(
    ("others", "reason"), [("2", None), ("1", "counter m of set in pool d/p does not suffice for a")]
)
def test_pools_of_one_name_have_the_counters_of_any_of_them(others: str, reason: str | None) -> None:
    slices = [*counted("p", "d", "1", device("a")), *counted("p", "e", others, device("b"))]
    assert add_checked(DeviceState(), Slices(slices).pools_for(NODE), [allocation("a")]) == reason
