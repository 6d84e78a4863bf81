"""The notebooks run from top to bottom and show what they are committed with."""

import importlib.util
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_every_cell_shows_what_is_committed(path: Path) -> None:
    spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
    execute = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(execute)
    text = path.read_text(encoding="utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert all(cell["outputs"] for cell in cells), "a reader on a code host sees the stored outputs"
    assert execute.written(execute.executed(path)) == text, "run `python -P notebooks/execute.py`"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_nothing_of_a_machine_is_stored(path: Path) -> None:
    assert str(FOLDER.parent) not in path.read_text(encoding="utf-8")
