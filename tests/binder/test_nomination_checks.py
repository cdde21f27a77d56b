"""Whether nominations stand: each question is put, whenever it comes."""

import asyncio

import pytest

from services.binder.nomination_checks import Answer, NominationChecks
from shared.messages.binding import Evict
from tests.binder.world import PROFILE, World, world

pytestmark = pytest.mark.asyncio


def evict_of(w: World) -> Evict:
    return Evict(1, 7, "uid-high", "default", "high", PROFILE, "n1", [w.victim("low")])


async def test_a_question_that_comes_with_the_last_answer_is_put() -> None:
    """It comes when the task that asks has found no more questions, and before anyone learns that the task ended."""
    async with world() as w:
        failures: list[BaseException] = []
        checks = NominationChecks(w.bus, failures.append)
        try:
            async with asyncio.timeout(5):
                answers = [await checks.ask(evict_of(w)) for _ in range(3)]
        finally:
            await checks.close()
        assert answers == [Answer(1, stands=True)] * 3
        assert not failures
