"""What it is about nodes that in-tree filters reject: amounts, taints, labels, ports, domains, pods in the way.

A filter only says that it rejects. Here its reasons are looked up for people, in the table that it read.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import msgspec
import numpy as np

from flotilla.plugin import Ints, Mask, Pod, Status
from shared.cluster.columns import Rows
from shared.cluster.load_kind import LoadKind
from shared.cluster.nodetable import NodeTable
from shared.framework.judge import Judge
from shared.framework.pod_class import PodClass
from shared.messages.explaining import MAX_EXAMPLES, MAX_GROUPS, Cause, NamedPod, Shortage
from shared.model.affinity import REPELLING, is_tolerated
from shared.model.load import PodTerm, claim_names, pod_terms
from shared.model.objects import NodeSelector, NodeSelectorTerm, Taint
from shared.model.resources import PODS, host_ports
from shared.model.selectors import label_selector_matches
from shared.plugins.noderesources import WANTED
from shared.plugins.single_node import conflict

MAX_LOOKED_AT = 4096
"""Nodes of which the pods or labels are looked at, one by one, for one plugin."""
MAX_PODS = 10_000
"""Pods of the shard that are looked at for those in the way."""
ABSENT = "-"
"""In place of the value of a label that a node lacks."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The rows that a plugin rejects, and for each whether it is the first to do so, and why."""

    plugin: str
    table: NodeTable
    judge: Judge
    pod_class: PodClass
    rows: Rows
    first: Mask
    statuses: Mapping[int, Status]
    """By the number in `verdicts`."""
    verdicts: Ints

    @property
    def pod(self) -> Pod:
        return self.pod_class.state.pod

    def cause(self, what: str, name: str, at: Iterable[int] | Rows) -> Cause:
        """About the rows at these indices."""
        index = np.fromiter(at, dtype=np.intp)
        names = [self.table.names[row] for row in self.rows[index[:MAX_EXAMPLES]].tolist()]
        first = int(np.count_nonzero(self.first[index]))
        return Cause(self.plugin, what, name, len(index), first, tuple(names))

    def grouped(self, what: str, key: Callable[[int], str | None]) -> Iterator[Cause]:
        """Causes by name, which a function gives each row; the most frequent first."""
        groups: dict[str, list[int]] = {}
        for at, row in enumerate(self.rows[:MAX_LOOKED_AT].tolist()):
            name = key(row)
            if name is not None:
                groups.setdefault(name, []).append(at)
        for name, found in sorted(groups.items(), key=lambda each: -len(each[1]))[:MAX_GROUPS]:
            yield self.cause(what, name, found)


def causes(judged: Judged) -> Iterator[Cause]:
    """Nothing for plugins whose status says it all."""
    find = _FINDERS.get(judged.plugin)
    if find is not None and judged.rows.size:
        yield from islice(find(judged), MAX_GROUPS)


# Resources


def requests(pod_class: PodClass) -> dict[str, int]:
    """What the pod asks for of each resource that nodes are filtered by, in scheduler units."""
    wanted = pod_class.state.get(WANTED)
    if wanted is None:
        return {}
    basic = zip(("cpu", "memory", "ephemeral-storage"), wanted.basic, strict=True)
    return {name: amount for name, amount in (*basic, *wanted.scalars) if amount}


def free_amounts(table: NodeTable, judge: Judge, pod_class: PodClass, rows: Rows) -> Ints:
    """Resources x rows, by the table's numbers; what nominated pods will take is not free."""
    return table.allocatable[:, rows] - table.used[:, rows] - judge.reserved_amounts(pod_class, rows)


def _resources(judged: Judged) -> Iterator[Cause]:
    table, rows = judged.table, judged.rows
    free = free_amounts(table, judged.judge, judged.pod_class, rows)
    for name, amount in {**requests(judged.pod_class), PODS: 1}.items():
        number = table.resources.known(name)
        there = np.zeros(len(rows), dtype=np.int64) if number is None else free[number]
        at = np.flatnonzero(there < amount)
        if not at.size:
            continue
        whole = 0 if number is None else int(table.allocatable[number, rows[at]].max())
        most = int(there[at].max())
        cause = judged.cause("resource", name, at[np.argsort(-there[at], kind="stable")])
        pods = _pods_on(table, rows[at[:MAX_EXAMPLES]]) if name == PODS else ()
        yield msgspec.structs.replace(cause, asked=amount, free=max(0, most), whole=whole, pods=pods)


def shortages(table: NodeTable, judge: Judge, pod_class: PodClass, rows: Rows) -> Iterator[Shortage]:
    """For each set of resources that rows lack, which nothing else keeps the pod off, the one that lacks least."""
    wanted = {
        name: (number, amount)
        for name, amount in requests(pod_class).items()
        if (number := table.resources.known(name)) is not None
    }
    free = free_amounts(table, judge, pod_class, rows)
    if not wanted or not rows.size:
        return
    lacking = free[table.resources.id(PODS)] < 1
    short = np.array([free[number] < amount for number, amount in wanted.values()])
    share = np.array([(amount - free[number]) / amount for number, amount in wanted.values()]).max(axis=0)
    best: dict[Hashable, int] = {}
    for at in np.argsort(share, kind="stable")[:MAX_LOOKED_AT].tolist():
        if not lacking[at] and short[:, at].any():
            best.setdefault(short[:, at].tobytes(), at)
    for at in sorted(best.values(), key=lambda each: float(share[each]))[:MAX_EXAMPLES]:
        there = {
            name: max(0, int(free[number, at]))
            for is_short, (name, (number, _)) in zip(short[:, at].tolist(), wanted.items(), strict=True)
            if is_short
        }
        yield Shortage(table.names[int(rows[at])], there, round(1000 * float(share[at])))


# What nodes are


def taint_text(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _taints(judged: Judged) -> Iterator[Cause]:
    tolerations = judged.pod.spec.tolerations

    def untolerated(row: int) -> str:
        taints = judged.table.node_at(row).spec.taints
        hard = (each for each in taints if each.effect in REPELLING and not is_tolerated(each, tolerations))
        return ", ".join(map(taint_text, hard))

    return judged.grouped("taints", untolerated)


def _cordoned(judged: Judged) -> Iterator[Cause]:
    yield judged.cause("cordon", "", range(len(judged.rows)))


def _labels(judged: Judged) -> Iterator[Cause]:
    """By the values that nodes have of the labels that the pod asks about."""
    keys = selected_keys(judged.pod)
    for cause in judged.grouped("labels", lambda row: values_of(judged.table.node_at(row).metadata.labels, keys)):
        labels = judged.table.node_at(judged.table.row_of(cause.examples[0]) or 0).metadata.labels
        yield msgspec.structs.replace(cause, values={key: labels[key] for key in keys if key in labels})


def selected_keys(pod: Pod) -> list[str]:
    """The node labels that the pod's nodeSelector and required node affinity read."""
    keys = dict.fromkeys(pod.spec.node_selector)
    affinity = pod.spec.affinity
    node_affinity = None if affinity is None else affinity.node_affinity
    if node_affinity is not None and node_affinity.required is not None:
        for term in node_affinity.required.node_selector_terms:
            keys |= dict.fromkeys(each.key for each in term.match_expressions)
    return list(keys)


def values_of(labels: Mapping[str, str], keys: Iterable[str]) -> str:
    return ", ".join(f"{key}={labels[key]}" if key in labels else f"no {key}" for key in keys)


def _volumes(judged: Judged) -> Iterator[Cause]:
    """By claims of the pod with a volume that only some nodes reach: the labels of a node that reaches it."""
    objects = judged.table.objects
    for name in claim_names(judged.pod):
        claim = objects.claims.get(f"{judged.pod.namespace}/{name}")
        volume = None if claim is None else objects.persistent_volumes.get(claim.spec.volume_name)
        if volume is None:
            continue
        affinity = volume.spec.node_affinity
        labels = {} if affinity is None or affinity.required is None else _labels_of(affinity.required)
        if not labels:
            zones = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
            labels = {key: volume.metadata.labels[key].split("__")[0] for key in zones if key in volume.metadata.labels}
        cause = judged.cause("volume", f"{name} (volume {volume.name})", range(len(judged.rows)))
        yield msgspec.structs.replace(cause, values=labels)


def _labels_of(selector: NodeSelector) -> dict[str, str]:
    """Labels that satisfy the first term, as far as it asks for values."""
    return next((wanted_labels(term) for term in selector.node_selector_terms), {})


def wanted_labels(term: NodeSelectorTerm) -> dict[str, str]:
    return {each.key: each.values[0] for each in term.match_expressions if each.operator == "In" and each.values}


# Other pods


def _ports(judged: Judged) -> Iterator[Cause]:
    for port in host_ports(judged.pod):
        taking: list[NamedPod] = []
        at: list[int] = []
        for i, row in enumerate(judged.rows[:MAX_LOOKED_AT].tolist()):
            found = [
                _named(judged.table, row, uid, placed.key)
                for uid, placed in judged.table.placed_at(row)
                if any(conflict(port, other) for other in placed.kind.load.ports)
            ]
            if found:
                at.append(i)
                taking += found[: MAX_EXAMPLES - len(taking)]
        if at:
            cause = judged.cause("port", f"{port.port}/{port.protocol}", at)
            yield msgspec.structs.replace(cause, pods=tuple(taking))


def _users_of_claims(judged: Judged) -> Iterator[Cause]:
    claims, namespace = set(claim_names(judged.pod)), judged.pod.namespace

    def uses(kind: LoadKind) -> bool:
        return kind.load.namespace == namespace and not claims.isdisjoint(kind.load.claims)

    cause = judged.cause("claim", ", ".join(sorted(claims)), range(len(judged.rows)))
    yield msgspec.structs.replace(cause, pods=tuple(_matching(judged, uses)))


def _spread(judged: Judged) -> Iterator[Cause]:
    """The numbers of matching pods in the domains of each hard constraint, from the merged summary."""
    summary = judged.pod_class.state.summaries.get(judged.plugin)
    own = [c for c in judged.pod.spec.topology_spread_constraints if c.when_unsatisfiable == "DoNotSchedule"]
    parts = summary["hard"] if isinstance(summary, dict) else []
    for constraint, part in zip(own, parts, strict=False):
        lowest_first = sorted(part["domains"].items(), key=lambda each: (each[1], each[0]))
        values = {domain: str(pods) for domain, pods in lowest_first[:MAX_GROUPS]}
        cause = judged.cause("spread", constraint.topology_key, range(len(judged.rows)))
        yield msgspec.structs.replace(cause, values=values)


def _affinity(judged: Judged) -> Iterator[Cause]:
    for number, status in judged.statuses.items():
        at = np.flatnonzero(judged.verdicts == number)
        if "existing pods" in status.message:
            yield from _in_the_way(judged, at, "symmetric", _repels(judged))
        elif "anti-affinity" in status.message:
            yield from _in_the_way(judged, at, "anti-affinity", _is_avoided(judged))
        else:
            yield judged.cause("affinity", "", at)


def _in_the_way(judged: Judged, at: Rows, what: str, is_in_the_way: Callable[[LoadKind], bool]) -> Iterator[Cause]:
    pods = list(_matching(judged, is_in_the_way))
    keys = {term.topology_key for term in pod_terms(judged.pod) if term.kind == "anti" and not term.weight}
    cause = judged.cause(what, ", ".join(sorted(keys)) if what == "anti-affinity" else "", at)
    yield msgspec.structs.replace(cause, pods=tuple(pods))


def _is_avoided(judged: Judged) -> Callable[[LoadKind], bool]:
    terms = [term for term in pod_terms(judged.pod) if term.kind == "anti" and not term.weight]
    return lambda kind: any(_selects(judged.table, term, kind.load.namespace, kind.load.labels) for term in terms)


def _repels(judged: Judged) -> Callable[[LoadKind], bool]:
    pod = judged.pod
    return lambda kind: any(
        term.kind == "anti" and not term.weight and _selects(judged.table, term, pod.namespace, pod.metadata.labels)
        for term in kind.load.terms
    )


def _selects(table: NodeTable, term: PodTerm, namespace: str, labels: Mapping[str, str]) -> bool:
    known = table.objects.namespaces.get(namespace)
    in_namespace = namespace in term.namespaces or label_selector_matches(
        term.namespace_selector, {} if known is None else known.metadata.labels
    )
    return in_namespace and label_selector_matches(term.selector, labels)


def _matching(judged: Judged, matches: Callable[[LoadKind], bool]) -> Iterator[NamedPod]:
    """A few pods of the shard whose load matches, on the rejected rows first."""
    table = judged.table
    known: dict[int, bool] = {}
    found = looked_at = 0
    everywhere = np.flatnonzero(table.valid[: table.size])
    for row in (*judged.rows.tolist(), *np.setdiff1d(everywhere, judged.rows).tolist()):
        for uid, placed in table.placed_at(row):
            looked_at += 1
            kind = placed.kind
            if id(kind) not in known:
                known[id(kind)] = matches(kind)
            if known[id(kind)]:
                yield _named(table, row, uid, placed.key)
                found += 1
            if found == MAX_EXAMPLES or looked_at == MAX_PODS:
                return


def _pods_on(table: NodeTable, rows: Rows) -> tuple[NamedPod, ...]:
    """The least important pod of each of these rows."""
    least = (
        (row, *min(table.placed_at(row), key=lambda each: each[1].kind.load.priority))
        for row in rows.tolist()
        if table.placed_at(row)
    )
    return tuple(_named(table, row, uid, placed.key) for row, uid, placed in least)


def _named(table: NodeTable, row: int, uid: str, key: str) -> NamedPod:
    return NamedPod(uid, key or uid, table.names[row])


_FINDERS: Mapping[str, Callable[[Judged], Iterator[Cause]]] = {
    "NodeResourcesFit": _resources,
    "TaintToleration": _taints,
    "NodeUnschedulable": _cordoned,
    "NodeAffinity": _labels,
    "NodePorts": _ports,
    "PodTopologySpread": _spread,
    "InterPodAffinity": _affinity,
    "VolumeBinding": _volumes,
    "VolumeZone": _volumes,
    "VolumeRestrictions": _users_of_claims,
}
