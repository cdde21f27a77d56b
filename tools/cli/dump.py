"""flotilla dump: all that the queue and the snapshot hold, and whether the API server says the same."""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tools.cli.pods import add_nats_flags

if TYPE_CHECKING:
    from shared.messages.inspection import CacheCompared
    from tools.cli.asking import Asker

STDOUT = "-"
KINDS = ("queue", "node", "assumed")
COMPARISON_PATIENCE = 150.0
"""Seconds; the snapshot itself gives up before that."""

EXAMPLES = """\
Every line is a JSON object. On standard output its `kind` comes with it:
  queue       a pod of the queue: where it is, why, and what it waits for
  node        a node of the snapshot's cache: what is requested of what there is, the pods on it, the nominated ones
  assumed     a pod of the ledger: decided, and not yet seen on its node
  summary     how many there are, and how the cache differs from what the API server lists
With a folder these are queue.jsonl, node.jsonl, assumed.jsonl and summary.json there.

examples:
  flotilla dump | jq 'select(.kind == "summary")'
  flotilla dump --output before-the-restart
  kill -USR2 PID                                   of the queue, or the snapshot: to its log, in short
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "dump",
        help="write all that Flotilla holds, and compare it with the cluster",
        description="Writes what the queue holds, the cache and the ledger of assumed pods, and compares the cache\n"
        "with what the API server lists. Exit code 1: they differ, or a service does not answer. Nodes that get no\n"
        "further pod, as something there cannot be read, are named on standard error; the exit code is the same.",
        epilog=EXAMPLES,
    )
    command.add_argument(
        "--output", default=STDOUT, metavar="DIR", help="a folder for the files; - for standard output (default)"
    )
    add_nats_flags(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_dump(options))


class Sink:
    """Where the lines of each kind go."""

    def __init__(self, files: Mapping[str, IO[str]] | None) -> None:
        self._files = files
        self.counts = dict.fromkeys(KINDS, 0)
        self.closed: dict[str, str] = {}
        """By node: why it gets no further pod."""

    def put(self, kind: str, fields: dict[str, Any]) -> None:
        self.counts[kind] += 1
        if self._files is None:
            print(json.dumps({"kind": kind, **fields}, ensure_ascii=False))
        else:
            print(json.dumps(fields, ensure_ascii=False), file=self._files[kind])


@contextmanager
def sink_for(output: str) -> Iterator[Sink]:
    """UserError where the files cannot be written."""
    from shared.errors import UserError

    if output == STDOUT:
        yield Sink(None)
        return
    with ExitStack() as stack:
        try:
            Path(output).mkdir(parents=True, exist_ok=True)
            files = {kind: stack.enter_context((Path(output) / f"{kind}.jsonl").open("w")) for kind in KINDS}
        except OSError as error:
            raise UserError(f"--output: {error.filename}: cannot be written: {error.strerror}") from error
        yield Sink(files)


async def _dump(options: argparse.Namespace) -> int:
    from shared.bus.subjects import SNAPSHOT_LIST
    from shared.messages.inspection import CacheCompared, CompareCache
    from tools.cli.asking import asking

    async with asking(options) as asker:
        with sink_for(options.output) as sink:
            summary: dict[str, Any] = {"queue": await _queue(asker, sink)}
            summary["cache"] = await _nodes(asker, sink)
            summary["assumed"] = await _ledger(asker, sink)
        compared = await asker.ask("snapshot", SNAPSHOT_LIST, CompareCache(), CacheCompared, COMPARISON_PATIENCE)
    summary["comparison"] = _plain(compared)
    if options.output == STDOUT:
        print(json.dumps({"kind": "summary", **summary}, ensure_ascii=False))
    else:
        (Path(options.output) / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
        told = ", ".join(f"{count:,} {kind}" for kind, count in sink.counts.items())
        print(f"{options.output}: {told}", file=sys.stderr)
    for line in (*closed_lines(sink.closed), verdict(compared)):
        print(line, file=sys.stderr)
    return 1 if compared.failure or compared.differences else 0


def closed_lines(closed: Mapping[str, str]) -> list[str]:
    """For people: one for each closed node."""
    return [f"node {name} is closed and gets no further pod: {why}" for name, why in sorted(closed.items())]


def verdict(compared: "CacheCompared") -> str:
    if compared.failure:
        return f"the cache could not be compared with the API server: {compared.failure}"
    count = len(compared.differences) + compared.more
    against = f"{compared.nodes:,} nodes and {compared.pods:,} pods that the API server lists"
    return f"the cache differs in {count:,} from {against}" if count else f"the cache agrees with {against}"


async def _queue(asker: "Asker", sink: Sink) -> dict[str, int]:
    from shared.messages.inspection import ListQueue
    from tools.cli.queue import listed, plain

    counts: dict[str, int] = {}
    async for page in listed(asker, ListQueue()):
        counts = page.counts
        for pod in page.pods:
            sink.put("queue", plain(pod))
    return counts


async def _nodes(asker: "Asker", sink: Sink) -> dict[str, Any]:
    from shared.messages.inspection import CacheListed, ListCache

    found: dict[str, Any] = {}
    async for page in _pages(asker, ListCache(), CacheListed):
        found = {"epoch": page.epoch, "seq": page.seq, **page.counts}
        for node in page.nodes:
            sink.put("node", _plain(node))
            if node.closed:
                sink.closed[node.name] = node.closed
    return found


async def _ledger(asker: "Asker", sink: Sink) -> int:
    from shared.messages.inspection import LedgerListed, ListLedger

    async for page in _pages(asker, ListLedger(), LedgerListed):
        for pod in page.pods:
            sink.put("assumed", _plain(pod))
    return sink.counts["assumed"]


async def _pages(asker: "Asker", asked: Any, answer: type[Any]) -> AsyncIterator[Any]:
    import msgspec

    from shared.bus.subjects import SNAPSHOT_LIST
    from shared.errors import ClusterError
    from tools.cli.asking import ANSWER_PATIENCE

    while True:
        page = await asker.ask("snapshot", SNAPSHOT_LIST, asked, answer, ANSWER_PATIENCE)
        if not page.listing:
            raise ClusterError("the snapshot has begun anew while it was listed; ask again")
        yield page
        if not page.next:
            return
        asked = msgspec.structs.replace(asked, listing=page.listing, after=page.next)


def _plain(struct: Any) -> Any:
    """With every field, also those that say nothing."""
    if hasattr(struct, "__struct_fields__"):
        return {field: _plain(getattr(struct, field)) for field in struct.__struct_fields__}
    if isinstance(struct, list | tuple):
        return [_plain(each) for each in struct]
    return struct
