"""Sentences about a pod that is pending: why no node takes it, what it waits for, and what would help."""

from collections.abc import Sequence

from shared.explain.advice import Help, going
from shared.explain.words import SHORT, count, in_spite_of, listed
from shared.messages.explaining import FAILED, MAX_OFFERED, NOMINATED, NodeFindings, PodExplained, Remembered
from shared.messages.inspection import DescribedPod
from shared.model.pod import Pod
from tools.cli.words import GANG_PLUGINS, gate
from tools.explain.explanation import Group


def sentence(
    pod: Pod,
    groups: Sequence[Group],
    queued: DescribedPod | None,
    explained: PodExplained,
    findings: NodeFindings,
    help_: Sequence[Help],
    pairs: Sequence[Help],
) -> str:
    """Why the pod is pending, and the change that helps first; of a gang or a preemptor, for whom it waits."""
    waiting = _preempting(queued, explained.journal) or _of_gang(pod, queued, explained.journal, findings)
    return waiting or _with_help(_verdict(pod, findings, groups, queued), queued, findings, help_, pairs)


def _verdict(pod: Pod, findings: NodeFindings, groups: Sequence[Group], queued: DescribedPod | None) -> str:
    total = findings.nodes
    held = "" if queued is None or not queued.gate else f" is held back by {gate(queued)}"
    if not total:
        return f"{pod.key} has nowhere to go: the cluster has no nodes{held}"
    if findings.extenders is not None and findings.extenders.failure:
        left = f"plugins leave {findings.extenders.asked:,} of {count(total, 'node')}"
        return f"{pod.key}{held and held + ', and'} cannot be scheduled now: {left}, but {findings.extenders.failure}"
    if findings.feasible:
        where = _of_nodes(findings)
        return f"{pod.key}{held} fits {where}" if not held else f"{pod.key}{held}; it would fit {where}"
    nowhere = "does not fit the only node" if total == 1 else f"fits none of {total:,} nodes"
    if findings.pre_filter is not None:
        return f"{pod.key}{held and held + ', and'} {nowhere}: {findings.pre_filter.message}"
    shown = [f"{group.nodes:,} {group.text}" if total > 1 else f"it {group.text}" for group in groups[:SHORT]]
    rest = sum(group.nodes for group in groups[SHORT:])
    if rest:
        shown.append(f"{rest:,} for other reasons")
    return f"{pod.key}{held and held + ', and'} {nowhere}: {', '.join(shown)}"


def _of_nodes(findings: NodeFindings) -> str:
    return "the only node" if findings.nodes == 1 else f"{findings.feasible:,} of {findings.nodes:,} nodes"


def _of_gang(pod: Pod, queued: DescribedPod | None, journal: Sequence[Remembered], findings: NodeFindings) -> str:
    """If the pod would fit, and its gang did not: why. Empty for a pod that fits nowhere by itself."""
    last = journal[0] if journal else None
    if last is None or not _was_kept_out(last) or (queued is not None and queued.gate):
        return ""
    if not findings.feasible:
        return ""
    return f"{pod.key} alone fits {_of_nodes(findings)}, but {gang_in_short(last)}"


def _was_kept_out(last: Remembered) -> bool:
    return last.kind == FAILED and bool(last.gang) and bool(last.kept_out_by or last.gang_why or last.needs)


def gang_in_short(last: Remembered) -> str:
    """Why the gang of a failed attempt was not placed, and the command that says more."""
    if last.gang_why:
        why = last.gang_why
    else:
        room = f"{last.needs} of its members must be placed, and {last.fits} found room; " if last.needs else ""
        others = max(last.kept_out, len(last.kept_out_by)) - 1
        why = f"{room}no node took {last.kept_out_by[0]}" + (f" and {count(others, 'other')}" if others else "")
    return f"its gang {last.gang} is placed as a whole or not at all: {why} (flotilla gang {last.gang})"


def _preempting(queued: DescribedPod | None, journal: Sequence[Remembered]) -> str:
    """If the pod waits until its victims are gone: which, and where."""
    last = next((each for each in journal if each.kind == NOMINATED), None)
    if queued is None or last is None or queued.nominated != last.node or not last.victims:
        return ""
    victims = listed(list(last.victims), 3)
    return (
        f"{queued.namespace}/{queued.name} fits nowhere as it is, and waits until "
        f"{count(len(last.victims), 'pod')} of lower priority left node {last.node}: {victims}"
        f"{in_spite_of(queued.violates)}"
    )


def _with_help(
    verdict: str, queued: DescribedPod | None, findings: NodeFindings, help_: Sequence[Help], pairs: Sequence[Help]
) -> str:
    """The verdict, and what helps first."""
    if findings.extenders is not None and findings.extenders.failure:
        return verdict
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
    if queued.gate in GANG_PLUGINS:
        return f"its gang may be placed (flotilla gang {queued.gang})"
    return f"{queued.gate} lets it go"


def preemption(findings: NodeFindings) -> str:
    """What preemption would come to; empty if it is not tried."""
    if findings.feasible or findings.pre_filter is not None or not findings.nodes:
        return ""
    if findings.candidates:
        return f"it can preempt: {going(findings.candidates[0])}"
    if findings.ineligible:
        return f"it cannot preempt: {findings.ineligible.rstrip('.')}"
    return "no evictions of pods of lower priority would help"


def notes(queued: DescribedPod | None, explained: PodExplained, findings: NodeFindings) -> Sequence[str]:
    """What else one should know."""
    found = list(queued.claims) if queued is not None else []
    last = explained.journal[0] if explained.journal else None
    if last is not None and _was_kept_out(last) and not findings.feasible:
        found.append(gang_in_short(last))
    if explained.extenders:
        found += _of_extenders(findings)
    if queued is not None and queued.nominated:
        found.append(f"it is nominated to node {queued.nominated}, which its victims are to leave")
    return found


def _of_extenders(findings: NodeFindings) -> Sequence[str]:
    said = findings.extenders
    if said is None and findings.feasible:
        return [f"extenders were not asked, because plugins leave more than {MAX_OFFERED:,} nodes"]
    if said is None:
        return ["extenders are asked once plugins leave a node; what would help was judged without them"]
    troubles = [f"an extender that may fail has failed: {each}" for each in said.troubles]
    if said.failure:
        return troubles
    left = "all" if said.left == said.asked else f"{said.left:,}" if said.left else "none"
    return [f"extenders were asked about {count(said.asked, 'node')} that plugins leave, and left {left}", *troubles]
