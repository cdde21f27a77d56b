"""Sockets of connections that may be quiet for long."""

import socket

import aiohttp


def keeping_alive(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices within a minute that the other side is not there any more, though nothing is sent."""
    made = socket.socket(*address[:3])
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
