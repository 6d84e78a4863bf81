"""The User-Agent that fcjax sends to servers."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata


@cache
def user_agent() -> str:
    """Name, version and, if there is one, the project's page, as the etiquette of public APIs asks for."""
    try:
        about = metadata("fcjax")
    except PackageNotFoundError:  # run from the source tree
        return "fcjax"
    pages = [line.partition(",")[2].strip() for line in about.get_all("Project-URL") or ()]
    return f"fcjax/{about['Version']}" + (f" (+{pages[0]})" if pages else "")
