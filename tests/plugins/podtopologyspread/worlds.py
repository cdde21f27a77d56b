"""Random clusters and pods with constraints, and the plugin asked about them by any number of shards."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from flotilla.plugin import ClassState
from shared.cluster.nodetable import NodeTable
from shared.cluster.objects import ClusterObjects
from shared.cluster.view import TableView
from shared.model.load import load_of
from shared.model.objects import LabelSelector, LabelSelectorRequirement, Pod, TopologySpreadConstraint
from shared.plugins.podtopologyspread import plugin as spreading
from shared.plugins.podtopologyspread.plugin import PodTopologySpread
from testing.builders import class_state, node, pod, selector
from tests.plugins.cluster import rejected
from tests.plugins.podtopologyspread.reference import FITS, HOSTNAME, NO_LABEL, SKEWED, Host

VERDICTS = {None: FITS, spreading.SKEWED: SKEWED, spreading.LABEL_MISSING: NO_LABEL}
KEYS = ("zone", "rack", HOSTNAME)

LABELS = st.fixed_dictionaries({}, optional={"app": st.sampled_from("xy"), "tier": st.sampled_from("12")})
SELECTORS = st.sampled_from(
    [
        None,
        LabelSelector(),
        selector(app="x"),
        selector(app="x", tier="1"),
        selector(None, LabelSelectorRequirement(key="tier", operator="Exists")),
        selector(None, LabelSelectorRequirement(key="app", operator="NotIn", values=["y"])),
    ]
)
CONSTRAINTS = st.builds(
    TopologySpreadConstraint,
    max_skew=st.integers(1, 3),
    topology_key=st.sampled_from(KEYS),
    when_unsatisfiable=st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    label_selector=SELECTORS,
    min_domains=st.none() | st.integers(1, 4),
    node_affinity_policy=st.sampled_from(["Honor", "Ignore"]),
    node_taints_policy=st.sampled_from(["Honor", "Ignore"]),
    match_label_keys=st.sampled_from([[], [], ["app"], ["tier", "nowhere"]]),
)


@st.composite
def pods(draw: st.DrawFn, name: str, *, alive: bool = False) -> Pod:
    built = pod(name, draw(st.sampled_from(["default", "default", "other"]))).label(draw(LABELS))
    if not alive and draw(st.integers(0, 4)) == 0:
        built = built.terminating()
    return built.build()


@st.composite
def hosts(draw: st.DrawFn, number: int) -> Host:
    built = node(f"n{number}")
    for key in ("zone", "rack"):
        value = draw(st.sampled_from(["a", "b", "c", "", None]))
        built = built if value is None else built.label({key: value})
    hostname = draw(st.sampled_from([f"n{number}", f"n{number}", f"n{number}", "shared", None]))
    built = built if hostname is None else built.label({HOSTNAME: hostname})
    if draw(st.booleans()):
        built = built.label(disk=draw(st.sampled_from(["ssd", "hdd"])))
    if draw(st.integers(0, 3)) == 0:
        built = built.taint("t", effect=draw(st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])))
    there = draw(st.integers(0, 4))
    return Host(built.build(), [draw(pods(f"n{number}-p{i}")) for i in range(there)])


@st.composite
def clusters(draw: st.DrawFn) -> list[Host]:
    return [draw(hosts(i)) for i in range(draw(st.integers(1, 7)))]


@st.composite
def arrivals(draw: st.DrawFn, *, most: int = 3) -> Pod:
    """A pod with constraints of its own."""
    base = draw(pods("new", alive=True))
    built = pod("new", base.namespace).label(base.metadata.labels)
    for constraint in draw(st.lists(CONSTRAINTS, min_size=1, max_size=most)):
        built = built.spread(constraint)
    if draw(st.integers(0, 2)) == 0:
        built = built.node_selector(disk="ssd")
    if draw(st.integers(0, 2)) == 0:
        built = built.tolerate("t")
    return built.build()


def of_kind(pending: Pod, action: str) -> list[TopologySpreadConstraint]:
    return [each for each in pending.spec.topology_spread_constraints if each.when_unsatisfiable == action]


@dataclass
class Shard:
    table: NodeTable
    state: ClassState

    def rows(self, names: Sequence[str]) -> NDArray[np.intp]:
        return np.array([row for name in names if (row := self.table.row_of(name)) is not None], dtype=np.intp)


class Cluster:
    """The same nodes, dealt out to several shards, and the plugin prepared for one pod."""

    def __init__(
        self, plugin: PodTopologySpread, found: Sequence[Host], pending: Pod, shards: int, objects: ClusterObjects
    ) -> None:
        self.plugin = plugin
        names = [host.labels[HOSTNAME] for host in found if HOSTNAME in host.labels]
        self.shards = []
        for number in range(shards):
            table = NodeTable(capacity=4, objects=objects)
            for host in found[number::shards]:
                table.add_node(host.node)
                for each in host.pods:
                    table.add_pod(each.uid, host.node.name, load_of(each))
            table.set_shared_hostnames(name for name in names if names.count(name) > 1)
            self.shards.append(Shard(table, class_state(pending, objects)))
        for shard in self.shards:
            self.filters = not plugin.pre_filter(shard.state).status.skipped
            self.scores = not plugin.pre_score(shard.state).skipped

    def place(self, each: Pod, name: str) -> None:
        for shard in self.shards:
            if name in shard.table:
                shard.table.add_pod(each.uid, name, load_of(each))

    def summarize(self) -> object:
        """What all shards use from now on."""
        parts = [self.plugin.summarize(shard.state, TableView(shard.table)) for shard in self.shards]
        merged = parts[0]
        for part in parts[1:]:
            merged = self.plugin.merge(part, merged)
        for shard in self.shards:
            shard.state.summaries = {self.plugin.name: merged}
        return merged

    def verdicts(self) -> dict[str, str]:
        return {
            shard.table.names[row]: VERDICTS[verdict]
            for shard in self.shards
            for row, verdict in enumerate(rejected(self.plugin, shard.state, TableView(shard.table)))
        }

    def open_verdicts(self) -> dict[str, str]:
        return {
            shard.table.names[row]: VERDICTS[verdict]
            for shard in self.shards
            for row, verdict in enumerate(rejected(self.plugin, shard.state, TableView(shard.table), open_domains=True))
        }

    def summarize_feasible(self, feasible: Sequence[str]) -> object:
        merged: object = None
        for shard in self.shards:
            mask = np.zeros(shard.table.size, dtype=np.bool_)
            mask[shard.rows(feasible)] = True
            part = self.plugin.summarize_feasible(shard.state, TableView(shard.table), mask)
            merged = part if merged is None else self.plugin.merge_feasible(merged, part)
        for shard in self.shards:
            shard.state.feasible_summaries = {} if merged is None else {self.plugin.name: merged}
        return merged

    def raw_scores(self, feasible: Sequence[str]) -> dict[str, int]:
        raw: dict[str, int] = {}
        for shard in self.shards:
            rows = shard.rows(feasible)
            whole = self.plugin.score(shard.state, TableView(shard.table))
            some = self.plugin.score(shard.state, TableView(shard.table, rows))
            assert whole[rows].tolist() == some.tolist()
            raw |= dict(zip([shard.table.names[row] for row in rows.tolist()], some.tolist(), strict=True))
        return raw

    def normalized(self, feasible: Sequence[str]) -> dict[str, int]:
        raw = self.raw_scores(feasible)
        ranged = [score for score in raw.values() if score != self.plugin.unranged]
        low, high = (min(ranged), max(ranged)) if ranged else (0, 0)
        normal = self.plugin.normalizer(np.array(list(raw.values()), dtype=np.int64), low, high)
        return dict(zip(raw, normal.tolist(), strict=True))


def with_pod(found: Sequence[Host], each: Pod, name: str) -> list[Host]:
    return [replace_pods(host, [*host.pods, each]) if host.node.name == name else host for host in found]


def replace_pods(host: Host, there: Sequence[Pod]) -> Host:
    return replace(host, pods=there)
