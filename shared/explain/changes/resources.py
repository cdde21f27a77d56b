"""Room for the pod: it asks for less, nodes are larger, or there is one more."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from shared.explain.changes.change import Change, leaving
from shared.explain.words import amount, listed, sizes
from shared.messages.explaining import Cause, NodeEdit, NodeFindings, Shortage, Supposed
from shared.model.pod import Container, Pod, PodSpec, ResourceRequirements
from shared.model.quantity import MILLI, UNIT, Quantity
from shared.model.resources import filter_requests


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


def resources(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    is_too_large = any(cause.asked > cause.whole for cause in own)
    if is_too_large:
        yield from _larger_nodes(plugin, own, findings)
    for shortage in findings.shortages:
        yield from smaller(plugin, shortage, pod)
    for cause in own:
        if cause.name == "pods":
            yield from leaving(plugin, cause)
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
