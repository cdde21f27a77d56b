"""Explains a pod of a running pipeline: asks the queue for the pod, the cycle how nodes are judged for it and what it
remembers, and the snapshot where it is.

    in the queue --------> judged as of now, and what would help
    on a node -----------> the decision as it was made, from the cycle's journal
    neither -------------> what is remembered, or why it cannot be here
"""

from collections.abc import Sequence
from typing import Protocol

from shared.messages.explaining import ExplainPod, NodeFindings, PodExplained, Remembered
from shared.messages.inspection import DescribedPod, FindPod, ListQueue, PodFound, QueueListed
from shared.model.codec import pod_from_msgpack
from shared.model.pod import Pod
from tools.cli.service_client import ServiceClient
from tools.cli.words import IN_FLIGHT, waits_for
from tools.cli.words import gate as gate_text
from tools.explain import words
from tools.explain.explanation import Explanation, Group, Help, NodeSaid, Waiting
from tools.explain.help import Advisor, going
from tools.explain.history import FAILED, NOMINATED, told

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
    listed = await sources.queued(ListQueue(namespace=namespace, name=name, bodies=True))
    key = f"{namespace}/{name}"
    if listed.pods:
        queued = listed.pods[-1]
        if queued.state != "binding":
            return await _pending(sources, queued, listed.now, tuple(nodes), helps=helps)
        remembered = await sources.explain(ExplainPod(namespace, name, queued.uid))
        return told(key, remembered, node=queued.node, is_binding=True)
    remembered = await sources.explain(ExplainPod(namespace, name))
    found = await sources.find(FindPod(namespace, name))
    if found.node:
        if remembered.uid and found.uid and remembered.uid != found.uid:
            remembered = await sources.explain(ExplainPod(namespace, name, found.uid))
        return told(key, remembered, node=found.node, is_binding=found.assumed)
    if not remembered.journal and listed.foreign:
        known = words.listed(listed.schedulers or list(remembered.profiles), 8)
        text = f"{key} is not Flotilla's: its schedulerName is {listed.foreign}, and the profiles here are {known}"
        return Explanation(pod=key, sentence=text, state="unknown", now=remembered.now)
    return told(key, remembered, node="", is_binding=False)


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
    if helps and not findings.feasible:
        help_, pairs = await Advisor(sources.explain, pod, findings).help()
    return of_findings(pod, queued, explained, findings, now, help_, pairs)


def of_findings(
    pod: Pod,
    queued: DescribedPod | None,
    explained: PodExplained,
    findings: NodeFindings,
    now: float,
    help_: Sequence[Help] = (),
    pairs: Sequence[Help] = (),
) -> Explanation:
    """`queued`: as the queue describes the pod; None for a pod that is only supposed."""
    groups = words.groups(findings, pod)
    verdict = _of_gang(pod, explained.journal) or _preempting(queued, explained.journal)
    is_whole = bool(verdict)
    verdict = verdict or _verdict(pod, findings, groups, queued)
    return Explanation(
        pod=pod.key,
        sentence=verdict if is_whole else _sentence(verdict, queued, findings, help_, pairs),
        state="pending",
        now=now,
        uid=pod.uid,
        nodes=findings.nodes,
        feasible=findings.feasible,
        waiting=None if queued is None else _waiting(queued, now),
        groups=groups,
        help=tuple(help_),
        pairs=tuple(pairs),
        best=findings.best,
        weights=explained.weights,
        won_by=words.won_by(findings.best),
        asked_nodes=_asked(findings, pod),
        models=findings.models,
        preemption=_preemption(findings),
        journal=explained.journal,
        notes=tuple(_notes(queued, explained)),
    )


def _verdict(pod: Pod, findings: NodeFindings, groups: Sequence[Group], queued: DescribedPod | None) -> str:
    total = findings.nodes
    gate = "" if queued is None or not queued.gate else f" is held back by {gate_text(queued)}"
    if not total:
        return f"{pod.key} has nowhere to go: the cluster has no nodes{gate}"
    if findings.feasible:
        where = "the only node" if total == 1 else f"{findings.feasible:,} of {total:,} nodes"
        return f"{pod.key}{gate} fits {where}" if not gate else f"{pod.key}{gate}; it would fit {where}"
    nowhere = "does not fit the only node" if total == 1 else f"fits none of {total:,} nodes"
    if findings.pre_filter is not None:
        return f"{pod.key}{gate and gate + ', and'} {nowhere}: {findings.pre_filter.message}"
    shown = [f"{group.nodes:,} {group.text}" if total > 1 else f"it {group.text}" for group in groups[: words.SHORT]]
    rest = sum(group.nodes for group in groups[words.SHORT :])
    if rest:
        shown.append(f"{rest:,} for other reasons")
    return f"{pod.key}{gate and gate + ', and'} {nowhere}: {', '.join(shown)}"


def _of_gang(pod: Pod, journal: Sequence[Remembered]) -> str:
    """If another member of its gang kept the pod out: which."""
    last = journal[0] if journal else None
    if last is None or last.kind != FAILED or not last.kept_out_by or pod.key in last.kept_out_by:
        return ""
    member = last.kept_out_by[0]
    others = f" and {words.count(len(last.kept_out_by) - 1, 'other')}" if len(last.kept_out_by) > 1 else ""
    return (
        f"{pod.key} was not placed, because its gang {last.gang} is placed as a whole or not at all, and member "
        f"{member}{others} fitted nowhere (flotilla explain {member})"
    )


def _preempting(queued: DescribedPod | None, journal: Sequence[Remembered]) -> str:
    """If the pod waits until its victims are gone: which, and where."""
    last = next((each for each in journal if each.kind == NOMINATED), None)
    if queued is None or last is None or queued.nominated != last.node or not last.victims:
        return ""
    victims = words.listed(list(last.victims), 3)
    return (
        f"{queued.namespace}/{queued.name} fits nowhere as it is, and waits until "
        f"{words.count(len(last.victims), 'pod')} of lower priority left node {last.node}: {victims}"
    )


def _sentence(
    verdict: str, queued: DescribedPod | None, findings: NodeFindings, help_: Sequence[Help], pairs: Sequence[Help]
) -> str:
    """The verdict, and what helps first."""
    if findings.feasible and queued is not None and not queued.gate:
        last = f" (its last attempt failed: {queued.message.rstrip('.')})" if queued.message else ""
        return f"{verdict}; {_state(queued)}{last}"
    if queued is not None and queued.gate and findings.feasible:
        return f"{verdict} as soon as {_ungated(queued)}"
    if help_:
        return f"{verdict}; it would fit if {help_[0].text}"
    if pairs:
        return f"{verdict}; it would fit if {pairs[0].text}"
    return verdict


def _state(queued: DescribedPod) -> str:
    match queued.state:
        case "in-flight":
            return "it is being decided"
        case "backoff" | "error-backoff":
            return "it backs off after its last attempt, and is tried again then"
        case "active":
            return "it is in the active queue"
        case _:
            return "its next attempt has not come yet: what it waited for has happened, or was not watched for"


def _ungated(queued: DescribedPod) -> str:
    if queued.gate == "SchedulingGates":
        return "its scheduling gates are removed"
    if queued.gate == "DefaultPreemption":
        return "its victims are gone"
    return f"{queued.gate} lets it go"


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


def _preemption(findings: NodeFindings) -> str:
    if findings.feasible or findings.pre_filter is not None or not findings.nodes:
        return ""
    if findings.candidates:
        return f"it can preempt: {going(findings.candidates[0])}"
    if findings.ineligible:
        return f"it cannot preempt: {findings.ineligible.rstrip('.')}"
    return "no evictions of pods of lower priority would help"


def _notes(queued: DescribedPod | None, explained: PodExplained) -> Sequence[str]:
    notes = list(queued.claims) if queued is not None else []
    if explained.extenders:
        notes.append("extenders are asked only when it is tried: what they would say is not known here")
    if queued is not None and queued.nominated:
        notes.append(f"it is nominated to node {queued.nominated}, which its victims are to leave")
    return notes


def _without_findings(pod: Pod, queued: DescribedPod, explained: PodExplained, now: float, why: str) -> Explanation:
    if not why:
        why = f"no profile is named {pod.spec.scheduler_name}: there are {words.listed(list(explained.profiles), 8)}"
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
