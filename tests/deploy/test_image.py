"""The image: what goes in, and who runs it. Whether it can be built is for those who have Docker."""

import re
import tomllib

import pytest

from tests.deploy.rendering import ROOT
from tools.cli.main import parser

DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
IGNORED = (ROOT / ".dockerignore").read_text().split()


def copied() -> set[str]:
    """From the project."""
    lines = re.findall(r"^COPY (?!--)(.*)$", DOCKERFILE, re.MULTILINE)
    return {word for line in lines for word in line.split()[:-1]}


def test_the_context_has_what_is_copied_and_no_more() -> None:
    assert IGNORED[IGNORED.index("*") :].count("*") == 1
    assert {word[1:] for word in IGNORED if word.startswith("!")} == copied()
    assert all((ROOT / name).exists() for name in copied())


@pytest.mark.parametrize("folder", ["flotilla", "services", "shared", "testing", "tools"])
def test_every_folder_with_code_is_installed(folder: str) -> None:
    """setuptools passes over folders that are no packages, and over files that are no code."""
    files = [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    data: dict[str, list[str]] = project["tool"]["setuptools"]["package-data"]
    for path in (path for path in files if path.suffix != ".py"):
        package = next(parent for parent in path.parents if (parent / "__init__.py").exists())
        patterns = data.get(".".join(package.relative_to(ROOT).parts), [])
        assert any(path.relative_to(package).match(each) for each in patterns), f"{path.name} is not installed"
    folders = {path.parent for path in files if path.suffix == ".py"}
    assert [path for path in folders if not (path / "__init__.py").exists()] == []


def test_nothing_that_is_needed_is_for_developers_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = {re.split(r"[<>=\[]", each)[0].lower() for each in project["project"]["dependencies"]}
    pinned = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    assert names <= pinned
    assert "setuptools" in pinned, "the image is built with it, offline"


def test_it_runs_without_privileges_and_without_a_shell() -> None:
    final = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    assert re.findall(r"^USER (.*)$", final, re.MULTILINE) == ["65532:65532"]
    assert not re.search(r"^RUN ", final, re.MULTILINE)
    assert 'ENTRYPOINT ["flotilla"]' in final
    assert "PYTHONDONTWRITEBYTECODE=1" in final


def test_packages_are_checked() -> None:
    installs = re.findall(r"^RUN .* install (.*)$", DOCKERFILE, re.MULTILINE)
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    assert len(installs) == 2


def test_it_holds_a_bill_of_materials() -> None:
    build = DOCKERFILE[: DOCKERFILE.rindex("\nFROM ")]
    (made,) = re.findall(r"^RUN /opt/flotilla/bin/flotilla (.*) > /opt/flotilla/sbom.cdx.json$", build, re.MULTILINE)
    parser().parse_args(made.split())
    assert build.rindex("install --no-deps") < build.rindex(made), "of all that is installed"


def test_bases_name_a_version_and_no_registry() -> None:
    assert re.findall(r"^ARG PYTHON=(.*)$", DOCKERFILE, re.MULTILINE) == ["python:3.12-slim"]
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${PYTHON}"}
