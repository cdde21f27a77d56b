"""flotilla version."""

import argparse
from importlib.metadata import version


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser("version", help="print the version, and that of the kube-scheduler it equals")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    print(f"flotilla {version('flotilla')} (decides as kube-scheduler v1.36)")
    return 0
