"""Binding by an extender: it is asked to bind the pod, and the API server is not.

A failure proves nothing, unless the extender says itself that the pod is not bound, or could not be reached: the pod is
looked up, as after a call to the API server that was cut off. Where the extender may fail the bind plugins take over.
"""

import asyncio
from collections.abc import Sequence

from services.binder.events import Done, ExtenderBinding, Refused, Result, Unknown
from shared.config.structs import ExtenderConfig
from shared.extenders.client import ExtenderClient
from shared.extenders.interest import binder_of
from shared.extenders.talk import ExtenderFailed, bind
from shared.extenders.wire import bind_request
from shared.messages.state import BindingOrder
from shared.model.objects import Pod


def binding_of(extenders: Sequence[ExtenderConfig], order: BindingOrder, pod: Pod) -> ExtenderBinding | None:
    """The call that has an extender bind the pod; None if none of them is to."""
    extender = binder_of(extenders, pod) if extenders else None
    if extender is None:
        return None
    return ExtenderBinding(
        extender,
        bind_request(order.assignment.namespace, order.assignment.name, order.uid, order.node),
    )


async def execute(client: ExtenderClient, call: ExtenderBinding, seconds: float) -> Result:
    """Has it bound, within so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await client.converse(bind(call.extender, call.body))
    except TimeoutError:
        return Unknown(f"no answer within {seconds:.1f} s")
    except ExtenderFailed as failed:
        return Unknown(str(failed)) if failed.maybe_done else Refused(0, str(failed))
    return Done()
