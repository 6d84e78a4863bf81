"""The folder of an evaluation: where the files of its cells and of the originals are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of the grid, by names. The model `critic` evaluates, `model` rewrites."""

    data: str
    critic: str
    model: str
    corrector: str


def original_folder(home: Path, data: str, critic: str) -> Path:
    """The folder of the originals of a data set, evaluated by a critic."""
    return home / "data" / data / critic


def cell_folder(home: Path, cell: Cell) -> Path:
    """The folder of a cell's files."""
    return home / "cells" / cell.data / cell.model / cell.corrector
