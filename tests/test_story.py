"""The first two minutes in README.md happen as it shows them.

Every command is executed, as in the terminal of a newcomer, and its output compared. What differs from run to run is
left out of the comparison: ages, random suffixes, the order of lines and the width of columns; `...` stands for lines
that are not shown. The name of a pod in a command is the one in its place in the output before. A command that only
looks is repeated until it prints what README shows, as nobody types as fast as a test.
"""

import asyncio
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.commands import flotilla

ROOT = Path(__file__).parents[1]
STORY = "The first two minutes"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOOKS = ("kubectl get", "flotilla queue", "flotilla explain", "flotilla whatif")
POD = re.compile(r"\b(\w+-[0-9a-z]{8,10})-[0-9a-z]{5}\b")
LEFT_OUT = "..."
PATIENCE = 20.0
PAUSE = 0.3


class Step(NamedTuple):
    command: str
    output: str


def steps(page: str) -> Iterator[Step]:
    """Commands after `$`, continued after `>`, each with what it prints."""
    section = page.partition(f"\n## {STORY}\n")[2].partition("\n## ")[0]
    for block in CONSOLE.findall(section):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *rest = step.splitlines()
            while rest and rest[0].startswith("> "):
                command += "\n" + rest.pop(0).removeprefix("> ")
            yield Step(command, "\n".join(rest))


def comparable(output: str) -> list[str]:
    """The lines without what differs from run to run."""
    text = re.sub(r"\b(?:\d+[smh])+\b", "<age>", output)
    text = POD.sub(r"\1-<random>", text)
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def agree(told: str, seen: str) -> bool:
    """Whether the output is as told: line by line in any order or, if lines are left out, in the order told."""
    lines = comparable(seen)
    if LEFT_OUT not in comparable(told):
        return sorted(lines) == sorted(comparable(told))
    shown = [comparable(part) for part in re.split(r"^\.\.\.$", told, flags=re.MULTILINE) if part.strip()]
    for part in shown:
        places = [at for at in range(len(lines)) if lines[at : at + len(part)] == part]
        if not places:
            return False
        lines = lines[places[0] + len(part) :]
    return True


async def typed(command: str, environment: Mapping[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
        cwd=ROOT,
    )
    output, _ = await process.communicate()
    return output.decode()


async def follows(step: Step, environment: Mapping[str, str]) -> str:
    """Type the command; AssertionError unless it prints what README shows, in time for a command that only looks."""
    deadline = time.monotonic() + PATIENCE
    output = await typed(step.command, environment)
    while not agree(step.output, output):
        if not step.command.startswith(LOOKS) or time.monotonic() > deadline:
            raise AssertionError(f"README.md says of `{step.command}`:\n{step.output}\nnot:\n{output}")
        await asyncio.sleep(PAUSE)
        output = await typed(step.command, environment)
    return output


@pytest.mark.asyncio
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH; .ci/run installs it")
async def test_the_first_two_minutes(tmp_path: Path) -> None:
    activate, start, *story = steps((ROOT / "README.md").read_text())
    assert activate == (". .venv/bin/activate", "")
    program, *arguments = shlex.split(start.command)
    assert program == "flotilla"
    async with flotilla(tmp_path, *arguments) as command:
        line = await command.prints(lambda line: "export " in line or "variables: " in line)
        variables = dict(re.findall(r"(\w+)=([^\s\"]+)", line))
        assert set(variables) == {"KUBECONFIG", "FLOTILLA_NATS_URL_FILE"}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, **variables, "PATH": path, "HOME": str(tmp_path)}
        names: dict[str, str] = {}
        for step in story:
            here = step.command
            for name, present in names.items():
                here = here.replace(name, present)
            output = await follows(Step(here, step.output), environment)
            told, seen = ([found[0] for found in POD.finditer(text)] for text in (step.output, output))
            names |= dict(zip(told, seen, strict=False))


def test_a_story_is_compared_by_what_it_says() -> None:
    told = "POD NODE\nweb-58778d5d75-hfvbs   a2\nweb-58778d5d75-zqwtd  b1  24s\n"
    seen = "POD  NODE\nweb-58778d5d75-aaaaa b1 1m3s\nweb-58778d5d75-bbbbb a2\n"
    assert agree(told, seen)
    assert not agree(told, seen.replace("b1", "c1"))
    assert not agree("9/12", "12/12")
    assert agree("one\n...\nthree\nfour\n...", "one\ntwo\nthree\nfour\nfive")
    assert not agree("one\n...\nfour\nthree", "one\ntwo\nthree\nfour")
