"""Taking a term when a service starts, however long the API server takes to answer."""

import asyncio

from shared.errors import ClusterError
from shared.kube.client import KubeClient
from shared.kube.terms import take_term
from shared.runtime.context import Context

PAUSE = 0.5
"""Seconds between two attempts."""


async def begin_term(context: Context, client: KubeClient, lease: str) -> int:
    """The next term of this Lease. Until there is one, the process is not ready and says why."""
    while True:
        try:
            epoch = await take_term(client, lease, context.name)
        except ClusterError as cause:
            context.health.wait_for("term", str(cause))
            context.log.warning("%s", cause)
            await asyncio.sleep(PAUSE)
        else:
            context.health.clear("term")
            context.log.info("term %d of %s begins", epoch, lease)
            return epoch
