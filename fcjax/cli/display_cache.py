"""Tables of `fcjax cache info`."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fcjax.cli.display import plain
from fcjax.cli.shell import byte_size


def inventory_tables(found: dict[str, Any]) -> list[RenderableType]:
    """What `fcjax cache info` shows."""
    asked = found["hits"] + found["misses"]
    statuses = ", ".join(f"{count:,} {status}" for status, count in found["statuses"].items()) or "no entries"
    lines = [
        found["store"],
        f"{byte_size(found['bytes'])}; {statuses}",
        f"cost {_dollars(found)}; {found['prompt_tokens']:,} input and {found['completion_tokens']:,} output tokens",
        f"{asked:,} look-ups, {found['hits'] / asked:.0%} answered from the store" if asked else "no look-ups",
    ]
    if found["entries"]:
        lines.append(f"from {found['oldest']} to {found['newest']}")
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
    for column in ("kind", "model", "template", "source"):
        table.add_column(column, overflow="fold")
    for column in ("answered", "failed", "tokens", "cost"):
        table.add_column(column, justify="right")
    for group in found["groups"]:
        table.add_row(
            *(plain(group[name]) for name in ("kind", "model", "template", "source")),
            *(f"{group[name]:,}" for name in ("answered", "failed")),
            f"{group['prompt_tokens'] + group['completion_tokens']:,}",
            _dollars(group) if group["kind"] == "chat" else "",
        )
    return [Text("\n".join(lines)), *([table] if found["groups"] else [])]


def _dollars(group: dict[str, Any]) -> str:
    """A cost, and the number of replies of unknown price that it leaves out."""
    if group["unpriced"] and not group["cost"]:
        return "unknown"
    more = f" + {group['unpriced']:,} unpriced" if group["unpriced"] else ""
    return f"${group['cost']:,.4f}{more}"
