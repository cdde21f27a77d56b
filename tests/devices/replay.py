"""Replays golden cases of kube-scheduler v1.36.2 through the functions of `shared/devices`, pod by pod.

Compared is what DynamicResources says: PreEnqueue, PreFilter, Filter where earlier plugins let the node pass, the
devices on each feasible node, the full allocations on the chosen one, the score, and PostFilter.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from shared.devices.allocator import Allocator
from shared.devices.cel_selectors import evaluate
from shared.devices.errors import AllocationError
from shared.devices.pod_claims import NodeVerdict, PodClaims, filter_node, own_claims, post_filter, pre_filter
from shared.devices.pools import DeviceNode
from shared.devices.results import score
from shared.devices.selectors import Evaluate
from shared.model.codec import convert, encode_json, node_from, pod_from
from shared.model.devices import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.resources import allocatable

NAME = "DynamicResources"
TODAY = 1_790_000_000.0
"""In 2026, after the timestamps of the cases that are in the past."""
BINDING_TIMEOUT = 600.0
ERROR = f'running "{NAME}" filter plugin: '
WEIGHT = 2


class Replay:
    """The state of one case. `shorter`: the case says nothing about PreEnqueue, allocations and what is given back."""

    def __init__(self, case: Mapping[str, Any], evaluate: Evaluate) -> None:
        objects = case["objects"]
        self.shorter = case["tags"] == ["dra"]
        self.nodes: list[Node] = [node_from(each) for each in objects.get("nodes", [])]
        claims = [convert(ResourceClaim, each) for each in objects.get("resourceclaims", [])]
        self.claims = {claim.key: claim for claim in claims}
        self.allocator = Allocator(evaluate)
        for each in objects.get("deviceclasses", []):
            self.allocator.put_class(convert(DeviceClass, each))
        for each in objects.get("resourceslices", []):
            self.allocator.put_slice(convert(ResourceSlice, each))
        for claim in claims:
            if claim.status.allocation is not None:
                self.allocator.add(claim.status.allocation)

    def filter(self, pod_claims: PodClaims, node: Node) -> NodeVerdict:
        view = DeviceNode(node.name, node.metadata.labels)
        return filter_node(pod_claims, view, allocatable(node), self.allocator, BINDING_TIMEOUT, TODAY)

    def step(self, pod: Pod, expected: Mapping[str, Any]) -> Iterator[str]:
        """Schedule the pod; yields what differs."""
        own = own_claims(pod, self.claims)
        refused = own if isinstance(own, str) else None
        if not self.shorter and refused != _reason(expected.get("preenqueue")):
            yield f"preenqueue: {refused}, expected {expected.get('preenqueue')}"
        early = expected.get("prefilter")
        if early is not None and early["plugin"] != NAME:
            return
        found = pre_filter(pod, self.claims, list(self.claims.values()), self.allocator)
        if isinstance(found, str) or early is not None:
            if found != _reason(early):
                yield f"prefilter: {found}, expected {early}"
            yield from self._post_filter(None, set(), expected)
            return
        verdicts: dict[str, NodeVerdict] = {}
        unavailable: set[int] = set()
        for node in self.nodes:
            status = expected["filter"].get(node.name)
            if status is not None and status["plugin"] != NAME:
                continue
            try:
                verdict = NodeVerdict() if found is None else self.filter(found, node)
                reason = verdict.reason
            except AllocationError as error:
                verdict, reason = NodeVerdict("error"), f"{ERROR}{error}"
            if reason != _reason(status):
                yield f"filter on {node.name}: {reason}, expected {_reason(status)}"
            unavailable.update(verdict.unavailable)
            if verdict.reason is None:
                verdicts[node.name] = verdict
        yield from self._post_filter(found, unavailable, expected)
        if found is not None:
            yield from self._compare(found, verdicts, expected)

    def _compare(
        self, found: PodClaims, verdicts: Mapping[str, NodeVerdict], expected: Mapping[str, Any]
    ) -> Iterator[str]:
        shown = {node: each for node, verdict in verdicts.items() if (each := _short(verdict))}
        if not self.shorter and "chosen" in expected and shown != expected.get("node_allocations", {}):
            yield f"devices: {shown}, expected {expected.get('node_allocations')}"
        scores = {node: self._score(found, verdict) for node, verdict in verdicts.items()}
        most = max(scores.values(), default=0)
        for node, one in expected.get("scores", {}).items():
            normalized = WEIGHT * (scores[node] * 100 // most if most else 0)
            if normalized != one["plugins"].get(NAME, 0):
                yield f"score of {node}: {normalized}, expected {one['plugins'].get(NAME)}"
        chosen = expected.get("chosen")
        if chosen is None:
            return
        verdict = verdicts[chosen]
        full = _full(verdict)
        if not self.shorter and full != expected.get("allocations", {}):
            yield f"allocations: {full}, expected {expected.get('allocations')}"
        for claim, allocation in zip(verdict.claims, verdict.allocations, strict=True):
            known = self.claims.get(claim.key)
            if known is not None and not known.promised:
                self.claims[claim.key] = msgspec.structs.replace(known, promised=True)
            if known is None or not known.promised:
                self.allocator.add(allocation)

    def _score(self, found: PodClaims, verdict: NodeVerdict) -> int:
        return score(found.claims, verdict.allocations) if verdict.allocations else 0

    def _post_filter(
        self, found: PodClaims | None, unavailable: set[int], expected: Mapping[str, Any]
    ) -> Iterator[str]:
        preemption = expected.get("preemption")
        if preemption is None:
            return
        given = post_filter(found, unavailable)
        deallocated = sorted(claim.key for claim in given.deallocate)
        deleted = sorted(claim.key for claim in given.delete)
        message = preemption["message"].split(", preemption:")[0]
        if given.message != message:
            yield f"postfilter: {given.message}, expected {message}"
        if not self.shorter and deallocated != preemption.get("deallocates", []):
            yield f"postfilter: gives back {deallocated}, expected {preemption}"
        if not self.shorter and deleted != preemption.get("deletes", []):
            yield f"postfilter: deletes {deleted}, expected {preemption}"


def differences(case: Mapping[str, Any]) -> list[str]:
    replay = Replay(case, evaluate)
    found = []
    for raw, expected in zip(case["pending"], case["expected"], strict=True):
        pod = pod_from(raw)
        found += [f"{case['name']}, {pod.key}: {each}" for each in replay.step(pod, expected)]
    return found


def _reason(status: Mapping[str, Any] | None) -> str | None:
    return None if status is None else status["reasons"][0]


def _names(verdict: NodeVerdict) -> list[str]:
    names: list[str] = []
    for claim in verdict.claims:
        names.append(f"{claim.name}#2" if claim.name in names else claim.name)
    return names


def _short(verdict: NodeVerdict) -> dict[str, list[str]]:
    return {
        name: [f"{each.request}={each.driver}/{each.pool}/{each.device}" for each in allocation.devices.results]
        for name, allocation in zip(_names(verdict), verdict.allocations, strict=True)
    }


def _full(verdict: NodeVerdict) -> dict[str, Any]:
    full = {}
    for name, claim, allocation in zip(_names(verdict), verdict.claims, verdict.allocations, strict=True):
        written = full[name] = _written(allocation)
        if name == "<extended-resources>":
            written["requests"] = _plain_requests(claim)
            written["mappings"] = [
                {"containerName": each.container, "resourceName": each.resource, "requestName": each.request}
                for each in verdict.mappings
            ]
    return full


def _plain_requests(claim: ResourceClaim) -> Any:
    """The requests with the defaults that the API server would write."""
    return [
        {
            "name": request.name,
            "exactly": {
                "deviceClassName": request.exactly.device_class_name,
                "allocationMode": request.exactly.allocation_mode,
                "count": request.exactly.count,
            },
        }
        for request in claim.spec.devices.requests
        if request.exactly is not None
    ]


def _written(allocation: AllocationResult) -> dict[str, Any]:
    plain = msgspec.json.decode(encode_json(allocation))
    written: dict[str, Any] = {"results": []}
    for result in plain["devices"].get("results", []):
        if result.pop("shareID", None) is not None:
            result["shared"] = True
        written["results"].append(result)
    if "config" in plain["devices"]:
        written["config"] = plain["devices"]["config"]
    if "nodeSelector" in plain:
        written["nodeSelector"] = plain["nodeSelector"]
    return written
