"""Explains a pod of a running pipeline: asks the queue for the pod, the cycle how nodes are judged for it and what it
remembers, and the snapshot where it is.

    in the queue --------> judged as of now, and what would help
    on a node -----------> the decision as it was made, from the cycle's journal
    neither -------------> what is remembered, or why it cannot be here
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from shared.explain.advice import Advisor, Help, answered
from shared.explain.words import listed
from shared.messages.explaining import FAILED, ExplainPod, NodeFindings, PodExplained
from shared.messages.inspection import DescribedPod, FindPod, ListQueue, PodFound, QueueListed
from shared.model.codec import pod_from_msgpack
from shared.model.pod import Pod
from tools.cli.service_client import ServiceClient
from tools.cli.words import IN_FLIGHT, waits_for
from tools.explain import sentences, words
from tools.explain.explanation import Explanation, NodeSaid, Waiting
from tools.explain.history import told

EXPLAIN_TIMEOUT = 12.0
"""Seconds to wait for an explanation: the cycle gives up earlier, and says so."""


class Sources(Protocol):
    """Where an explanation comes from: services, or their cores in one process."""

    async def queued(self, request: ListQueue) -> QueueListed: ...

    async def explain(self, request: ExplainPod) -> PodExplained: ...

    async def find(self, request: FindPod) -> PodFound: ...


class LiveSources:
    """A running pipeline, over NATS. ClusterError if a service does not answer."""

    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    async def queued(self, request: ListQueue) -> QueueListed:
        from shared.bus.subjects import QUEUE_LIST

        return await self._client.request("queue", QUEUE_LIST, request, QueueListed)

    async def explain(self, request: ExplainPod) -> PodExplained:
        from shared.bus.subjects import CYCLE_EXPLAIN

        return await self._client.request("cycle", CYCLE_EXPLAIN, request, PodExplained, timeout=EXPLAIN_TIMEOUT)

    async def find(self, request: FindPod) -> PodFound:
        from shared.bus.subjects import SNAPSHOT_LIST

        return await self._client.request("snapshot", SNAPSHOT_LIST, request, PodFound)


async def explain(
    sources: Sources, namespace: str, name: str, *, nodes: Sequence[str] = (), helps: bool = True
) -> Explanation:
    """`nodes`: to be explained in detail. `helps`: look for what would help, which asks many times."""
    queue = await sources.queued(ListQueue(namespace=namespace, name=name, bodies=True))
    key = f"{namespace}/{name}"
    if queue.pods:
        queued = queue.pods[-1]
        if queued.state != "binding":
            return await _pending(sources, queued, queue.now, tuple(nodes), helps=helps)
        remembered = await sources.explain(ExplainPod(namespace, name, queued.uid))
        return told(key, remembered, node=queued.node, is_binding=True)
    remembered = await sources.explain(ExplainPod(namespace, name))
    found = await sources.find(FindPod(namespace, name))
    if found.node:
        if remembered.uid and found.uid and remembered.uid != found.uid:
            remembered = await sources.explain(ExplainPod(namespace, name, found.uid))
        return told(key, remembered, node=found.node, is_binding=found.assumed)
    if not remembered.journal and queue.foreign:
        known = listed(queue.schedulers or list(remembered.profiles), 8)
        text = f"{key} is not Flotilla's: its schedulerName is {queue.foreign}, and the profiles here are {known}"
        return Explanation(pod=key, sentence=text, state="unknown", now=remembered.now)
    return told(key, remembered, node="", is_binding=False)


def held_up(binding: Explanation, not_ready: Sequence[str]) -> Explanation:
    """About a pod that is being bound: first what is not ready, for which it may wait."""
    if not not_ready:
        return binding
    first, *others = not_ready
    rest = binding.sentence.removeprefix(f"{binding.pod} ")
    sentence = f"{binding.pod} is not bound while this is {first}; it {rest}"
    return replace(binding, sentence=sentence, notes=(*others, *binding.notes))


async def _pending(
    sources: Sources, queued: DescribedPod, now: float, nodes: tuple[str, ...], *, helps: bool
) -> Explanation:
    pod = pod_from_msgpack(queued.body)
    request = ExplainPod(queued.namespace, queued.name, queued.uid, queued.body, nodes)
    explained = await sources.explain(request)
    findings = explained.findings
    if findings is None or findings.failure is not None:
        why = explained.problem or (findings.failure.message if findings and findings.failure else "")
        return _without_findings(pod, queued, explained, now, why)
    help_: list[Help] = []
    pairs: list[Help] = []
    if helps and not findings.feasible and findings.extenders is None:
        help_, pairs = await answered(Advisor(pod, findings).help(), sources.explain)
    return of_findings(pod, queued, explained, findings, now, help_, pairs, nodes)


def of_findings(
    pod: Pod,
    queued: DescribedPod | None,
    explained: PodExplained,
    findings: NodeFindings,
    now: float,
    help_: Sequence[Help] = (),
    pairs: Sequence[Help] = (),
    nodes: Sequence[str] = (),
) -> Explanation:
    """`queued`: as the queue describes the pod; None for a pod that is only supposed. `nodes`: that were asked for."""
    groups = words.groups(findings, pod)
    return Explanation(
        pod=pod.key,
        sentence=sentences.sentence(pod, groups, queued, explained, findings, help_, pairs),
        state="pending",
        now=now,
        uid=pod.uid,
        nodes=findings.nodes,
        feasible=findings.feasible,
        waiting=None if queued is None else _waiting(queued, now),
        groups=groups,
        help=tuple(_apart_from_extenders(help_, explained)),
        pairs=tuple(_apart_from_extenders(pairs, explained)),
        best=findings.best,
        weights=explained.weights,
        won_by=words.won_by(findings.best),
        asked_nodes=(*_asked(findings, pod), *_not_judged(nodes, findings)),
        models=findings.models,
        preemption=sentences.preemption(findings),
        journal=explained.journal,
        notes=tuple(sentences.notes(queued, explained, findings)),
        gang=_gang(queued, explained),
    )


def _gang(queued: DescribedPod | None, explained: PodExplained) -> str:
    if queued is not None and queued.gang:
        return queued.gang
    last = explained.journal[0] if explained.journal else None
    return "" if last is None or last.kind != FAILED else last.gang


def _apart_from_extenders(found: Sequence[Help], explained: PodExplained) -> Sequence[Help]:
    """Extenders are not asked about changes."""
    return [replace(each, certain=False) for each in found] if explained.extenders else found


def _waiting(queued: DescribedPod, now: float) -> Waiting:
    return Waiting(
        state=queued.state,
        since=queued.first_seen,
        attempts=queued.attempts,
        message=queued.message,
        waits_for=waits_for(queued, now),
        gate=queued.gate,
        gate_reason=queued.gate_reason,
        until=queued.deadline if queued.state in IN_FLIGHT else queued.backoff_until,
        node=queued.node,
        nominated=queued.nominated,
    )


def _asked(findings: NodeFindings, pod: Pod) -> tuple[NodeSaid, ...]:
    said: list[NodeSaid] = []
    for verdict in findings.verdicts:
        if verdict.score is not None:
            said.append(NodeSaid(node=verdict.node, fits=True, text="fits", score=verdict.score))
        else:
            said.append(NodeSaid(node=verdict.node, fits=False, text=words.of_node(verdict, findings, pod)))
    return tuple(said)


def _not_judged(nodes: Sequence[str], findings: NodeFindings) -> list[NodeSaid]:
    """The nodes without a verdict. If PreFilter rejects the pod, no node has one, whether or not it exists."""
    judged = {verdict.node for verdict in findings.verdicts}
    left = [node for node in dict.fromkeys(nodes) if node not in judged]
    if findings.pre_filter is not None:
        text = f"nodes were not judged, since the pod fits none: {findings.pre_filter.message}"
        return [NodeSaid(node=node, fits=False, text=text) for node in left]
    return [NodeSaid(node=node, fits=False, text="there is no node of this name", exists=False) for node in left]


def _without_findings(pod: Pod, queued: DescribedPod, explained: PodExplained, now: float, why: str) -> Explanation:
    if not why:
        why = f"no profile is named {pod.spec.scheduler_name}: there are {listed(list(explained.profiles), 8)}"
    text = f"{pod.key} is {queued.state}, and cannot be judged: {why}"
    return Explanation(
        pod=pod.key,
        sentence=text,
        state="pending",
        now=now,
        uid=pod.uid,
        waiting=_waiting(queued, now),
        journal=explained.journal,
    )
