"""Runs the cells of the notebooks here and stores what they show: `python -P notebooks/execute.py`."""

from __future__ import annotations

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def executed(path: Path) -> dict[str, Any]:
    """The notebook with the outputs of its cells, as a kernel would store them. It is run in its own folder."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    with contextlib.chdir(path.parent):
        count = 0
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count += 1
                cell["execution_count"] = count
                cell["outputs"] = _outputs("".join(cell["source"]), names, f"{path.name}[{count}]", count)
    return notebook


def _outputs(source: str, names: dict[str, Any], where: str, count: int) -> list[dict[str, Any]]:
    """What a cell prints, and the value of the expression that it ends with."""
    body = ast.parse(source, where).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(body, []), where, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data = {"text/html": value._repr_html_().splitlines(keepends=True), **data}
        result = {"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"}
        outputs.append(result)
    return outputs


def written(notebook: dict[str, Any]) -> str:
    """The notebook as the text of its file."""
    return json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    for path in sorted(HERE.glob("*.ipynb")):
        path.write_text(written(executed(path)), encoding="utf-8")
