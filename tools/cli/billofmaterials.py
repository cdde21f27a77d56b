"""What is installed with Flotilla, as a CycloneDX bill of materials: each Python package with version and licence."""

import json
import re
from importlib.metadata import Distribution, distributions, version
from typing import Any

FORMAT, SPECIFICATION = "CycloneDX", "1.5"


def bill_of_materials() -> str:
    """The same for the same packages, whenever and wherever it is made."""
    packages = {_name(each): each for each in distributions()}
    ours = packages.pop("flotilla", None)
    document = {
        "bomFormat": FORMAT,
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": {"component": _application() | ({} if ours is None else _licences(ours))},
        "components": [_component(name, packages[name]) for name in sorted(packages)],
    }
    return json.dumps(document, indent=1)


def _application() -> dict[str, Any]:
    return {"type": "application", "bom-ref": "flotilla", "name": "flotilla", "version": version("flotilla")}


def _component(name: str, package: Distribution) -> dict[str, Any]:
    url = f"pkg:pypi/{name}@{package.version}"
    named = {"type": "library", "bom-ref": url, "name": name, "version": package.version, "purl": url}
    return named | _licences(package)


def _licences(package: Distribution) -> dict[str, Any]:
    """As the package tells them: an SPDX expression, or a text of one line."""
    for expression in package.metadata.get_all("License-Expression") or ():
        return {"licenses": [{"expression": expression}]}
    text = "".join(package.metadata.get_all("License") or ()).strip()
    return {"licenses": [{"license": {"name": text}}]} if text and "\n" not in text else {}


def _name(package: Distribution) -> str:
    """As the package index writes it."""
    return re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower()
