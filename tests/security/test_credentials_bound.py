"""The credentials of one service allow its own subjects only, on a real NATS."""

import asyncio
from collections.abc import Iterator

import nats
import pytest
from nats.aio.client import Client

from shared.bus.rights import USERS, authorization
from shared.bus.subjects import EVERY_SUBJECT
from tests.bus.support import until
from tests.servers import ConfiguredNats, configured_nats

pytestmark = pytest.mark.asyncio

PREFIX = "flotilla."
SINGLE = {"worker.w1": "worker.*", "binder.b1": "binder.*"}
INBOXES = [f"inbox.{user}.x.y" for user in (*USERS, "cli")]
EVERYTHING = sorted({*EVERY_SUBJECT, *SINGLE, *INBOXES})


@pytest.fixture(autouse=True)
def passwords(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for user in USERS:
        monkeypatch.setenv(f"NATS_{user.upper()}", f"pw-{user}")
    yield


class Intruder:
    """Has a service's credentials, and none of its code."""

    def __init__(self) -> None:
        self.refused: set[str] = set()

    async def heard(self, error: Exception) -> None:
        if "violation" in str(error):
            self.refused.add(str(error).partition('"')[2].partition('"')[0])

    async def connect(self, server: ConfiguredNats, user: str) -> Client:
        return await nats.connect(server.as_user(f"{user}:pw-{user}"), error_cb=self.heard)


def allowed(user: str, subjects: tuple[str, ...], subject: str) -> bool:
    return subject in subjects or SINGLE.get(subject) in subjects


@pytest.mark.parametrize("user", USERS)
async def test_nothing_is_sent_but_to_its_own_subjects(user: str) -> None:
    sends = USERS[user].sends
    async with configured_nats(authorization()) as server:
        intruder = Intruder()
        client = await intruder.connect(server, user)
        expected = {PREFIX + subject for subject in EVERYTHING if not allowed(user, sends, subject)}
        for subject in EVERYTHING:
            await client.publish(PREFIX + subject, b"forged")
        for foreign in ("other.watch", "$SYS.REQ.SERVER.PING", "$JS.API.INFO"):
            await client.publish(foreign, b"forged")
            expected.add(foreign.lower())
        await client.flush()
        await until(lambda: {each.lower() for each in expected} <= intruder.refused)
        assert intruder.refused == {each.lower() for each in expected}
        await client.close()


@pytest.mark.parametrize("user", USERS)
async def test_nothing_is_heard_but_its_own_subjects(user: str) -> None:
    rights = USERS[user]
    own = {f"inbox.{role}.x.y" for role in rights.inboxes or (user,)}
    async with configured_nats(authorization()) as server:
        intruder = Intruder()
        client = await intruder.connect(server, user)
        for subject in EVERYTHING:
            await client.subscribe(PREFIX + subject)
        for wide in (">", "flotilla.>", "flotilla.inbox.>", "flotilla.*", "_INBOX.>", "$SYS.>"):
            await client.subscribe(wide)
        hears = {subject for subject in EVERYTHING if allowed(user, rights.hears, subject) or subject in own}
        expected = {PREFIX + subject for subject in EVERYTHING if subject not in hears}
        expected |= {">", "flotilla.>", "flotilla.inbox.>", "flotilla.*", "_inbox.>", "$sys.>"}
        await client.flush()
        await until(lambda: expected <= intruder.refused)
        assert intruder.refused == expected
        await client.close()


async def test_a_wrong_password_is_refused() -> None:
    async with configured_nats(authorization()) as server:
        for user in ("worker:pw-queue", "worker", "nobody:x", ""):
            url = server.as_user(user) if user else server.url
            client = Client()
            try:
                with pytest.raises(nats.errors.Error):
                    await asyncio.wait_for(client.connect(url, allow_reconnect=False, max_reconnect_attempts=0), 5.0)
            finally:
                await client.close()
