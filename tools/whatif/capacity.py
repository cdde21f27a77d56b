"""How many more pods of one kind fit: as many copies are decided as find a node, in full rounds, without preemption."""

from collections import Counter
from dataclasses import dataclass

from msgspec.structs import replace

from shared.errors import UserError
from shared.model.objects import Node, Pod
from tools.whatif.answer import Answer, Capacity, Question
from tools.whatif.engine import Engine

ROUND = 256
"""Copies decided at once: what a round of the cycle holds by default."""
CHUNK = 2 * ROUND
MAX_LIMIT = 1_000_000
NEVER = "Never"
GROUP_LABELS = (
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
)
"""Labels by which nodes are grouped if none is named: the first that any node has."""
NO_VALUE = "(none)"


@dataclass(slots=True)
class Grouping:
    label: str
    values: dict[str, str]
    """By node."""

    @classmethod
    def of(cls, nodes: list[Node], label: str) -> "Grouping":
        if not label:
            label = next((each for each in GROUP_LABELS if any(each in node.metadata.labels for node in nodes)), "")
        return cls(label, {node.name: node.metadata.labels.get(label, NO_VALUE) for node in nodes})


def capacity(engine: Engine) -> Answer:
    """With the changes of the question; before them as well, if there are any."""
    question = engine.question
    if len(engine.manifests.pods) != 1:
        raise UserError(f"capacity: expected one pod, not {len(engine.manifests.pods)}")
    if not 1 <= question.limit <= MAX_LIMIT:
        raise UserError(f"limit: takes 1 to {MAX_LIMIT}, not {question.limit}")
    after, nodes = _measured(engine)
    before = None
    if question.add_nodes or engine.manifests.nodes or question.remove or question.drain or question.config is not None:
        unchanged = replace(question, manifests=_pods_only(question), add_nodes=0, remove=[], drain=[], config=None)
        before, _ = _measured(Engine(engine.live, unchanged, {}, engine.check, engine.converse))
    state = engine.live.state
    return Answer(
        state.epoch,
        state.seq,
        engine.live.at,
        nodes=nodes,
        lost=engine.lost,
        notes=engine.notes,
        capacity=after,
        capacity_before=before,
    )


def _measured(engine: Engine) -> tuple[Capacity, dict[str, int]]:
    """How many copies fit, and how many of them on each node."""
    question = engine.question
    copied = engine.manifests.pods[0]
    cores = engine.cores(ROUND)
    engine.decide(cores, [each for each in engine.asked() if each.origin != "new"])
    uids: list[str] = []
    while len(uids) < question.limit:
        chunk = [_copy(copied, len(uids) + i) for i in range(min(CHUNK, question.limit - len(uids)))]
        cores.submit((pod, 0.0) for pod in chunk)
        cores.settle()
        uids += (pod.uid for pod in chunk)
        if not all(map(cores.node_of, (pod.uid for pod in chunk))):
            break
    where = [cores.node_of(uid) for uid in uids]
    grouping = Grouping.of(list(cores.snapshot.cluster.nodes), question.by)
    groups = Counter(grouping.values[node] for node in where if node) if grouping.label else Counter[str]()
    refused = next((uid for uid, node in zip(uids, where, strict=True) if not node), None)
    info = None if refused is None else cores.queued(refused)
    nodes = Counter(node for node in where if node)
    message = "" if info is None else info.last_failure or info.gate_reason
    by_group = dict(sorted(groups.items()))
    found = Capacity(nodes.total(), len(nodes), grouping.label, by_group, refused is None, message)
    return found, dict(nodes)


def _copy(pod: Pod, number: int) -> Pod:
    """Pods of a kind share what does not tell them apart, so they are one class."""
    metadata = replace(pod.metadata, name=f"{pod.name}-{number}", uid=f"whatif-copy-{number}")
    return replace(pod, metadata=metadata, spec=replace(pod.spec, preemption_policy=NEVER))


def _pods_only(question: Question) -> list[object]:
    return [each for each in question.manifests if not (isinstance(each, dict) and each.get("kind") == "Node")]
