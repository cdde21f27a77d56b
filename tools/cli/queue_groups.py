"""flotilla queue --group-by: how many pods share a reason, a namespace or an owner, and what they ask for."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.explain.words import amount
from shared.messages.inspection import DescribedPod, ListQueue, MeasureNodes, NodesMeasured
from shared.model.objects import Pod, pod_from_msgpack
from shared.model.resources import filter_requests
from tools.cli.queue_listing import queue_pages
from tools.cli.words import gate, lacking, reasons

if TYPE_CHECKING:
    from tools.cli.service_client import ServiceClient

DEFAULT_RESOURCES = ("cpu", "memory")
"""What is summed up if no reason names a resource."""
MAX_REASONS = 3
"""Reasons that are named of one namespace or owner."""


@dataclass
class Group:
    """`asks`: by resource, of all its pods; `largest`: of the pod that asks for most. In scheduler units."""

    name: str
    pods: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    asks: Counter[str] = field(default_factory=Counter)
    largest: dict[str, int] = field(default_factory=dict)

    def add(self, described: DescribedPod, pod: Pod) -> None:
        self.pods += 1
        self.reasons.update(_reasons(described))
        for resource, asked in filter_requests(pod).items():
            self.asks[resource] += asked
            self.largest[resource] = max(self.largest.get(resource, 0), asked)


async def print_groups(client: "ServiceClient", request: ListQueue, by: str, *, as_json: bool) -> None:
    from shared.bus.subjects import SNAPSHOT_LIST

    groups: dict[str, Group] = {}
    async for page in queue_pages(client, request):
        for described in page.pods:
            add(groups, by, described)
    measured: NodesMeasured = await client.request("snapshot", SNAPSHOT_LIST, MeasureNodes(), NodesMeasured)
    ordered = sorted(groups.values(), key=lambda group: (-group.pods, group.name))
    if as_json:
        print(json.dumps([plain_group(group) for group in ordered], indent=2, ensure_ascii=False))
        return
    for group in ordered:
        print(sentence(group, by, measured))
    if not ordered:
        print("no pod is pending")


def add(groups: dict[str, Group], by: str, described: DescribedPod) -> None:
    pod = pod_from_msgpack(described.body)
    name = _name(by, described, pod)
    groups.setdefault(name, Group(name)).add(described, pod)


def sentence(group: Group, by: str, measured: NodesMeasured) -> str:
    """`5,000 pods: Insufficient cpu; they ask for 64 cpu in all, the largest node has 4`."""
    many = group.pods > 1
    told = [f"{group.pods:,} pod{'s' if many else ''}: {group.name}"]
    if by != "reason" and group.reasons:
        told.append(", ".join(f"{text} ({count:,})" for text, count in group.reasons.most_common(MAX_REASONS)))
    told += _asks(group, many=many, measured=measured)
    return "; ".join(told)


def plain_group(group: Group) -> dict[str, Any]:
    named = {"name": group.name, "pods": group.pods}
    return named | {"reasons": dict(group.reasons), "asks": dict(group.asks), "largest": group.largest}


def _asks(group: Group, *, many: bool, measured: NodesMeasured) -> Iterator[str]:
    """For each resource that is insufficient: what they ask for, and what nodes have."""
    resources = lacking(list(group.reasons)) or DEFAULT_RESOURCES
    for resource in resources:
        asked = group.asks[resource]
        if not asked:
            continue
        asking = f"{amount(resource, asked)} {resource}"
        told = [f"they ask for {asking} in all" if many else f"it asks for {asking}"]
        if many and group.largest[resource] * group.pods != asked:
            told.append(f"the largest of them for {amount(resource, group.largest[resource])}")
        if resource in lacking(list(group.reasons)):
            told.append(f"the largest node has {amount(resource, measured.largest.get(resource, 0))}")
            told.append(f"no node has more than {amount(resource, measured.freest.get(resource, 0))} free")
        yield ", ".join(told)


def _name(by: str, described: DescribedPod, pod: Pod) -> str:
    if by == "namespace":
        return described.namespace
    if by == "owner":
        owner = next((each for each in pod.metadata.owner_references if each.controller), None)
        return "no owner" if owner is None else f"{owner.kind} {described.namespace}/{owner.name}"
    return ", ".join(_reasons(described)) or described.state


def _reasons(described: DescribedPod) -> list[str]:
    """Without counts, each once, in order; of a gated pod, its gate."""
    if described.gate:
        return [f"gate {gate(described)}"]
    if described.failed_at is None:
        return []
    return sorted({reason.text for reason in reasons(described.message)})
