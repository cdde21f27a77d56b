"""flotilla simulate: the API server of a made-up cluster, alone."""

import argparse

from testing.simulator.__main__ import DESCRIPTION, EXAMPLES, add_flags, run


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "simulate", help="run the API server of a made-up cluster", description=DESCRIPTION, epilog=EXAMPLES
    )
    add_flags(command)
    command.set_defaults(run=run)
