"""Fixtures of the command's tests."""

import pytest

from tests.cli.operating import Operator


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(monkeypatch, capsys)
