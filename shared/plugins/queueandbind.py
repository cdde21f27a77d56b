"""PrioritySort, SchedulingGates and DefaultBinder: the first and the last plugins that a pod meets."""

from flotilla.events import Action, Registration, Resource
from flotilla.objects import Pod
from flotilla.plugin import BindingState, BindPlugin, PreEnqueuePlugin, QueueSortPlugin
from flotilla.results import SUCCESS, ApiCall, Status, unresolvable
from shared.plugins.base import InTreePlugin, after_own_update


class PrioritySort(InTreePlugin, QueueSortPlugin):
    """Orders the queue by priority, then by the time of arrival."""

    name = "PrioritySort"

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[int, float]:
        return -pod.priority, queued_at


class SchedulingGates(InTreePlugin, PreEnqueuePlugin):
    """Keeps a pod out of the active queue until all its gates are gone."""

    name = "SchedulingGates"
    registrations = (Registration(Resource.POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, after_own_update),)

    def pre_enqueue(self, pod: Pod) -> Status:
        gates = pod.spec.scheduling_gates
        if not gates:
            return SUCCESS
        return unresolvable(f"waiting for scheduling gates: [{' '.join(gate.name for gate in gates)}]")


class DefaultBinder(InTreePlugin, BindPlugin):
    """Binds a pod by the API server's binding subresource."""

    name = "DefaultBinder"
    reads_pod = False

    def bind(self, state: BindingState, node: str) -> Status | ApiCall:
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
