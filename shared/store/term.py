"""The beginning of a term: shuts out earlier leaders and recovers what they left."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from shared.errors import ProtocolError, UserError
from shared.messages.state import Committed, LedgerEntry
from shared.store.errors import Deposed, StateLost
from shared.store.link import Argument, RedisLink
from shared.store.schema import (
    OLDEST_READABLE,
    SCHEMA,
    Keys,
    ReadPosition,
    check_schema,
    decode_answer,
    decode_entry,
    decode_read,
    others,
)
from shared.store.scripts import FENCE
from shared.terms import MAX_AHEAD

EVICTING = "allkeys-"
"""Prefix of the policies that evict our keys; the others evict only keys that expire, and ours do not."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What earlier terms left. `epoch`: of the last one, 0 if there was none or Redis has lost it.

    The ledger is ordered by its deadlines. `lost`: the assumptions of earlier terms are unknown, because no complete
    state was written since Redis had none, or since it is another process than the one written to, which may lack the
    last writes, or because something was removed from the ledger. The ledger is then empty, `doubtful` has the readable
    part of it, and `answer` answers no commit: it only names the last cycle, so that one of a reused term is refused.
    `evicts`: the policy by which the server may evict our keys. `read`: how far the leader of the last term had read
    the watcher's stream, if that is known and nothing is lost. What it knew besides the ledger, it knew from there.
    `seq`, `shard_count`: of the state in Redis; 0 if it is not complete, or something is lost.
    """

    epoch: int
    ledger: list[LedgerEntry]
    answer: Committed | None
    lost: bool
    doubtful: tuple[LedgerEntry, ...] = ()
    evicts: str = ""
    read: ReadPosition | None = None
    seq: int = 0
    shard_count: int = 0


async def open_term(link: RedisLink, prefix: str, epoch: int, pipeline: str = "") -> Recovered:
    """Shut out earlier epochs; there is no state to read until this term's is complete.

    Deposed if the stored epoch is not older. After StoreUnreachable the term may have been opened; an epoch opens once,
    so the next attempt takes a new one. UserError, without writing, if the schema is unknown or the keys belong to
    another `pipeline`; keys without an owner become its own.
    """
    keys = Keys(prefix)
    info = await link.info()
    history, policy = _history(info), str(info.get("maxmemory_policy", ""))
    evicts = policy if policy.startswith(EVICTING) else ""
    arguments: list[Argument] = [SCHEMA, OLDEST_READABLE, epoch, history, pipeline]
    found = await link.run(FENCE, [keys.meta, keys.ledger, keys.answer], arguments)
    match found:
        case [b"done", earlier, entries, answer, lost, read, seq, shard_count]:
            if not lost and _history(await link.info()) == history:
                ledger = sorted(map(decode_entry, entries), key=lambda entry: (entry.deadline, entry.uid))
                decoded = _last_answer(answer, epoch)
                position = _read_in(read, int(earlier))
                stored = int(seq), int(shard_count)
                return Recovered(int(earlier), ledger, decoded, False, (), evicts, position, *stored)
            doubtful: list[LedgerEntry] = []
            for raw in entries:
                with suppress(ProtocolError):
                    doubtful.append(decode_entry(raw))
            last = None
            with suppress(ProtocolError):
                found_answer = _last_answer(answer, epoch)
                last = found_answer and msgspec.structs.replace(found_answer, number=0, conflicts=[])
            return Recovered(int(earlier), [], last, lost=True, doubtful=tuple(doubtful), evicts=evicts)
        case _:
            refuse(found, prefix, epoch, link.where)
            raise ProtocolError(f"Redis key {keys.meta}: a script answers {found[0]!r}")


def _last_answer(raw: bytes, epoch: int) -> Committed | None:
    """None if there is none, or it names a cycle that never led."""
    answer = decode_answer(raw) if raw else None
    return answer if answer is not None and answer.epoch <= epoch + MAX_AHEAD else None


def _read_in(raw: bytes, term: int) -> ReadPosition | None:
    """None if the leader of another term wrote it: a release that does not write it may have led since."""
    try:
        read = decode_read(raw) if raw else None
    except ProtocolError:
        return None
    return read if read is not None and read.term == term else None


def _history(info: Mapping[str, Any]) -> str:
    """Identifies a server whose data cannot have gone back: its process, and its replication history."""
    return f"{info['run_id']} {info['master_replid']}"


def refuse(answer: list[object], prefix: str, epoch: int, where: str = "") -> None:
    """Raises the error that a script's answer names, unless that is `done`."""
    match answer:
        case [b"deposed", bytes(newest)]:
            raise Deposed(epoch, int(newest))
        case [b"lost"]:
            raise StateLost(f"Redis key {prefix}:meta: what epoch {epoch} has written is not there any more")
        case [b"schema", bytes(schema)]:
            check_schema(prefix, schema)
        case [b"pipeline", bytes(whose)]:
            raise UserError(others(prefix, where, whose.decode(errors="replace")))
