"""DefaultBinder binds a pod by the API server's binding subresource."""

from flotilla.results import ApiCall, Status
from shared.framework.cyclestate import CycleState
from shared.framework.plugin import BindPlugin, PodParts


class DefaultBinder(BindPlugin):
    name = "DefaultBinder"
    reads_of_pod = PodParts.TEMPLATE
    reads_pod = False

    def bind(self, state: CycleState, node: str) -> Status | ApiCall:
        pod = state.pod
        return ApiCall(
            method="POST",
            path=f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding",
            body={
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            },
        )
