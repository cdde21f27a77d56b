"""Errors about expressions, with the place in the source, worded and laid out as cel-go does."""

from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import FlotillaError

MOST_NESTING = 250
"""Nested expressions, and operators or selections in a row."""
MOST_ERRORS = 100
"""Errors that are shown of one expression."""
LONGEST_SNIPPET = 16384
"""Bytes of a source line that is still shown with an error."""
WIDE_DOT, WIDE_MARK = "\uff0e", "\uff3e"
NOWHERE = -1
"""The offset of an error about the whole expression."""


class CompileError(FlotillaError):
    """An expression that cannot be compiled: wrong syntax or types, or a conversion or regex that always fails."""


class TooDeepError(Exception):
    """An expression nests more than it may."""


class ExpressionSource:
    """The text of an expression, and the errors found in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._errors: list[tuple[int, int, str]] = []

    @property
    def failed(self) -> bool:
        return bool(self._errors)

    def position(self, offset: int) -> tuple[int, int]:
        """Line from 1 and column from 0."""
        if offset < 0:
            return -1, -1
        low, high = 0, len(self._lines) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._starts[middle] <= offset:
                low = middle
            else:
                high = middle - 1
        return low + 1, offset - self._starts[low]

    def report(self, offset: int, message: str) -> None:
        self._errors.append((*self.position(offset), message))

    def forget_errors(self) -> None:
        self._errors.clear()

    @contextmanager
    def errors_ignored(self) -> Iterator[None]:
        known = len(self._errors)
        yield
        del self._errors[known:]

    def raise_errors(self) -> None:
        """Raise CompileError if any error was reported."""
        if self._errors:
            raise CompileError(f"compilation failed: {self.errors_text()}")

    def errors_text(self) -> str:
        shown = sorted(self._errors[:MOST_ERRORS], key=lambda error: error[:2])
        texts = [self._show(*error) for error in shown]
        if len(self._errors) > MOST_ERRORS:
            texts.append(f"{len(self._errors) - MOST_ERRORS} more errors were truncated")
        return "\n".join(texts)

    def _show(self, line: int, column: int, message: str) -> str:
        head = f"ERROR: <input>:{line}:{column + 1}: {message}"
        if not 0 < line <= len(self._lines):
            return head
        snippet = self._lines[line - 1].replace("\t", " ")
        if len(snippet.encode(errors="surrogatepass")) > LONGEST_SNIPPET:
            return head
        # Wide marks stand below characters that are not ASCII.
        marks = "".join("." if character.isascii() else WIDE_DOT for character in snippet[:column])
        pointed_at = snippet[column : column + 1]
        return f"{head}\n | {snippet}\n | {marks}{'^' if pointed_at.isascii() else WIDE_MARK}"
