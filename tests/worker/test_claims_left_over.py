"""A pod whose claim for extended resources was left by an earlier attempt is of the class of others without one."""

import msgspec

from services.worker.proposer import Proposer
from shared.cluster.nodetable import NodeTable
from shared.framework.loading import load_frameworks
from shared.messages.evaluation import Ties
from shared.messages.rounds import ClassAnswer, ClassAsk
from shared.model.devices import ResourceClaim
from shared.model.objects import DEFAULT_SCHEDULER, ObjectKind, Pod, decode_node, decode_pod, object_from
from testing.inprocess.device_workloads import claiming, device_objects
from testing.inprocess.workloads import NAMESPACE, Workload, node, node_name


def made_pod(number: int) -> Pod:
    return decode_pod(msgspec.json.encode(claiming("extended", Workload("plain").pod(number, 1))))


def left_by(pod: Pod) -> ResourceClaim:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    metadata = {
        "name": f"{pod.name}-extended-resources-abcde",
        "namespace": NAMESPACE,
        "uid": "left",
        "ownerReferences": [owner],
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
    }
    claim = object_from(ObjectKind.RESOURCE_CLAIM, {"metadata": metadata, "spec": {"devices": {"requests": []}}})
    assert isinstance(claim, ResourceClaim)
    return msgspec.structs.replace(claim, promised=True)


class Shard:
    def __init__(self) -> None:
        self.table = NodeTable()
        self.table.upsert_node(decode_node(msgspec.json.encode(node(0))))
        for kind, obj in device_objects("extended", [node_name(0)]):
            self.table.objects.upsert(object_from(ObjectKind(kind), obj))
        self.proposer = Proposer(self.table, load_frameworks(None), Ties(mode="name"), 1.0)
        self._round = 0

    def propose(self, pod: Pod | None) -> ClassAnswer:
        self._round += 1
        (answer,) = self.proposer.propose([ClassAsk("class", DEFAULT_SCHEDULER, 1, pod)], self._round)
        return answer


def test_others_of_the_class_are_not_judged_by_a_claim_that_one_pod_has() -> None:
    shard, pod, other = Shard(), made_pod(0), made_pod(1)
    shard.table.objects.upsert(left_by(pod))
    rejected = shard.propose(pod)
    assert rejected.pre_filter is not None and "in the process of being allocated" in rejected.pre_filter.message
    assert shard.propose(None).unknown
    assert shard.propose(other).ladder.nodes == [node_name(0)]


def test_a_class_that_was_rejected_for_such_a_claim_is_judged_again_once_that_is_gone() -> None:
    shard, pod = Shard(), made_pod(0)
    claim = left_by(pod)
    shard.table.objects.upsert(claim)
    assert shard.propose(pod).pre_filter is not None
    shard.table.objects.remove(ObjectKind.RESOURCE_CLAIM, claim.key)
    assert shard.propose(pod).ladder.nodes == [node_name(0)]
