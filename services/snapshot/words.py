"""What a binder's word on an order is to the core."""

from services.snapshot.dispatch.order_dispatcher import Dispatcher, Process, wait_of
from services.snapshot.events import Binding, BindingFailed, BindingFinished, BindingStale, BindingWaits
from shared.messages.binding import BindingOutcome


def event_of(dispatcher: Dispatcher, process: Process, outcome: BindingOutcome) -> Binding | None:
    """None where a binder that the order is not with may not say that."""
    of = (outcome.uid, outcome.attempt)
    if outcome.found:
        holds = dispatcher.has(process, of)
        return BindingStale(*of, outcome.version, outcome.found) if holds else None
    counts = dispatcher.may_tell(process, of)
    if outcome.waits:
        return BindingWaits(*of, wait_of(outcome)) if counts else None
    if outcome.bound:
        return BindingFinished(*of)
    return BindingFailed(
        *of,
        outcome.reason,
        outcome.plugin,
        outcome.rejected,
        version=outcome.version,
        sure=outcome.fenced or dispatcher.is_sole(process, of, outcome.version),
        gone=outcome.gone,
        holds=counts,
    )
