"""flotilla simulate, and python -m testing.simulator: the simulated API server alone."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shared.config.sources import BAD_USAGE, Parser
from shared.config.values import whole_number
from shared.errors import UserError

if TYPE_CHECKING:
    from testing.simulator.service import SimulatorOptions

DESCRIPTION = "Serves the API of a simulated cluster. Everything is kept in memory. Ctrl-C stops it."
EXAMPLES = """\
examples:
  flotilla simulate --port 8001                  then: kubectl --server http://127.0.0.1:8001 get nodes
  flotilla up --server http://127.0.0.1:8001     run Flotilla against it
  flotilla simulate --nodes 20                   a made-up cluster of 20 nodes in three zones
  flotilla simulate --kubernetes 1.37            with the pod groups of that release, composite ones included
  flotilla simulate --token-file token           require the bearer token in that file
"""
HIGHEST_PORT = 65_535
MAX_NODES = 5_000
GROUP_VERSIONS = {"1.36": ("v1", "v1alpha2"), "1.37": ("v1", "v1beta1", "v1alpha3")}
"""Of scheduling.k8s.io, by release."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_flags(command)


def add_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument("--host", default="127.0.0.1", metavar="HOST", help="address to listen on (default 127.0.0.1)")
    command.add_argument("--port", default="0", metavar="N", help="port to listen on (default: any free one)")
    command.add_argument("--nodes", default="0", metavar="N", help="make up N nodes in three zones (default 0: none)")
    command.add_argument("--token-file", type=Path, metavar="FILE", help="file with the bearer token to require")
    command.add_argument(
        "--users-file",
        type=Path,
        metavar="FILE",
        help="JSON list of users (token, name, groups, may: `get /metrics`) for token and access reviews",
    )
    command.add_argument(
        "--kubernetes",
        choices=GROUP_VERSIONS,
        default="1.36",
        help="the release whose versions of scheduling.k8s.io are served (default 1.36)",
    )
    command.add_argument("--no-kubelet", action="store_true", help="do not run bound pods or remove deleted ones")


def run(options: argparse.Namespace) -> int:
    port = _number("--port", options.port, HIGHEST_PORT)
    nodes = _number("--nodes", options.nodes, MAX_NODES)
    token = None if options.token_file is None else _text_of(options.token_file, "--token-file").strip()
    if token == "":
        raise UserError(f"--token-file: {str(options.token_file)!r} is empty")
    import msgspec
    import uvloop

    from testing.simulator.service import SimulatorOptions
    from testing.simulator.subresources import ReviewedUser

    users: tuple[ReviewedUser, ...] = ()
    if options.users_file is not None:
        try:
            users = msgspec.json.decode(_text_of(options.users_file, "--users-file"), type=tuple[ReviewedUser, ...])
        except msgspec.DecodeError as error:
            raise UserError(f"--users-file: {options.users_file}: {error}") from error
    chosen = SimulatorOptions(
        host=options.host, port=port, token=token, users=users, kubelet=not options.no_kubelet, nodes=nodes
    )
    # kubectl sends no token over plain HTTP, so suggest curl where one is required.
    hint = "kubectl --server {url} get nodes"
    if options.token_file is not None:
        hint = f'curl -H "Authorization: Bearer $(cat {options.token_file})" {{url}}/api/v1/nodes'
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(chosen, GROUP_VERSIONS[options.kubernetes], hint))
    return 0


async def _serve(options: "SimulatorOptions", group_versions: Sequence[str], hint: str) -> None:
    from testing.simulator.service import Simulator

    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    simulator = Simulator(options)
    simulator.serve("scheduling.k8s.io", *group_versions)
    await simulator.start()
    try:
        print(f"simulated API server at {simulator.url}")
        print(f"try: {hint.format(url=simulator.url)}", flush=True)
        await stop.wait()
    finally:
        await simulator.stop()


def _number(flag: str, text: str, highest: int) -> int:
    try:
        return whole_number(0, highest)(text)
    except ValueError as error:
        raise UserError(f"{flag}: {error}, not {text!r}") from None


def _text_of(path: Path, flag: str) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise UserError(f"{flag}: cannot read {str(path)!r}: {reason}") from error


def _main() -> int:
    parser = Parser(prog="python -m testing.simulator", description=DESCRIPTION)
    add_flags(parser)
    try:
        return run(parser.parse_args())
    except UserError as mistake:
        print(f"flotilla: {mistake}", file=sys.stderr)
        return BAD_USAGE


if __name__ == "__main__":
    sys.exit(_main())
