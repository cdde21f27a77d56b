"""What a fault run says in the end."""

from collections.abc import Sequence

from tools.cli.faults.checking import Check

MOST_SHOWN = 5
LONGEST_DETAIL = 400


def verdicts(checks: Sequence[Check]) -> list[str]:
    lines: list[str] = []
    for check in checks:
        count = f" ({check.count})" if check.count else ""
        lines.append(f"  {'✗' if check.broken else '✓'} {check.what}{count}")
        lines += [f"      {text.splitlines()[0][:LONGEST_DETAIL]}" for text in check.broken[:MOST_SHOWN]]
        if len(check.broken) > MOST_SHOWN:
            lines.append(f"      and {len(check.broken) - MOST_SHOWN} more")
    return lines
