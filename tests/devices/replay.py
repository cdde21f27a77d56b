"""Replays golden cases of kube-scheduler v1.36.2 through `shared/devices` and `ClassDevices`, pod by pod.

Compared is what DynamicResources says: PreEnqueue, PreFilter, Filter where earlier plugins let the node pass, the
devices on each feasible node, the full allocations on the chosen one, the score, and PostFilter.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from shared.cluster.devices import Devices, PlacedDevices, SpecialClaim
from shared.devices.errors import AllocationError
from shared.devices.pod_claims import PodClaims, own_claims, post_filter, pre_filter
from shared.model.codec import convert, encode_json, node_from, pod_from
from shared.model.devices import AllocationResult, DeviceClass, DeviceRequest, ResourceClaim, ResourceSlice
from shared.model.node import Node
from shared.model.pod import Pod
from shared.plugins.devices.class_devices import ClassDevices

NAME = "DynamicResources"
TODAY = 1_790_000_000.0
"""In 2026, after the timestamps of the cases that are in the past."""
BINDING_TIMEOUT = 600.0
ERROR = f'running "{NAME}" filter plugin: '
WEIGHT = 2


class Replay:
    """The state of one case. `shorter`: the case says nothing about PreEnqueue, allocations and what is given back."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        objects = case["objects"]
        self.shorter = case["tags"] == ["dra"]
        self.nodes: list[Node] = [node_from(each) for each in objects.get("nodes", [])]
        claims = [convert(ResourceClaim, each) for each in objects.get("resourceclaims", [])]
        self.claims = {claim.key: claim for claim in claims}
        classes = [convert(DeviceClass, each) for each in objects.get("deviceclasses", [])]
        slices = [convert(ResourceSlice, each) for each in objects.get("resourceslices", [])]
        self.devices = Devices(self.claims, {each.name: each for each in slices}, {each.name: each for each in classes})
        self.devices.time = TODAY

    def step(self, pod: Pod, expected: Mapping[str, Any]) -> Iterator[str]:
        """Schedule the pod; yields what differs."""
        own = own_claims(pod, self.claims)
        refused = own if isinstance(own, str) else None
        if not self.shorter and refused != _reason(expected.get("preenqueue")):
            yield f"preenqueue: {refused}, expected {expected.get('preenqueue')}"
        early = expected.get("prefilter")
        if early is not None and early["plugin"] != NAME:
            return
        found = pre_filter(pod, self.claims, list(self.claims.values()), self.devices.allocator)
        if isinstance(found, str) or early is not None:
            if found != _reason(early):
                yield f"prefilter: {found}, expected {early}"
            yield from self._post_filter(None, set(), expected)
            return
        served = None if found is None else ClassDevices(found, self.devices, BINDING_TIMEOUT)
        feasible: list[Node] = []
        unavailable: set[int] = set()
        for node in self.nodes:
            status = expected["filter"].get(node.name)
            if status is not None and status["plugin"] != NAME:
                continue
            try:
                reason = None if served is None else served.reason(node, 0)
            except AllocationError as error:
                reason = f"{ERROR}{error}"
            if reason != _reason(status):
                yield f"filter on {node.name}: {reason}, expected {_reason(status)}"
            if reason is None:
                feasible.append(node)
        if served is not None:
            unavailable = served.unavailable_on([node.name for node in self.nodes])
        yield from self._post_filter(found, unavailable, expected)
        if served is not None:
            yield from self._compare(served, feasible, expected)

    def _compare(self, served: ClassDevices, feasible: list[Node], expected: Mapping[str, Any]) -> Iterator[str]:
        found = served.found
        given = {node.name: _given(found, served.placed(node, 0)) for node in feasible}
        shown = {node: each for node, of in given.items() if (each := _short(of))}
        if not self.shorter and "chosen" in expected and shown != expected.get("node_allocations", {}):
            yield f"devices: {shown}, expected {expected.get('node_allocations')}"
        scores = {node.name: served.score(node, 0) for node in feasible}
        most = max(scores.values(), default=0)
        for node, one in expected.get("scores", {}).items():
            normalized = WEIGHT * (scores[node] * 100 // most if most else 0)
            if normalized != one["plugins"].get(NAME, 0):
                yield f"score of {node}: {normalized}, expected {one['plugins'].get(NAME)}"
        chosen = expected.get("chosen")
        if chosen is None:
            return
        full = _full(given[chosen])
        if not self.shorter and full != expected.get("allocations", {}):
            yield f"allocations: {full}, expected {expected.get('allocations')}"
        for taken in given[chosen]:
            known = self.claims.get(taken.key)
            if known is not None and not known.promised:
                self.claims[taken.key] = msgspec.structs.replace(known, promised=True)
            if known is None or not known.promised:
                self.devices.allocator.add(taken.allocation)

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
    replay = Replay(case)
    found = []
    for raw, expected in zip(case["pending"], case["expected"], strict=True):
        pod = pod_from(raw)
        found += [f"{case['name']}, {pod.key}: {each}" for each in replay.step(pod, expected)]
    return found


def _reason(status: Mapping[str, Any] | None) -> str | None:
    return None if status is None else status["reasons"][0]


class Given(NamedTuple):
    """A claim and its devices on a node. `shown`: its name, different for a claim that the pod names twice."""

    key: str
    shown: str
    allocation: AllocationResult
    special: SpecialClaim | None = None


def _given(found: PodClaims, placed: PlacedDevices | None) -> list[Given]:
    given: list[Given] = []
    if placed is None:
        return given
    for claim, allocation in zip(found.own, placed.allocations, strict=True):
        if allocation is not None:
            twice = any(each.key == claim.key for each in given)
            given.append(Given(claim.key, f"{claim.name}#2" if twice else claim.name, allocation))
    if placed.special is not None and found.special is not None:
        given.append(Given(found.special.key, found.special.name, placed.special.allocation, placed.special))
    return given


def _short(given: list[Given]) -> dict[str, list[str]]:
    return {
        each.shown: [f"{one.request}={one.driver}/{one.pool}/{one.device}" for one in each.allocation.devices.results]
        for each in given
    }


def _full(given: list[Given]) -> dict[str, Any]:
    full = {}
    for each in given:
        written = full[each.shown] = _written(each.allocation)
        if each.special is not None:
            written["requests"] = _plain_requests(each.special.requests)
            written["mappings"] = [
                {"containerName": one.container, "resourceName": one.resource, "requestName": one.request}
                for one in each.special.mappings
            ]
    return full


def _plain_requests(requests: Sequence[DeviceRequest]) -> Any:
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
        for request in requests
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
