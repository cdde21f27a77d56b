"""The body of an answer, as it comes."""

import asyncio

import aiohttp

from shared.kube.errors import Silent, Unreachable


class Stream:
    """`server`, `asked`: as errors name them. `patience`: seconds without a byte after which reading fails."""

    def __init__(self, response: aiohttp.ClientResponse, server: str, asked: str, patience: float) -> None:
        self.patience = patience
        self._response = response
        self._server = server
        self._asked = asked

    async def read(self) -> bytes:
        """All there is to read now, waiting for something; empty at the end.

        Raises Unreachable where it breaks off, and Silent where nothing has come; it cannot be read on then.
        """
        try:
            async with asyncio.timeout(self.patience):
                return await self._response.content.readany()
        except TimeoutError as cause:
            self.close()
            reason = f"nothing has come for {self.patience:g} s"
            raise Silent(self._server, self._asked, reason, maybe_done=True) from cause
        except (aiohttp.ClientError, OSError) as cause:
            reason = str(cause) or type(cause).__name__
            raise Unreachable(self._server, self._asked, reason, maybe_done=True) from cause

    def close(self) -> None:
        """Also ends a `read` that waits."""
        self._response.close()
