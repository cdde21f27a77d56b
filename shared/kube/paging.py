"""One page of a list, and how lists and watches are asked for."""

from urllib.parse import quote

from shared.kube.client import KubeClient
from shared.kube.errors import Gone, Refused
from shared.kube.wire import Page, read_page

PAGE_PATIENCE = 60.0
"""Seconds that one page may take."""


async def get_page(client: KubeClient, path: str, selector: str, limit: int, following: str) -> Page:
    """`following`: what the page before said; empty for the first.

    Gone where the server has forgotten the state that the pages show. It offers to go on with pages of a newer one
    then; but what happened meanwhile to the objects of the pages before would never be told: it is not taken up.
    """
    part = f"limit={limit}" + (f"&continue={quote(following, safe='')}" if following else "")
    answer = await client.call("GET", query(path, selector, part), timeout=PAGE_PATIENCE)
    asked = f"GET {path}"
    if answer.status == 410:
        raise Gone(client.server, asked, 410, answer.message)
    if not answer.ok:
        raise Refused(client.server, asked, answer.status, answer.message, answer.retry_after)
    return read_page(answer.body)


def query(path: str, selector: str, asked: str) -> str:
    """`selector` and `asked`: encoded."""
    return f"{path}?{asked}&{selector}" if selector else f"{path}?{asked}"
