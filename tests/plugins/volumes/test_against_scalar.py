"""VolumeBinding over columns against the same search one node at a time, on random clusters."""

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flotilla.results import Status
from shared.cluster.objects import ClusterObjects
from shared.cluster.view import TableView
from shared.cluster.volumes import VolumeDecision
from shared.config.args import VolumeBindingArgs
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod
from shared.plugins.volumes.matching import misfit
from shared.plugins.volumes.volumebinding import VolumeBinding
from testing.builders import node, pod
from tests.plugins.cluster import rejected
from tests.plugins.volumes import scalar
from tests.plugins.volumes.storage import (
    HOSTNAME,
    ZONE,
    capacity,
    claim,
    cluster,
    csi_driver,
    scoring,
    state_of,
    storage_class,
    volume,
)

RANDOM = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

NODES = ["n0", "n1", "n2", "n3"]
ZONES = st.sampled_from(["a", "b"])
SIZES = st.sampled_from(["10Gi", "10Gi", "5Gi", "10737418241", "20Gi"])
CLAIMS = ["c0", "c1", "c2"]
REACH: st.SearchStrategy[dict[str, list[str]] | None] = st.one_of(
    st.none(),
    st.lists(st.sampled_from(NODES), min_size=1, max_size=2).map(lambda names: {HOSTNAME: names}),
    st.lists(ZONES, min_size=1, max_size=1).map(lambda zones: {ZONE: zones}),
    st.tuples(ZONES, st.sampled_from(NODES)).map(lambda both: {ZONE: [both[0]], HOSTNAME: [both[1]]}),
    st.just({"nobody/has": ["this"]}),
)


def seldom(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """Volumes and claims that differ in everything would never come together."""
    return st.integers(0, 5).flatmap(lambda die: st.sampled_from(others) if die == 0 else st.just(usual))


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    made = []
    for name in NODES:
        built = node(name).label({HOSTNAME: name})
        zone = draw(st.none() | ZONES)
        made.append((built if zone is None else built.label({ZONE: zone})).build())
    return made


@st.composite
def volumes(draw: st.DrawFn, name: str) -> ClusterObject:
    kept_for = draw(seldom("", *CLAIMS, "other"))
    return volume(
        name,
        draw(seldom("delayed", "static")),
        draw(SIZES),
        nodes=draw(REACH),
        kept_for=kept_for,
        uid=draw(st.sampled_from([None, "", "another"])) if kept_for else None,
        labels=draw(st.sampled_from([{}, {"disk": "ssd"}])),
        phase=draw(seldom("Available", "Released")),
        modes=draw(seldom(["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"])),
        **draw(seldom({}, {"volumeMode": "Block"}, {"volumeMode": "Filesystem"})),
    )


@st.composite
def claims(draw: st.DrawFn, name: str, last_volume: int) -> ClusterObject:
    of_class = draw(seldom("delayed", "static"))
    if draw(seldom(False, True)):
        return claim(name, of_class, volume=f"v{draw(st.integers(0, last_volume))}")
    more: dict[str, Any] = {}
    if draw(seldom(False, True)):
        more["selected"] = draw(st.sampled_from([*NODES, "gone"]))
    if draw(seldom(False, True)):
        more["selector"] = {"matchLabels": {"disk": "ssd"}}
    modes = draw(seldom(["ReadWriteOnce"], ["ReadOnlyMany"]))
    return claim(name, of_class, draw(SIZES | st.none()), modes=modes, **more)


@st.composite
def worlds(draw: st.DrawFn) -> list[ClusterObject]:
    topologies = draw(
        st.sampled_from([(), (), ({ZONE: ["a"]},), ({ZONE: ["a"], HOSTNAME: ["n0", "n1"]}, {ZONE: ["b"]})])
    )
    objects = [
        storage_class("delayed", topologies=topologies),
        storage_class("static", "kubernetes.io/no-provisioner"),
    ]
    number = draw(st.integers(0, 8))
    objects += [draw(volumes(f"v{i}")) for i in range(number)]
    objects += [draw(claims(name, number)) for name in CLAIMS]
    if draw(st.booleans()):
        objects.append(csi_driver(capacity=draw(seldom(True, False))))
    for i in range(draw(st.integers(0, 3))):
        room = draw(seldom("10Gi", None, "5Gi", "20Gi"))
        topology = draw(st.sampled_from([None, {}, {ZONE: "a"}, {HOSTNAME: "n1"}, {ZONE: "b", HOSTNAME: "n2"}]))
        more = draw(seldom({}, {"maximumVolumeSize": "10Gi"}, {"storageClassName": "static"}))
        objects.append(capacity(f"cap{i}", room, topology, **more))
    return objects


def pod_of(names: list[str]) -> Pod:
    built = pod("p")
    for name in names:
        built = built.claim(name)
    return built.build()


@RANDOM
@given(nodes(), worlds(), st.lists(st.sampled_from(CLAIMS), min_size=1, max_size=3))
def test_every_node_is_judged_as_it_would_be_alone(
    hosts: list[Node], objects: list[ClusterObject], names: list[str]
) -> None:
    table = cluster(*hosts, objects=objects)
    plugin, arriving = VolumeBinding(VolumeBindingArgs()), pod_of(names)
    state = state_of(plugin, arriving, table)
    assert not isinstance(state, Status), state
    whole = rejected(plugin, state, TableView(table))
    some = np.array([3, 1], dtype=np.intp)
    assert rejected(plugin, state, TableView(table, some)) == [whole[row] for row in some.tolist()]
    for row, host in table.nodes():
        expected = scalar.find(arriving, table.objects, host)
        status = whole[row]
        got = () if status is None else status.reasons
        assert got == expected.reasons
        if not got:
            assert plugin.decides(state) == bool(expected.bindings or expected.provisions)
            if plugin.decides(state):
                decision = plugin.volumes_for(state, TableView(table, np.array([row])))
                assert decision == VolumeDecision(expected.bindings, expected.provisions)
            for key, name in expected.bindings:
                chosen = table.objects.persistent_volumes[name]
                assert misfit(chosen, table.objects.claims[key], host.metadata.labels) is None


SHAPES = st.sampled_from([[(0, 10), (100, 0)], [(0, 0), (100, 10)], [(20, 3), (30, 7), (90, 1)]])


@RANDOM
@given(nodes(), worlds(), st.lists(st.sampled_from(CLAIMS), min_size=1, max_size=3, unique=True), SHAPES)
def test_every_node_that_admits_the_pod_scores_as_it_would_alone(
    hosts: list[Node], objects: list[ClusterObject], names: list[str], shape: list[tuple[int, int]]
) -> None:
    table, arriving = cluster(*hosts, objects=objects), pod_of(names)
    plugin = scoring(*shape)
    state = state_of(plugin, arriving, table)
    assert not isinstance(state, Status), state
    whole = rejected(plugin, state, TableView(table))
    scores = plugin.score(state, TableView(table)).tolist()
    for row, host in table.nodes():
        if whole[row] is None:
            found = scalar.find(arriving, table.objects, host)
            assert scores[row] == scalar.storage_score(found, table.objects, host, shape)


@RANDOM
@given(nodes(), worlds(), st.lists(st.sampled_from(CLAIMS), min_size=1, max_size=3), st.data())
def test_what_changes_is_found_out_by_looking_again(
    hosts: list[Node], objects: list[ClusterObject], names: list[str], data: st.DataObject
) -> None:
    """Nothing that is kept between two pods may outlive a change of the objects or the nodes."""
    table, plugin, arriving = cluster(*hosts, objects=objects), VolumeBinding(VolumeBindingArgs()), pod_of(names)
    for _ in range(2):
        state = state_of(plugin, arriving, table)
        assert not isinstance(state, Status), state
        for row, host in table.nodes():
            (status,) = rejected(plugin, state, TableView(table, np.array([row], dtype=np.intp)))
            got = () if status is None else status.reasons
            assert got == scalar.find(arriving, table.objects, host).reasons
        change(table.objects, data)
        table.upsert_node(node("n0").label({HOSTNAME: "n0", ZONE: data.draw(ZONES)}).build())


def change(objects: ClusterObjects, data: st.DataObject) -> None:
    objects.upsert(data.draw(volumes("v0")))
    objects.upsert(data.draw(volumes("v1")))
    objects.remove(ObjectKind.PERSISTENT_VOLUME, "v2")
