"""flotilla version and flotilla --version, and the bill of materials of what is installed."""

import argparse
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import Distribution


class Version(argparse.Action):
    """A flag that prints the version and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(version_line())
        parser.exit()


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--sbom", action="store_true", help="print a CycloneDX bill of materials (JSON) of the installed packages"
    )


def run(options: argparse.Namespace) -> int:
    print(bill_of_materials() if options.sbom else version_line())
    return 0


def version_line() -> str:
    from importlib.metadata import version  # slow to import

    return f"flotilla {version('flotilla')} (decides as kube-scheduler v1.36)"


def bill_of_materials() -> str:
    """Each installed Python package with version and licence; identical for identical packages."""
    from importlib.metadata import distributions, version

    # Names as the package index normalizes them.
    packages = {re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower(): each for each in distributions()}
    ours = packages.pop("flotilla", None)
    application = {"type": "application", "bom-ref": "flotilla", "name": "flotilla", "version": version("flotilla")}
    components = []
    for name, package in sorted(packages.items()):
        url = f"pkg:pypi/{name}@{package.version}"
        component = {"type": "library", "bom-ref": url, "name": name, "version": package.version, "purl": url}
        components.append(component | _licences(package))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": application | ({} if ours is None else _licences(ours))},
        "components": components,
    }
    return json.dumps(document, indent=1)


def _licences(package: "Distribution") -> dict[str, Any]:
    """The package's SPDX expression, or else its licence text if that is one line."""
    for expression in package.metadata.get_all("License-Expression") or ():
        return {"licenses": [{"expression": expression}]}
    text = "".join(package.metadata.get_all("License") or ()).strip()
    return {"licenses": [{"license": {"name": text}}]} if text and "\n" not in text else {}
