"""One server and one namespace for the tests of a module."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.contract.sandbox import Sandbox, a_sandbox
from tests.contract.server import Server, a_server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Server]:
    async with a_server() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(server: Server) -> AsyncIterator[Sandbox]:
    async with a_sandbox(server) as made:
        yield made
