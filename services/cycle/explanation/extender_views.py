"""What extenders say of one pod that is explained: asked as in a round, about the nodes that plugins leave."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from flotilla.results import Status, unschedulable
from services.cycle.extenders import ExtenderQuestion
from shared.extenders.talk import PLUGIN, Judgement
from shared.messages.explaining import (
    BEST_NODES,
    MAX_EXAMPLES,
    MAX_GROUPS,
    ExtendersSaid,
    NodeFindings,
    NodeVerdict,
    PluginScore,
    Rejected,
    ScoredNode,
)
from shared.model.objects import Pod

MAX_REASON = 256
"""Characters of an extender's reason, and of a failure."""
_DROPPED = unschedulable("dropped without a reason").by(PLUGIN)


def question_about(pod: Pod, findings: NodeFindings) -> ExtenderQuestion | None:
    """None if plugins leave no node, or more than can be asked about."""
    if not findings.feasible or len(findings.offers) != findings.feasible:
        return None
    return ExtenderQuestion("", pod, tuple(sorted(node for node, _ in findings.offers)))


def with_judgement(findings: NodeFindings, judgement: Judgement) -> NodeFindings:
    """The findings after the extenders have spoken. Plugins' scores stay those before nodes were left out."""
    troubles = tuple(trouble[:MAX_REASON] for trouble in judgement.troubles[:MAX_EXAMPLES])
    if judgement.failure is not None:
        return without_judgement(findings, judgement.failure.message[:MAX_REASON], troubles)
    added = judgement.added
    rejected = {node: _cut(judgement.rejected.get(node, _DROPPED)) for node, _ in findings.offers if node not in added}
    return replace(
        findings,
        feasible=len(added),
        rejected=(*findings.rejected, *_groups(rejected))[:MAX_GROUPS],
        best=tuple(_best(findings, added)),
        verdicts=tuple(_judged(verdict, added, rejected) for verdict in findings.verdicts),
        extenders=ExtendersSaid(findings.feasible, len(added), "", troubles),
        offers=(),
    )


def without_judgement(findings: NodeFindings, failure: str, troubles: tuple[str, ...] = ()) -> NodeFindings:
    return replace(findings, extenders=ExtendersSaid(findings.feasible, 0, failure, troubles), offers=())


def _cut(status: Status) -> Status:
    return replace(status, reasons=tuple(reason[:MAX_REASON] for reason in status.reasons))


def _groups(rejected: Mapping[str, Status]) -> Iterator[Rejected]:
    by_status: dict[Status, list[str]] = {}
    for node, status in rejected.items():
        by_status.setdefault(status, []).append(node)
    for status, nodes in sorted(by_status.items(), key=lambda each: -len(each[1])):
        yield Rejected(status, len(nodes), tuple(sorted(nodes)[:MAX_EXAMPLES]))


def _best(findings: NodeFindings, added: Mapping[str, int]) -> list[ScoredNode]:
    """By the sum of plugins' and extenders' scores. What each plugin gave is known of the plugins' own best nodes."""
    known = {each.node: each for each in findings.best}
    totals = {node: total for node, total in findings.offers if node in added}
    nodes = sorted(totals, key=lambda node: (-totals[node] - added[node], node))[:BEST_NODES]
    return [_with_added(known.get(node, ScoredNode(node, totals[node])), added[node]) for node in nodes]


def _with_added(scored: ScoredNode, added: int) -> ScoredNode:
    if not added:
        return scored
    plugins = {**scored.plugins, PLUGIN: PluginScore(added, added, added)}
    return ScoredNode(scored.node, scored.total + added, plugins)


def _judged(verdict: NodeVerdict, added: Mapping[str, int], rejected: Mapping[str, Status]) -> NodeVerdict:
    """About a node that was asked about by name."""
    if verdict.node in rejected:
        return NodeVerdict(verdict.node, (rejected[verdict.node],))
    if verdict.score is None:
        return verdict
    return replace(verdict, score=_with_added(verdict.score, added.get(verdict.node, 0)))
