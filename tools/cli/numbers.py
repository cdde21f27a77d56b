"""Numbers as command line arguments."""

import argparse
from collections.abc import Callable


def at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {value}")
        return value

    return number


def several(least: int, count: int | None = None) -> Callable[[str], list[int]]:
    """Numbers with commas between them; just `count` where that is given."""

    def numbers(text: str) -> list[int]:
        values = [at_least(least)(part) for part in text.split(",")]
        if count is not None and len(values) != count:
            raise argparse.ArgumentTypeError(f"takes {count} numbers with commas between them, not {text!r}")
        return values

    return numbers
