"""flotilla version, and flotilla --version."""

import argparse
from collections.abc import Sequence


class Version(argparse.Action):
    """A flag that prints it and ends the command."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(told())
        parser.exit()


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser("version", help="print the version, and that of the kube-scheduler it equals")
    command.add_argument(
        "--sbom", action="store_true", help="print what is installed with it, as a CycloneDX bill of materials (JSON)"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.sbom:
        from tools.cli.billofmaterials import bill_of_materials

        print(bill_of_materials())
    else:
        print(told())
    return 0


def told() -> str:
    from importlib.metadata import version  # takes a while to be loaded

    return f"flotilla {version('flotilla')} (decides as kube-scheduler v1.36)"
