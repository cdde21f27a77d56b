"""Closing servers without leaving connections open."""

import asyncio


async def close(server: asyncio.Server) -> None:
    """Close the server.

    asyncio's own loop makes a transport of an accepted connection in its next turn. If the server is closed by then,
    that fails, and nothing closes the connection. So the server first accepts no more, and what it has accepted begins.
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.SelectorEventLoop):
        for listening in server.sockets:
            loop.remove_reader(listening)
        await asyncio.sleep(0)
    server.close()
