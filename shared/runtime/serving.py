"""The endpoints of a process, as its settings want them: in clear, or guarded and by TLS."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from shared.config.settings import Settings, serves_tls
from shared.kube.reviews import Reviews
from shared.runtime.guard import Guard, serving_context
from shared.runtime.http import endpoints
from shared.runtime.pages import Pages
from shared.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from shared.kube.client import KubeClient


@asynccontextmanager
async def served(settings: Settings, pages: Pages, metrics: Metrics) -> AsyncIterator[str]:
    """Their URL."""
    host, port = settings.http_host, settings.http_port
    if not serves_tls(settings):
        async with endpoints(host, port, pages, metrics) as url:
            yield url
        return

    async def connect() -> "KubeClient":
        from shared.kube.client import KubeClient  # workers need it for this alone, and only once they are asked
        from shared.kube.connection import given_connection

        return await KubeClient.open(
            settings.api, given=given_connection(pages.config), agent=f"flotilla-{pages.service}"
        )

    reviews = Reviews(connect)
    try:
        async with endpoints(host, port, pages, metrics, tls=serving_context(settings), guard=Guard(reviews)) as url:
            yield url
    finally:
        await reviews.close()
