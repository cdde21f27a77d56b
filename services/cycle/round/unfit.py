"""Why no node is feasible for a class, from what all workers say of their nodes."""

from collections.abc import Iterable

from flotilla.results import Code
from services.cycle.round.assign import Unfit
from shared.extenders.talk import PLUGIN as EXTENDER
from shared.extenders.talk import Judgement
from shared.framework.profile import merge_rejections, unfit_message
from shared.messages.evaluation import Rejections, Summary


def unfit_of(
    merged: Summary, rejections: Iterable[Rejections], restricted_by: Iterable[str], judgement: Judgement | None
) -> Unfit:
    """A node that extenders dropped without a reason counts in the number of all nodes only."""
    merged_rejections = merge_rejections(rejections)
    plugins = {*(part.status.plugin for part in merged_rejections), *restricted_by}
    refused = None if judgement is None else dict(judgement.rejected)
    if refused is not None:
        by_extenders = (Rejections(status, 1) for status in refused.values())
        merged_rejections = merge_rejections((*merged_rejections, *by_extenders))
        plugins.add(EXTENDER)
    potential = sum(part.nodes for part in merged_rejections if part.status.code is Code.UNSCHEDULABLE)
    message = unfit_message(merged.nodes, None, merged_rejections)
    return Unfit(message, sorted_names(*plugins), merged.nodes, merged.plugins, potential, refused)


def sorted_names(*plugins: str) -> tuple[str, ...]:
    return tuple(sorted({*plugins} - {""}))
