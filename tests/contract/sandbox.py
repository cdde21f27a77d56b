"""A namespace for a module of tests, with all objects that they create; deleted at the end."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.contract.server import DEADLINE, MERGE, Object, Server

SWEPT = (
    "/api/v1/namespaces/{}/pods",
    "/api/v1/namespaces/{}/persistentvolumeclaims",
    "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims",
    "/api/v1/namespaces/{}/configmaps",
    "/api/v1/namespaces/{}/serviceaccounts",
    "/apis/events.k8s.io/v1/namespaces/{}/events",
    "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "/apis/apps/v1/namespaces/{}/replicasets",
    "/apis/scheduling.k8s.io/v1alpha2/namespaces/{}/podgroups",
)
"""Objects that tests create. Others in the namespace are deleted with it, if a controller does that."""
NODES = "/api/v1/nodes"
VOLUMES = "/api/v1/persistentvolumes"
OWNER = "flotilla.io/contract"
"""The label of all cluster-scoped objects, which finds the leftovers of a run that could not clean up."""
POLL = 0.05

Condition = Callable[[], Awaitable[Any]]


class Sandbox:
    """`name`: of the namespace, and prefix of the names of cluster-scoped objects."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.pods = f"/api/v1/namespaces/{name}/pods"
        self.events = f"/apis/events.k8s.io/v1/namespaces/{name}/events"
        self.leases = f"/apis/coordination.k8s.io/v1/namespaces/{name}/leases"
        self.claims = f"/api/v1/namespaces/{name}/persistentvolumeclaims"
        self.budgets = f"/apis/policy/v1/namespaces/{name}/poddisruptionbudgets"
        self.configs = f"/api/v1/namespaces/{name}/configmaps"
        self._made: list[str] = []

    def unique(self, name: str) -> str:
        """A name that is unique in the cluster."""
        return f"{self.name}-{name}"

    async def pod(self, name: str, labels: dict[str, str] | None = None, **spec: Any) -> Object:
        wanted = a_pod(name, labels, **spec)
        if "priorityClassName" in spec:
            return await self.of_new_class(self.pods, wanted)
        return await self.server.post(self.pods, wanted)

    async def of_new_class(self, folder: str, body: Object) -> Object:
        """Create an object that names a priority class. A server that has not heard of a new one yet refuses it."""

        async def created() -> Object | None:
            answer = await self.server.ask("POST", folder, body)
            assert answer.status in (201, 403), answer
            return answer.body if answer.status == 201 else None

        made: Object = await self.until(created, f"refused: {body}")
        return made

    async def bind(self, name: str, to: str) -> None:
        await self.server.post(f"{self.pods}/{name}/binding", a_binding(name, to))

    async def bound_pod(self, name: str, to: str = "nowhere", **spec: Any) -> Object:
        await self.server.post(self.pods, a_pod(name, **spec))
        await self.bind(name, self.unique(to))
        return await self.server.get(f"{self.pods}/{name}")

    async def node(
        self, name: str, labels: dict[str, str] | None = None, spec: Object | None = None, **amounts: str
    ) -> str:
        """Returns its name. It gets only the taints of its spec: the not-ready taint of new nodes is removed."""
        capacity = {"cpu": "4", "memory": "8Gi", "pods": "110", **amounts}
        full = self.unique(name)
        labelled = {"kubernetes.io/hostname": full, **(labels or {})}
        ready = {"type": "Ready", "status": "True", "reason": "Contract", "message": ""}
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
        await self.make(NODES, name, labels=labelled, spec=spec or {}, status=status)
        await self.server.patch(f"{NODES}/{full}", {"spec": {"taints": (spec or {}).get("taints")}})
        return full

    async def make(self, folder: str, name: str, labels: dict[str, str] | None = None, **fields: Any) -> Object:
        """Create a cluster-scoped object."""
        full = self.unique(name)
        metadata = {"name": full, "labels": {**(labels or {}), OWNER: self.name}}
        self._made.append(f"{folder}/{full}")
        return await self.server.post(folder, {"metadata": metadata, **fields})

    def is_of_generation(self, pod: Object, generation: int) -> bool:
        """Always true before v1.34, where pods have no generation."""
        return not self.server.since(34) or pod["metadata"]["generation"] == generation

    async def until(self, condition: Condition, otherwise: str, patience: float = DEADLINE) -> Any:
        """Wait until the condition returns a true value, and return it."""
        deadline = asyncio.get_running_loop().time() + patience
        while not (said := await condition()):
            assert asyncio.get_running_loop().time() < deadline, f"after {patience:g} s: {otherwise}"
            await asyncio.sleep(POLL)
        return said

    async def clean_up(self) -> None:
        """Delete everything, without grace periods and finalizers. Missing objects and kinds are ignored."""
        for folder in (each.format(self.name) for each in SWEPT):
            listed = await self.server.ask("GET", folder)
            for item in listed.body.get("items", []):
                if item["metadata"].get("finalizers"):
                    await self._remove_finalizers(f"{folder}/{item['metadata']['name']}")
            await self.server.ask("DELETE", f"{folder}?gracePeriodSeconds=0")
        for path in reversed(self._made):
            if path.startswith(VOLUMES):
                await self._remove_finalizers(path)
            await self.server.ask("DELETE", path)
        await self.server.ask("DELETE", f"/api/v1/namespaces/{self.name}")

    async def _remove_finalizers(self, path: str) -> None:
        await self.server.ask("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)


@asynccontextmanager
async def a_sandbox(server: Server) -> AsyncIterator[Sandbox]:
    """Includes the ServiceAccount that pods need, which a controller creates elsewhere."""
    sandbox = Sandbox(server, f"flotilla-contract-{secrets.token_hex(4)}")
    await server.post("/api/v1/namespaces", {"metadata": {"name": sandbox.name, "labels": {OWNER: sandbox.name}}})
    try:
        accounts = f"/api/v1/namespaces/{sandbox.name}/serviceaccounts"
        made = await server.ask("POST", accounts, {"metadata": {"name": "default"}})
        assert made.status in (201, 409), made
        yield sandbox
    finally:
        await sandbox.clean_up()


def a_pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    given = {"containers": [{"name": "main", "image": "app:1"}], "automountServiceAccountToken": False}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {**given, **spec}}


def a_binding(name: str, to: str, **metadata: object) -> Object:
    return {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": to}}


def condition_of(obj: Object, type_: str) -> Object:
    """{} if there is none of this type."""
    return next((each for each in obj.get("status", {}).get("conditions", []) if each["type"] == type_), {})
