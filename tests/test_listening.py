"""Servers of tests leave no connection open, whenever it comes: a warning about it would reach some other test."""

import asyncio
import socket

import pytest

from tests.listening import listening

pytestmark = pytest.mark.asyncio


async def test_a_connection_that_is_accepted_in_the_turn_in_which_the_server_is_closed_is_closed() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket() as client:
        async with listening(silent) as port:
            readable = loop.create_future()
            loop.add_reader(ours, readable.set_result, None)
            theirs.send(b".")  # ready before the connection is: this task goes on before it is served
            client.connect(("127.0.0.1", port))
            await readable
            loop.remove_reader(ours)
        await asyncio.sleep(0)  # transports close in the next turn
        client.setblocking(False)
        assert client.recv(1) == b""
