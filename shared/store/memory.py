"""What the queue wants to find again when it is started anew: a record for each pod, of which only the queue knows what
it means.

Unlike the snapshot's state it may be lost, or be a little old: then pods wait a little less or more than they should,
and that is all. So nobody is kept from writing, and nothing has to be written in one step.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

from shared.store.link import CALL_PATIENCE, Argument, RedisLink

LOAD_PATIENCE = 10.0
"""Seconds that all records may take to come over the network."""
MOST_AT_ONCE = 1 << 10
"""Records in one command: Redis is busy with it for less than a millisecond."""

Records = Mapping[str, bytes | None]
"""By pod; None: it is to be forgotten."""


class Memory:
    def __init__(self, link: RedisLink, prefix: str) -> None:
        self._link = link
        self._key = f"{prefix}:queue"

    async def load(self) -> dict[str, bytes]:
        """StoreUnreachable if Redis does not tell."""
        found: Mapping[bytes, bytes] = await self._link.call("HGETALL", self._key, patience=LOAD_PATIENCE)
        return {uid.decode(errors="replace"): record for uid, record in found.items()}

    async def write(self, records: Records) -> None:
        """In one round trip. After StoreUnreachable some of it may be written; the same may be written again."""
        kept: list[Argument] = []
        gone: list[Argument] = []
        for uid, record in records.items():
            if record is None:
                gone.append(uid)
            else:
                kept += (uid, record)
        async with self._link.client.pipeline(transaction=False) as commands:
            for part in _parts(kept, 2 * MOST_AT_ONCE):
                commands.execute_command("HSET", self._key, *part)
            for part in _parts(gone, MOST_AT_ONCE):
                commands.execute_command("HDEL", self._key, *part)
            await self._link.within(CALL_PATIENCE, commands.execute())


def _parts(arguments: Sequence[Argument], most: int) -> list[list[Argument]]:
    left = iter(arguments)
    return [list(islice(left, most)) for _ in range(0, len(arguments), most)]
