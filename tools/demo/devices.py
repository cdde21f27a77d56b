"""The demo with devices: nodes with GPUs of two models, and pods that claim them from templates."""

from collections import Counter
from dataclasses import dataclass

import msgspec

from shared.errors import ClusterError
from shared.kube.client import KubeClient
from testing.inprocess.workloads import Object
from testing.simulator.controllers import DEVICES, DRIVER, MEMORY, MODEL
from tools.demo.progress import verdict

API = "/apis/resource.k8s.io/v1"
CLASS = "gpu"
OF_SIZE = {"medium": ("4", "t4", "16Gi"), "large": ("8", "a100", "80Gi")}
"""By size of node: how many devices, their model and memory."""
PER_THREE_NODES = 12
SELECTORS: tuple[list[str], ...] = (
    [],
    [f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'],
    [f'device.attributes["{DRIVER}"].model == "t4"'],
)
"""Of each template's request."""


def annotations_of(size: str) -> dict[str, str]:
    """For the simulated driver."""
    count, model, memory = OF_SIZE.get(size, ("0", "", ""))
    return {DEVICES: count, MODEL: model, MEMORY: memory} if model else {}


def preparations(namespace: str) -> list[tuple[str, Object]]:
    """The class and the templates, as (path, object)."""
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    made: list[tuple[str, Object]] = [
        (f"{API}/deviceclasses", {"metadata": {"name": CLASS}, "spec": {"selectors": [selector]}})
    ]
    for number, expressions in enumerate(SELECTORS):
        exactly = {"deviceClassName": CLASS, "selectors": [{"cel": {"expression": each}} for each in expressions]}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        template = {"metadata": {"name": template_of(number)}, "spec": {"spec": spec}}
        made.append((f"{API}/namespaces/{namespace}/resourceclaimtemplates", template))
    return made


def template_of(kind: int) -> str:
    return f"gpu-{kind % len(SELECTORS)}"


def claims_of(kind: int) -> list[Object]:
    return [{"name": "gpu", "resourceClaimTemplateName": template_of(kind)}]


@dataclass(frozen=True, slots=True)
class Allocations:
    """What the API server shows at the end. `doubled`: devices that several claims have."""

    claims: int
    allocated: int
    doubled: list[str]

    @property
    def passed(self) -> bool:
        return self.claims == self.allocated and not self.doubled

    def report(self) -> list[str]:
        taken = f"each of {self.claims:,} claims has a device ({self.allocated:,} do)"
        alone = "no device has two claims"
        if self.doubled:
            alone += f": {self.doubled[0]} has (and {len(self.doubled) - 1} more)"
        return [verdict(taken, self.claims == self.allocated), verdict(alone, not self.doubled)]


async def allocations(client: KubeClient, namespace: str) -> Allocations:
    answer = await client.call("GET", f"{API}/namespaces/{namespace}/resourceclaims")
    if not answer.ok:
        raise ClusterError(f"the claims cannot be listed: {answer.message}")
    claims = msgspec.json.decode(answer.body)["items"]
    users: Counter[str] = Counter()
    allocated = 0
    for claim in claims:
        results = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ()
        allocated += bool(results)
        users.update(f"{each['driver']}/{each['pool']}/{each['device']}" for each in results)
    return Allocations(len(claims), allocated, sorted(device for device, count in users.items() if count > 1))
