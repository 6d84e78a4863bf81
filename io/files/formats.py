"""Detection of a file's format (SPEC 7) from its name and first bytes."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from fcjax.io.files.objects import read_objects
from fcjax.io.files.streams import Source, opened

Format = Literal["cases", "problem", "graph", "results", "uai", "evidence"]
"""Cases; FactReasoner's problems and fact graphs; results; UAI models and evidence."""

_LOOK = 100  # rows that may be unreadable before detection gives up


def detect(path: Source) -> Format:
    """The format of a file; "cases" by default. What can be read only once is taken for cases.

    Raises `InputError` where the file cannot be read.
    """
    name, file = os.fspath(path), Path(path)
    if name == "-" or (file.exists() and not file.is_file() and not file.is_dir()):  # standard input, a pipe
        return "cases"
    if name.removesuffix(".gz").endswith(".evid"):
        return "evidence"
    with opened(path) as stream:
        words = stream.peek().split(maxsplit=1)
    if name.removesuffix(".gz").endswith(".uai") or words[:1] in ([b"MARKOV"], [b"BAYES"]):
        return "uai"
    rows = (item.value for item in islice(read_objects(path), _LOOK))
    return next((_format_of(row) for row in rows if isinstance(row, dict)), "cases")


def _format_of(row: dict[str, Any]) -> Format:
    keys = row.keys()
    if is_graph(row):
        return "graph"
    if keys & _RESULT_KEYS:
        return "results"
    if keys & {"input", "output"} and not keys & {"query", "response"}:
        return "problem"
    return "cases"


_RESULT_KEYS = {"measures", "diagnostics", "fingerprint"}


def is_graph(row: dict[str, Any]) -> bool:
    """Whether a row is a fact graph and not a case."""
    return bool(row.keys() & {"nodes", "edges"}) and "atoms" not in row


def is_result(row: dict[str, Any]) -> bool:
    """Whether a row is a result of `fcjax score` and not a case."""
    return row.keys() >= _RESULT_KEYS
