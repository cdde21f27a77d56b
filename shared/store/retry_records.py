"""What the queue wants to find again when it is started anew: a record for each pod, of which only the queue knows what
it means.

Unlike the snapshot's state it may be lost, or be a little old: then pods wait a little less or more than they should,
and that is all. So nothing has to be written in one step; only, no older queue writes over what a newer one wrote.
"""

from collections.abc import Iterator, Mapping
from itertools import islice

from shared.store.link import Argument, RedisLink
from shared.store.scripts import CLAIM, REMEMBER, Script
from shared.store.term import refuse

LOAD_PATIENCE = 10.0
"""Seconds that all records may take to come over the network."""
MOST_AT_ONCE = 1 << 10
"""Records in one command: Redis is busy with it for less than a millisecond."""

Records = Mapping[str, bytes | None]
"""By pod; None: it is to be forgotten."""


class Memory:
    def __init__(self, link: RedisLink, prefix: str, pipeline: str = "") -> None:
        self._link = link
        self._prefix = prefix
        self._records = f"{prefix}:queue"
        self._term = f"{prefix}:queue:term"
        self._pipeline = pipeline
        self._owner = f"{prefix}:queue:pipeline"

    async def claim(self, epoch: int) -> None:
        """From here on no queue of an earlier epoch writes. Deposed if a later one has claimed it.

        UserError if it is another pipeline's.
        """
        await self._run(CLAIM, epoch, [self._term, self._owner], [self._pipeline])

    async def load(self) -> dict[str, bytes]:
        """StoreUnreachable if Redis does not tell."""
        found: Mapping[bytes, bytes] = await self._link.call("HGETALL", self._records, patience=LOAD_PATIENCE)
        return {uid.decode(errors="replace"): record for uid, record in found.items()}

    async def write(self, epoch: int, records: Records) -> None:
        """Deposed if a later queue has claimed it: then no more is written.

        After StoreUnreachable some of it may be written; the same may be written again.
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
    while part := dict(islice(left, MOST_AT_ONCE)):
        yield part
