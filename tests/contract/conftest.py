"""One server and one namespace for the tests of a module."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.contract.place import Place, a_place
from tests.contract.server import Server, a_server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Server]:
    async with a_server() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(server: Server) -> AsyncIterator[Place]:
    async with a_place(server) as made:
        yield made
