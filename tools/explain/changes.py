"""Changes of a pod or of the cluster that might make the pod fit. Whether they do, only the scheduler says."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from shared.messages.explaining import Cause, NodeEdit, NodeFindings, Shortage, Supposed
from shared.model.affinity import Affinity, Toleration
from shared.model.pod import Container, Pod, PodSpec, ResourceRequirements
from shared.model.quantity import MILLI, UNIT, Quantity
from shared.model.resources import filter_requests
from shared.model.wellknown import HOSTNAME
from tools.explain.words import amount, domain, domain_counts, listed, selector_text, sizes

MAX_SKEWS = 3
"""Larger skews that are tried, one after the other, for a spread constraint."""

NOTHING_SUPPOSED = Supposed()

Edit = Callable[[Pod], Pod]


def unchanged(pod: Pod) -> Pod:
    return pod


@dataclass(frozen=True, slots=True)
class Change:
    """`text` completes "it would fit if". `lifts`: the plugins whose rejection it is about.

    `certain`: the changed pod or cluster is exactly what would be judged. `detail`: for programs.
    """

    text: str
    kind: str
    lifts: frozenset[str]
    edit: Edit = unchanged
    supposed: Supposed = NOTHING_SUPPOSED
    detail: Mapping[str, Any] = field(default_factory=dict)
    certain: bool = True

    def after(self, other: "Change") -> "Change":
        """Both together."""

        def edit(pod: Pod) -> Pod:
            return self.edit(other.edit(pod))

        return Change(
            f"{other.text}, and {self.text}",
            "both",
            self.lifts | other.lifts,
            edit,
            Supposed((*other.supposed.nodes, *self.supposed.nodes), (*other.supposed.gone, *self.supposed.gone)),
            {"first": {"kind": other.kind, **other.detail}, "second": {"kind": self.kind, **self.detail}},
            self.certain and other.certain,
        )


def changes(plugin: str, findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    """What might help where this plugin rejects; the smaller changes first."""
    own = [cause for cause in findings.causes if cause.plugin == plugin]
    find = _BY_PLUGIN.get(plugin)
    if find is not None:
        yield from find(plugin, own, findings, pod)


def more_nodes(findings: NodeFindings) -> Iterator[Change]:
    """One more node like those that would accept the pod but for their pods."""
    for model in findings.models:
        size = model.instance_type or sizes(model.allocatable)
        yield Change(
            f"there were one more node like {model.node} ({size})",
            "add-node",
            frozenset(),
            supposed=Supposed((NodeEdit(model.node, copy=True),)),
            detail={"like": model.node},
        )


# Resources


def _resources(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    for shortage in findings.shortages:
        yield from smaller(plugin, shortage, pod)
    for cause in own:
        if cause.name == "pods":
            yield from leaving(plugin, cause)
    yield from _larger_nodes(plugin, own, findings)
    if not findings.shortages:
        for cause in own:
            if cause.name != "pods" and cause.whole and cause.free:
                yield from smaller(plugin, Shortage(cause.examples[0], {cause.name: cause.free}, 1000), pod)


def _larger_nodes(plugin: str, own: Sequence[Cause], findings: NodeFindings) -> Iterator[Change]:
    """A node like one that would do otherwise, with more of what no node has enough of."""
    lacking = {cause.name: cause.asked for cause in own if cause.asked > cause.whole}
    for model in findings.models[:1] if lacking else ():
        with_ = listed([f"{amount(name, units)} {name}" for name, units in lacking.items()])
        yield Change(
            f"there were a node like {model.node} with {with_}",
            "add-node",
            frozenset({plugin}),
            supposed=Supposed((NodeEdit(model.node, copy=True, amounts=lacking),)),
            detail={"like": model.node, "amounts": {name: amount(name, units) for name, units in lacking.items()}},
        )


def smaller(plugin: str, shortage: Shortage, pod: Pod) -> Iterator[Change]:
    """The pod asks for no more than is free on a node."""
    asked = filter_requests(pod)
    wanted = {name: rounded(name, free) for name, free in shortage.free.items()}
    if not all(wanted.values()):
        return
    parts = [
        f"{amount(name, most)} {name} ({amount(name, asked.get(name, 0) - most)} less)" for name, most in wanted.items()
    ]
    yield Change(
        f"it asked for at most {listed(parts)}",
        "requests",
        frozenset({plugin}),
        lambda given: with_requests(given, wanted),
        detail={"requests": {name: amount(name, most) for name, most in wanted.items()}, "node": shortage.node},
    )


def rounded(name: str, value: int) -> int:
    """Down to what is shown, so that the text is what was judged."""
    if name == "cpu" or value < 1 << 20:
        return value
    return value >> 20 << 20 if name in ("memory", "ephemeral-storage") else value


def with_requests(pod: Pod, most: Mapping[str, int]) -> Pod:
    """The pod with requests of these resources cut to these amounts in all, in scheduler units."""
    spec = pod.spec
    for name, units in most.items():
        left = units * (MILLI if name == "cpu" else UNIT) - int(spec.overhead.get(name, 0))
        spec = _cut(spec, name, max(0, left))
    return replace(pod, spec=spec)


def _cut(spec: PodSpec, name: str, most: int) -> PodSpec:
    """From the largest containers first; init containers take turns, so each may have it all."""
    if spec.resources is not None and name in spec.resources.requests:
        requests = {**spec.resources.requests, name: Quantity(most)}
        spec = replace(spec, resources=replace(spec.resources, requests=requests))
    running = [*spec.containers, *(each for each in spec.init_containers if each.restartable)]
    limits = dict(_shares([int(each.resources.requests.get(name, 0)) for each in running], most))
    cut = [_limited(each, name, limits[i]) for i, each in enumerate(running)]
    containers, sidecars = cut[: len(spec.containers)], iter(cut[len(spec.containers) :])
    first = [next(sidecars) if each.restartable else _limited(each, name, most) for each in spec.init_containers]
    return replace(spec, containers=containers, init_containers=first)


def _shares(amounts: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """What each may keep so that all together have at most `most`: the small ones keep theirs."""
    left, waiting = most, len(amounts)
    for i in sorted(range(len(amounts)), key=lambda i: amounts[i]):
        share = min(amounts[i], left // waiting)
        yield i, share
        left, waiting = left - share, waiting - 1


def _limited(container: Container, name: str, most: int) -> Container:
    requests = container.resources.requests
    if int(requests.get(name, 0)) <= most:
        return container
    resources = ResourceRequirements(requests={**requests, name: Quantity(most)}, limits=container.resources.limits)
    return replace(container, resources=resources)


# What nodes are


def _taints(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    for cause in own:
        added = [_toleration(text) for text in cause.name.split(", ")]
        word = "taint" if len(added) == 1 else "taints"
        yield Change(
            f"it tolerated the {word} {cause.name}",
            "tolerate",
            frozenset({plugin}),
            partial(_tolerating, added=added),
            detail={"tolerations": [_plain(each) for each in added]},
        )


def _tolerating(pod: Pod, added: Sequence[Toleration]) -> Pod:
    return _with_spec(pod, tolerations=[*pod.spec.tolerations, *added])


def _toleration(text: str) -> Toleration:
    taint, _, effect = text.rpartition(":")
    key, _, value = taint.partition("=")
    return Toleration(key=key, operator="Equal", value=value, effect=effect)


def _plain(toleration: Toleration) -> dict[str, str]:
    return {"key": toleration.key, "operator": "Equal", "value": toleration.value, "effect": toleration.effect}


def _cordons(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    alone = [
        b.examples for b in findings.blocked if set(b.plugins) <= {plugin, "TaintToleration"} and plugin in b.plugins
    ]
    for node in [node for examples in alone for node in examples][:1] or [c.examples[0] for c in own if c.examples]:
        yield Change(
            f"node {node} were uncordoned",
            "uncordon",
            frozenset({plugin, "TaintToleration"}),
            supposed=Supposed((NodeEdit(node, schedulable=True),)),
            detail={"node": node},
        )


def _selection(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    """The pod does not ask for the labels that a node lacks, or the node gets them."""
    nodes = [b.examples[0] for b in findings.blocked if b.plugins == (plugin,) and b.examples]
    wanted = labels_wanted(pod)
    for cause in own:
        lacking = {key: value for key, value in wanted.items() if cause.values.get(key) != value}
        dropped = {key: value for key, value in pod.spec.node_selector.items() if cause.values.get(key) != value}
        node = next((node for node in nodes if node in cause.examples), cause.examples[0])
        if lacking and HOSTNAME not in lacking:
            labels = ", ".join(f"{key}={value}" for key, value in lacking.items())
            yield Change(
                f"node {node} had the label{'s' if len(lacking) > 1 else ''} {labels}",
                "label-node",
                frozenset({plugin}),
                supposed=Supposed((NodeEdit(node, labels=lacking),)),
                detail={"node": node, "labels": lacking},
            )
        if dropped:
            selector = ", ".join(f"{key}={value}" for key, value in dropped.items())
            yield Change(
                f"its node selector did not ask for {selector}",
                "node-selector",
                frozenset({plugin}),
                partial(_without_selector, dropped=dropped),
                detail={"drop": sorted(dropped)},
            )
    if _required_terms(pod):
        yield Change(
            "it did not require its node affinity",
            "node-affinity",
            frozenset({plugin}),
            _without_node_affinity,
        )
        if pod.spec.node_selector:
            yield Change(
                "it had neither its node selector nor its required node affinity",
                "node-affinity",
                frozenset({plugin}),
                lambda given: _without_selector(_without_node_affinity(given), given.spec.node_selector),
            )


def labels_wanted(pod: Pod) -> dict[str, str]:
    """Labels with which a node would match the pod's selector and the first term of its required affinity."""
    wanted = dict(pod.spec.node_selector)
    for term in _required_terms(pod)[:1]:
        for each in term.match_expressions:
            if each.operator == "In" and each.key not in wanted:
                wanted[each.key] = each.values[0]
            elif each.operator == "Exists":
                wanted.setdefault(each.key, "true")
            elif each.operator == "Gt" and each.values[0].lstrip("-").isdigit():
                wanted.setdefault(each.key, str(int(each.values[0]) + 1))
            elif each.operator == "Lt" and each.values[0].lstrip("-").isdigit():
                wanted.setdefault(each.key, str(int(each.values[0]) - 1))
    return wanted


def _required_terms(pod: Pod) -> list[Any]:
    affinity = pod.spec.affinity
    node_affinity = None if affinity is None else affinity.node_affinity
    required = None if node_affinity is None else node_affinity.required
    return [] if required is None else required.node_selector_terms


def _without_selector(pod: Pod, dropped: Mapping[str, str]) -> Pod:
    return _with_spec(pod, node_selector={k: v for k, v in pod.spec.node_selector.items() if k not in dropped})


def _without_node_affinity(pod: Pod) -> Pod:
    affinity = pod.spec.affinity or Affinity()
    return _with_spec(pod, affinity=replace(affinity, node_affinity=None))


# Other pods


def leaving(plugin: str, cause: Cause) -> Iterator[Change]:
    """A pod that is in the way leaves."""
    for named in cause.pods:
        yield Change(
            f"pod {named.key} left node {named.node}",
            "remove-pod",
            frozenset({plugin}),
            supposed=Supposed(gone=(named.uid,)),
            detail={"pod": named.key, "node": named.node},
        )


def _ports(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    for cause in own:
        port, _, protocol = cause.name.partition("/")
        old = int(port)
        for new in (old + 1, old + 1000, old - 1):
            if 0 < new < 65536:
                yield Change(
                    f"it used another host port than {cause.name}, such as {new}",
                    "host-port",
                    frozenset({plugin}),
                    partial(_with_port, old=old, new=new, protocol=protocol),
                    detail={"from": old, "to": new, "protocol": protocol},
                )
        yield from leaving(plugin, cause)


def _with_port(pod: Pod, old: int, new: int, protocol: str) -> Pod:
    def changed(container: Container) -> Container:
        ports = [
            replace(port, host_port=new, container_port=new if pod.spec.host_network else port.container_port)
            if port.host_port == old and (port.protocol or "TCP") == protocol
            else port
            for port in container.ports
        ]
        return replace(container, ports=ports)

    return _with_spec(
        pod,
        containers=[changed(each) for each in pod.spec.containers],
        init_containers=[changed(each) for each in pod.spec.init_containers],
    )


def _spreading(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    constraints = pod.spec.topology_spread_constraints
    for i, constraint in enumerate(constraints):
        if constraint.when_unsatisfiable != "DoNotSchedule":
            continue
        key = domain(constraint.topology_key)
        counts = next((c.values for c in own if c.name == constraint.topology_key), {})
        for model in findings.models[:1]:
            for emptiest in list(counts)[:1]:
                labels = {constraint.topology_key: emptiest}
                yield Change(
                    f"there were one more node like {model.node} in {key} {emptiest} "
                    f"(pods by {key}: {domain_counts(counts)})",
                    "add-node",
                    frozenset({plugin}),
                    supposed=Supposed((NodeEdit(model.node, copy=True, labels=labels),)),
                    detail={"like": model.node, "labels": labels},
                )
        for more in range(1, MAX_SKEWS + 1):
            skew = constraint.max_skew + more
            yield Change(
                f"its maxSkew over {key} were {skew} instead of {constraint.max_skew}",
                "max-skew",
                frozenset({plugin}),
                partial(_with_constraint, i=i, max_skew=skew),
                detail={"topologyKey": constraint.topology_key, "maxSkew": skew},
            )
        yield Change(
            f"its spreading over {key} were only preferred (whenUnsatisfiable: ScheduleAnyway)",
            "spread-softly",
            frozenset({plugin}),
            partial(_with_constraint, i=i, when_unsatisfiable="ScheduleAnyway"),
            detail={"topologyKey": constraint.topology_key},
        )
    for cause in own:
        for node in cause.examples[:1]:
            missing = {c.topology_key: "new" for c in constraints if c.topology_key == cause.name}
            if missing and not cause.values:
                yield Change(
                    f"node {node} had the label {cause.name}",
                    "label-node",
                    frozenset({plugin}),
                    supposed=Supposed((NodeEdit(node, labels=missing),)),
                    detail={"node": node, "labels": missing},
                )


def _with_constraint(pod: Pod, i: int, **fields: Any) -> Pod:
    constraints = list(pod.spec.topology_spread_constraints)
    constraints[i] = replace(constraints[i], **fields)
    return _with_spec(pod, topology_spread_constraints=constraints)


def _affinity(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    affinity = pod.spec.affinity or Affinity()
    what = {cause.what for cause in own}
    for side, side_field, word in (
        ("affinity", "pod_affinity", "it did not require to be near"),
        ("anti-affinity", "pod_anti_affinity", "it did not have to avoid"),
    ):
        terms = getattr(affinity, side_field)
        if side not in what or terms is None:
            continue
        for i, term in enumerate(terms.required):
            labels, key = selector_text(term.label_selector), domain(term.topology_key)
            if side == "affinity":
                yield Change(
                    f"a pod with {labels} ran in the same {key} as a node with room, or {word} it",
                    "pod-affinity",
                    frozenset({plugin}),
                    partial(_without_term, side=side_field, i=i),
                    detail={"topologyKey": term.topology_key, "term": i},
                )
            else:
                yield Change(
                    f"{word} pods with {labels} in its {key}",
                    "pod-anti-affinity",
                    frozenset({plugin}),
                    partial(_without_term, side=side_field, i=i),
                    detail={"topologyKey": term.topology_key, "term": i},
                )
    yield from _elsewhere(plugin, own, findings, affinity)
    for cause in own:
        yield from leaving(plugin, cause)


def _elsewhere(plugin: str, own: Sequence[Cause], findings: NodeFindings, affinity: Affinity) -> Iterator[Change]:
    """A node in a domain of its own, where there is no pod to avoid. Every new node is one if domains are nodes."""
    terms = () if affinity.pod_anti_affinity is None else affinity.pod_anti_affinity.required
    keys = dict.fromkeys(term.topology_key for term in terms if term.topology_key != HOSTNAME)
    if not keys or not any(cause.what == "anti-affinity" for cause in own):
        return
    words = listed([domain(key) for key in keys])
    for model in findings.models[:1]:
        yield Change(
            f"there were a node like {model.node} in a {words} of its own",
            "add-node",
            frozenset({plugin}),
            supposed=Supposed((NodeEdit(model.node, copy=True, labels=dict.fromkeys(keys, "new")),)),
            detail={"like": model.node, "labels": dict.fromkeys(keys, "new")},
        )


def _without_term(pod: Pod, side: str, i: int) -> Pod:
    affinity = pod.spec.affinity or Affinity()
    terms = getattr(affinity, side)
    left = replace(terms, required=[term for j, term in enumerate(terms.required) if j != i])
    return _with_spec(pod, affinity=replace(affinity, **{side: left}))


# Volumes and devices


def _volumes(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    for cause in own:
        yield from leaving(plugin, cause)
        for node in cause.examples[:1] if cause.values else ():
            labels = ", ".join(f"{key}={value}" for key, value in cause.values.items())
            yield Change(
                f"there were a node like {node} with {labels}, where its claim {cause.name} is reached",
                "add-node",
                frozenset({plugin, "VolumeBinding", "VolumeZone"}),
                supposed=Supposed((NodeEdit(node, copy=True, labels=dict(cause.values)),)),
                detail={"like": node, "labels": dict(cause.values)},
            )
    yield from without_volumes(plugin, pod)


def without_volumes(plugin: str, pod: Pod) -> Iterator[Change]:
    """Apart from one of its claims: whether only that is in the way."""
    for volume in pod.spec.volumes:
        source = volume.persistent_volume_claim
        name = source.claim_name if source is not None else f"{pod.name}-{volume.name}" if volume.ephemeral else ""
        if name:
            yield Change(
                f"its claim {name} were bound to, or could get, a volume that such a node reaches",
                "volume",
                frozenset({plugin}),
                partial(_without_volume, name=volume.name),
                detail={"claim": name},
                certain=False,
            )
    if sum(1 for volume in pod.spec.volumes) > 1:
        yield Change(
            "its volumes were reached, and free, on such a node",
            "volume",
            frozenset({plugin}),
            lambda given: _with_spec(given, volumes=[]),
            certain=False,
        )


def without_devices(plugin: str, pod: Pod) -> Iterator[Change]:
    for claim in pod.spec.resource_claims:
        name = claim.resource_claim_name or claim.name
        yield Change(
            f"such a node had free devices for its resource claim {name}",
            "resource-claim",
            frozenset({plugin}),
            partial(_without_resource_claim, name=claim.name),
            detail={"claim": name},
            certain=False,
        )


def _devices(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    yield from without_devices(plugin, pod)


def _without_volume(pod: Pod, name: str) -> Pod:
    return _with_spec(pod, volumes=[volume for volume in pod.spec.volumes if volume.name != name])


def _without_resource_claim(pod: Pod, name: str) -> Pod:
    return _with_spec(pod, resource_claims=[claim for claim in pod.spec.resource_claims if claim.name != name])


def _with_spec(pod: Pod, **fields: Any) -> Pod:
    return replace(pod, spec=replace(pod.spec, **fields))


_Finder = Callable[[str, Sequence[Cause], NodeFindings, Pod], Iterator[Change]]
_BY_PLUGIN: Mapping[str, _Finder] = {
    "NodeResourcesFit": _resources,
    "TaintToleration": _taints,
    "NodeUnschedulable": _cordons,
    "NodeAffinity": _selection,
    "NodePorts": _ports,
    "PodTopologySpread": _spreading,
    "InterPodAffinity": _affinity,
    "VolumeBinding": _volumes,
    "VolumeZone": _volumes,
    "VolumeRestrictions": _volumes,
    "NodeVolumeLimits": _volumes,
    "DynamicResources": _devices,
}
