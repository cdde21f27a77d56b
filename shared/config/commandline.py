"""Parse command lines; a mistake is one line and exit code 2."""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from typing import NoReturn

from shared.config.settings import Settings
from shared.config.sources import add_flags, settings_from
from shared.errors import UserError

BAD_USAGE = 2
WIDEST = 110


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns - 2, WIDEST)
        super().__init__(prog, max_help_position=26, width=max(width, 40))


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that keeps the lines of descriptions and examples, and reports mistakes in one line."""

    def __init__(self, *args: object, **named: object) -> None:
        named.setdefault("formatter_class", _Help)
        named.setdefault("allow_abbrev", False)
        super().__init__(*args, **named)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def settings_of_process(service: str, arguments: Sequence[str] | None = None) -> Settings:
    """Read the settings of `python -m services.SERVICE` from environment and flags; a mistake ends the process."""
    parser = Parser(prog=f"python -m services.{service}", description=f"Runs the {service}.")
    add_flags(parser)
    flags = vars(parser.parse_args(arguments))
    try:
        return settings_from(os.environ, flags)
    except UserError as mistake:
        for line in mistake.lines():
            print(f"flotilla: {line}", file=sys.stderr)
        sys.exit(BAD_USAGE)
