"""What a check finds, and how long it may take."""

import asyncio
from collections.abc import Awaitable, Sequence
from enum import StrEnum
from typing import NamedTuple

from shared.errors import FlotillaError

PATIENCE = 15.0
"""Seconds for one group of checks."""


class Level(StrEnum):
    """`note`: worth knowing, and nothing has to be done about it."""

    OK = "ok"
    NOTE = "note"
    WRONG = "wrong"


class Finding(NamedTuple):
    """`fix`: what to do about it, a line each."""

    level: Level
    text: str
    fix: tuple[str, ...] = ()


def ok(text: str) -> Finding:
    return Finding(Level.OK, text)


def note(text: str, *fix: str) -> Finding:
    return Finding(Level.NOTE, text, fix)


def wrong(text: str, *fix: str) -> Finding:
    return Finding(Level.WRONG, text, fix)


class Section(NamedTuple):
    title: str
    findings: Sequence[Finding]


async def bounded(title: str, checking: Awaitable[list[Finding]]) -> Section:
    """The findings of a group of checks; one that says so if they fail or take too long."""
    try:
        async with asyncio.timeout(PATIENCE):
            return Section(title, await checking)
    except TimeoutError:
        return Section(title, [wrong(f"no result within {PATIENCE:g} s", "try again; the network may lose packets")])
    except FlotillaError as cause:
        return Section(title, [wrong(str(cause))])
