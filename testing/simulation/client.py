"""What a process sees of the API server: its calls take a while, may be answered too late, and may be refused."""

from collections.abc import Callable

from shared.framework.plugin import ApiCall
from shared.kube.errors import Unreachable
from shared.kube.notes import Condition, PodRef, PodStanding, StandingCondition
from shared.kube.outcome import Outcome, Result
from shared.model.objects import Pod
from testing.simulation.apiserver import ApiServer

BUSY = Result(Outcome.FAILED, 503, "too busy")


class SimClient:
    """As `shared.kube.client.KubeClient`, of one process."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def get(self, path: str) -> bytes | None:
        raise Unreachable("server", f"GET {path}", "nobody compares here", maybe_done=False)

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        try:
            found: Pod | None = await self._server.call(lambda: self._server.pod_named(name))
        except TimeoutError:
            raise Unreachable("server", f"GET {name}", "no answer", maybe_done=True) from None
        return found

    async def pod_standing(self, namespace: str, name: str) -> PodStanding | None:
        found = await self.get_pod(namespace, name)
        return None if found is None else _standing(found)

    async def execute(self, call: ApiCall, timeout: float) -> Result:
        metadata, node = call.body["metadata"], call.body["target"]["name"]
        name, uid, version = metadata["name"], metadata["uid"], metadata.get("resourceVersion", "")
        return await self._write(lambda: self._server.bind(name, uid, node, version))

    async def create_event(self, event: object) -> Result:
        return Result(Outcome.OK, 201, "")

    async def attempt(self, method: str, path: str, body: bytes | None = None, *, content_type: str = "") -> Result:
        """The count of a series of Events."""
        return Result(Outcome.OK, 200, "")

    async def patch_pod_condition(
        self, pod: PodRef, condition: Condition | None, nominated: str | None = None, version: str = ""
    ) -> Result:
        return await self._write(lambda: self._server.patch_status(pod, condition, nominated, version))

    async def clear_nomination(self, pod: PodRef, node: str) -> Result:
        return await self._write(lambda: self._server.clear_nomination(pod, node))

    async def delete_pod(self, pod: PodRef) -> Result:
        return await self._write(lambda: BUSY if self._server.refuses() else self._server.evict(pod))

    async def _write(self, work: Callable[[], Result]) -> Result:
        try:
            result: Result = await self._server.call(work, maybe_late=True)
        except TimeoutError:
            return Result(Outcome.UNKNOWN, message="no answer")
        return result


def _standing(pod: Pod) -> PodStanding:
    version = pod.metadata.resource_version
    told = [StandingCondition(c.type, c.status, c.reason, c.message) for c in pod.status.conditions]
    return PodStanding(
        pod.uid,
        pod.spec.node_name,
        pod.metadata.deletion_timestamp is not None,
        1,
        told,
        version,
        pod.status.nominated_node_name,
        pod.status.phase,
    )
