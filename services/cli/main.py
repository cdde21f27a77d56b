"""The flotilla command."""

import argparse
import sys
from collections.abc import Sequence

from services.cli import bench, conformance, demo, version
from shared.errors import UserError

BAD_USAGE = 2


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="flotilla",
        description="A Kubernetes scheduler that scales out.",
        epilog="flotilla COMMAND --help tells more about a command.",
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (demo, conformance, bench, version):
        module.add_to(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except UserError as mistake:
        print(f"flotilla: {mistake}", file=sys.stderr)
        return BAD_USAGE
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
