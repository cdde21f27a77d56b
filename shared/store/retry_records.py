"""The queue's retry records in Redis, which a restarted queue reads."""

from collections.abc import Iterator, Mapping
from itertools import islice

from shared.store.link import Argument, RedisLink
from shared.store.scripts import CLAIM, REMEMBER, Script
from shared.store.term import refuse

LOAD_PATIENCE = 10.0
"""Seconds to transfer all records."""
MAX_AT_ONCE = 1 << 10
"""Records per command, so that Redis is busy with one for less than a millisecond."""

Records = Mapping[str, bytes | None]
"""By pod; None deletes."""


class Memory:
    def __init__(self, link: RedisLink, prefix: str, pipeline: str = "") -> None:
        self._link = link
        self._prefix = prefix
        self._records = f"{prefix}:queue"
        self._term = f"{prefix}:queue:term"
        self._pipeline = pipeline
        self._owner = f"{prefix}:queue:pipeline"

    async def claim(self, epoch: int) -> None:
        """Shuts out queues of earlier epochs.

        Deposed if a later one has claimed the records, UserError if another pipeline has.
        """
        await self._run(CLAIM, epoch, [self._term, self._owner], [self._pipeline])

    async def load(self) -> dict[str, bytes]:
        found: Mapping[bytes, bytes] = await self._link.call("HGETALL", self._records, patience=LOAD_PATIENCE)
        return {uid.decode(errors="replace"): record for uid, record in found.items()}

    async def write(self, epoch: int, records: Records) -> None:
        """Deposed, without writing more, if a later queue has claimed the records.

        After StoreUnreachable a part may be written; the same write can be repeated.
        """
        for part in _parts(records):
            kept: list[Argument] = []
            for uid, record in part.items():
                if record is not None:
                    kept += (uid, record)
            gone = [uid for uid, record in part.items() if record is None]
            await self._run(REMEMBER, epoch, [self._term, self._records], [len(kept), *kept, *gone])

    async def _run(self, script: Script, epoch: int, keys: list[str], arguments: list[Argument]) -> None:
        refuse(await self._link.run(script, keys, [epoch, *arguments]), self._prefix, epoch, self._link.where)


def _parts(records: Records) -> Iterator[dict[str, bytes | None]]:
    left = iter(records.items())
    while part := dict(islice(left, MAX_AT_ONCE)):
        yield part
