"""Looks at a workload whenever it or one of its objects has changed; removes what belongs to nobody any more.

    Deployment --> ReplicaSet --> pods        StatefulSet, DaemonSet, Job --> pods
    owner deleted --> its objects deleted
    node deleted --> the pods of workloads on it deleted

Without workloads a change of a pod costs nothing: no index is kept.
"""

from collections.abc import Callable
from functools import partial

from testing.simulator.cluster import SimulatedCluster
from testing.simulator.controllers import Controller
from testing.simulator.resources import NODES, PODS, ApiResource
from testing.simulator.store import DELETED, Change, Listener
from testing.simulator.workloads import daemon_sets, deployments, jobs, replica_sets, stateful_sets
from testing.simulator.workloads.ownership import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    STATEFUL_SETS,
    WORKLOADS,
    Ownership,
    Workload,
)

RECONCILE: dict[ApiResource, Callable[[Ownership, Workload], bool]] = {
    DEPLOYMENTS: deployments.reconcile,
    REPLICA_SETS: replica_sets.reconcile,
    STATEFUL_SETS: stateful_sets.reconcile,
    DAEMON_SETS: daemon_sets.reconcile,
    JOBS: jobs.reconcile,
}


class WorkloadControllers(Controller):
    def __init__(self, cluster: SimulatedCluster) -> None:
        listeners: dict[ApiResource, Listener] = {kind: partial(self._on_workload, kind) for kind in WORKLOADS}
        super().__init__(cluster, {**listeners, PODS: partial(self._on_dependent, PODS), NODES: self._on_node})
        self._ownership = Ownership(cluster)

    def _on_workload(self, resource: ApiResource, change: Change) -> None:
        gone = self._ownership.note_workload(resource, change)
        if gone is not None:
            self._make_due(("collect", change.item.uid), partial(self._collect, gone))
        elif change.type != DELETED:
            self._note(self._ownership.workloads[change.item.uid])
        if resource is REPLICA_SETS:
            self._on_dependent(resource, change)

    def _on_dependent(self, resource: ApiResource, change: Change) -> None:
        for owner in self._ownership.note_dependent(resource, change):
            self._note(owner)

    def _on_node(self, change: Change) -> None:
        """A new or changed node may get or lose pods of DaemonSets; a deleted one takes its pods with it."""
        for workload in self._ownership.workloads.values():
            if workload.resource is DAEMON_SETS:
                self._note(workload)
        if change.type == DELETED and self._ownership.workloads:
            self._make_due((NODES, change.item.name), partial(self._clear, change.item.name))

    def _note(self, workload: Workload) -> None:
        self._make_due(workload.item.uid, partial(self._look_at, workload.item.uid))

    def _look_at(self, uid: str) -> None:
        workload = self._ownership.workloads.get(uid)
        if workload is not None and RECONCILE[workload.resource](self._ownership, workload):
            self._note(workload)

    def _collect(self, gone: Workload) -> None:
        """Remove what still belongs to it: it may have been orphaned."""
        uid = gone.item.uid.encode()
        for dependent in list(gone.dependents.values()):
            found = self._store.bucket(dependent.resource).get(dependent.item.namespace, dependent.item.name)
            if found is not None and uid in found.raw:
                self._ownership.remove(dependent)

    def _clear(self, node: str) -> None:
        if self._store.bucket(NODES).get("", node) is not None:
            return
        for workload in list(self._ownership.workloads.values()):
            for pod in workload.pods():
                if pod.node == node:
                    self._ownership.remove(pod, grace=0)
