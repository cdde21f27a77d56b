"""An API server with claims and a pod, against which PreBind runs one call at a time."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from flotilla.objects import Pod
from flotilla.results import ApiAnswer, ApiCall, Pause, Status
from shared.cluster.devices import ClaimAllocation, DeviceDecision, SpecialClaim
from shared.devices.extended import RequestMapping
from shared.model.codec import convert
from shared.model.devices import AllocationResult, DeviceRequest
from shared.plugins.devices.pre_bind import (
    DevicesToBind,
    Progress,
    bind_devices,
)
from testing.builders import PodBuilder, pod
from tests.simulator.support import PODS, Desk
from tests.simulator.support import pod as pod_body

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = "2026-01-01T00:00:00Z"
Object = dict[str, Any]


def result(device: str = "gpu-0", **more: Any) -> Object:
    return {"request": "r", "driver": "d.example.com", "pool": "n", "device": device, **more}


def allocation(*results: Object) -> Object:
    return {"devices": {"results": list(results or (result(),))}}


class Server(Desk):
    """`during` is called in each pause, and `before` each call; the first call that `fails` names gets that answer."""

    def __init__(self, *claims: str, during: Callable[["Server"], None] = lambda _: None) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.progress: list[Progress] = []
        self.fails: dict[str, ApiAnswer] = {}
        self.before: dict[str, Callable[[], object]] = {}
        self.pod = self.post(PODS, pod_body("p"))
        for name in claims:
            self.post(CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {"requests": []}}})
        self._during = during

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    def claim(self, name: str = "c") -> Any:
        return self.get(f"{CLAIMS}/{name}")

    def wanted(self, name: str = "c", allocation: Object | None = None) -> ClaimAllocation:
        """As an order that was decided now."""
        metadata = self.claim(name)["metadata"]
        to_write = None if allocation is None else convert(AllocationResult, allocation)
        return ClaimAllocation(f"default/{name}", metadata["uid"], to_write, metadata["resourceVersion"])

    def set_status(self, name: str = "c", **status: Any) -> None:
        claim = self.claim(name)
        claim["status"] = {**claim.get("status", {}), **status}
        self.put(f"{CLAIMS}/{name}/status", claim)

    def run(self, *claims: ClaimAllocation, special: SpecialClaim | None = None, patience: float = 600.0) -> Status:
        """With an order that names the pod as it is now."""
        version = self.get(f"{PODS}/p")["metadata"]["resourceVersion"]
        of, elapsed = at_version(self.built(pod("p").uid(self.uid)), version), 0.0
        decided = DevicesToBind(DeviceDecision(list(claims), special), NOW.timestamp(), self.progress)
        steps = bind_devices(of, decided, patience)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause):
                    elapsed += step.seconds
                    self._during(self)
                    answer = ApiAnswer(elapsed=elapsed)
                else:
                    answer = self.answer(step, elapsed)
                step = steps.send(answer)
        except StopIteration as end:
            status: Status = end.value
            return status

    def built(self, of: PodBuilder) -> Pod:
        return of.build()

    def answer(self, call: ApiCall, elapsed: float) -> ApiAnswer:
        name = f"{call.method} {call.path.removeprefix(CLAIMS)}"
        self.calls.append(name)
        self.before.pop(name, lambda: None)()
        if name in self.fails:
            return self.fails.pop(name)
        status, body = self.call(call.method, call.path, None if call.method == "GET" else call.body)
        message = "" if status < 300 else body["message"]
        return ApiAnswer(status, json.dumps(body).encode(), message, elapsed)


def at_version(of: Pod, version: str) -> Pod:
    metadata = msgspec.structs.replace(of.metadata, resource_version=version)
    return msgspec.structs.replace(of, metadata=metadata)


EXACTLY = {"deviceClassName": "gpu", "count": 1, "allocationMode": "ExactCount"}


def special(name: str = "p-extended-resources-abcde") -> SpecialClaim:
    request = "container-0-request-0"
    allocated = convert(AllocationResult, allocation(result(request=request)))
    requests = convert(list[DeviceRequest], [{"name": request, "exactly": EXACTLY}])
    return SpecialClaim(requests, [RequestMapping("c", "example.com/gpu", request)], allocated, name)
