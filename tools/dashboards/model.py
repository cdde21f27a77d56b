"""What a dashboard is made of, and queries in the forms that panels need.

Queries sum over all processes of a service, as standbys are scraped as well.
"""

from dataclasses import dataclass

SECONDS, RATE, BYTES, SHARE, COUNT = "s", "ops", "bytes", "percentunit", "short"
"""Units, by Grafana's names."""


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """`description`: what it shows and what is normal. `single`: a number, in red from `bad` on. `signed`: may be
    negative.
    """

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = COUNT
    width: int = 8
    single: bool = False
    bad: float | None = None
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    name: str
    title: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]


def graph(title: str, description: str, *queries: Query, unit: str = COUNT, signed: bool = False) -> Panel:
    return Panel(title, description, queries, unit, signed=signed)


def single(title: str, description: str, expr: str, unit: str = COUNT, bad: float | None = None) -> Panel:
    return Panel(title, description, (Query(expr),), unit, 4, single=True, bad=bad)


def rate(metric: str, *by: str, legend: str = "", only: str = "") -> Query:
    """Per second, over the time that Grafana finds right for the screen."""
    inner = f"rate({metric}{only}[$__rate_interval])"
    grouped = f"sum by ({', '.join(by)}) ({inner})" if by else f"sum({inner})"
    return Query(grouped, legend or " ".join(f"{{{{{label}}}}}" for label in by) or metric)


def quantile(share: float, metric: str, *by: str, only: str = "") -> Query:
    labels = ", ".join(("le", *by))
    expr = f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{only}[$__rate_interval])))"
    told = " ".join(f"{{{{{label}}}}}" for label in by)
    return Query(expr, f"p{share * 100:g} {told}".strip())


def level(metric: str, *by: str, how: str = "sum") -> Query:
    grouped = f"{how} by ({', '.join(by)}) ({metric})" if by else f"{how}({metric})"
    return Query(grouped, " ".join(f"{{{{{label}}}}}" for label in by) or metric)
