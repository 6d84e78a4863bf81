"""What README and the docs say to do works, and prints what they say it prints."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fcjax
from fcjax.io import files

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
README = PAGES[0].read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[str, str]]:
    return BLOCK.findall(text)


def page_ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to run things in, with the examples beside."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def usual_files(folder):
    """Files of the names that snippets take for given."""
    shutil.copy("examples/cases.jsonl", "cases.jsonl")
    Path("cases.jsonl.gz").write_bytes(gzip.compress(Path("cases.jsonl").read_bytes()))
    files.convert("cases.jsonl", "problem.json", "problem")
    graph = fcjax.FactGraph.from_dict({"nodes": [{"id": "a0", "type": "atom"}], "edges": []})
    files.write_uai("model.uai", graph.to_model())
    Path("model.uai.evid").write_text("1 0 1")


@pytest.mark.parametrize("page", PAGES, ids=page_ids)
def test_python_runs_and_prints(page, usual_files):
    """Python blocks of a page run one after the other; a text block tells what the last one printed."""
    names: dict[str, object] = {}
    printed = None
    for language, code in blocks(page.read_text(encoding="utf-8")):
        if language == "python" and page.name != "spec.md":  # the contract there is written in outlines
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(code, str(page), "exec"), names)
            printed = out.getvalue()
        elif language == "text":
            assert printed == code


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=page_ids)
def test_commands_run(page, folder):
    """Commands of a page run one after the other, each with the exit code that its comment tells, or 0."""
    for language, text in blocks(page.read_text(encoding="utf-8")):
        for line in text.splitlines() if language == "bash" else ():
            command, _, comment = line.partition("  # ")
            program, *arguments = command.split()
            if program == "make":
                assert set(arguments) <= targets(), f"{line}: the Makefile has {sorted(targets())}"
                continue
            assert program == "fcjax", f"{line}: nothing here tests what {program} does"
            expected = int(code[1]) if (code := re.search(r"exit code (\d+)", comment)) else 0
            done = subprocess.run(
                [Path(sys.executable).with_name("fcjax"), *arguments], capture_output=True, text=True, timeout=120
            )
            assert done.returncode == expected, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=page_ids)
def test_named_make_targets_exist(page):
    named = set(re.findall(r"`make ([a-z-]+)`", page.read_text(encoding="utf-8")))
    assert named <= targets()


@pytest.mark.parametrize("page", PAGES, ids=page_ids)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), f"{page_ids(page)} links to {target}"


def test_case_of_the_readme_comes_out_as_it_says(folder):
    case, atom = (json.loads(code) for language, code in blocks(README) if language == "json")
    Path("case.json").write_text(json.dumps(case), encoding="utf-8")
    assert [row.faults for row in files.read_cases("case.json")] == [()]
    fcjax.score("case.json", "row.jsonl")
    row = json.loads(Path("row.jsonl").read_text(encoding="utf-8"))
    assert row["atoms"][1] == atom


def test_json_of_the_formats_page_is_valid(folder):
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    shown = [code for language, code in blocks(page) if language == "json"]
    assert len(shown) == 2
    for code in shown:
        Path("shown.json").write_text(code, encoding="utf-8")
        assert not [fault for fault in files.validate("shown.json") if not isinstance(fault, files.Notice)]


def test_readme_names_every_status():
    assert all(f"`{status}`" in README for status in fcjax.Status)


@pytest.mark.slow
def test_readme_names_every_command():
    tool = Path(sys.executable).with_name("fcjax")
    told = subprocess.run([tool, "--help"], capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"}).stdout
    commands = re.findall(r"^  ([a-z]+)  ", told.partition("Commands:")[2].partition("Examples:")[0], re.MULTILINE)
    assert len(commands) >= 4
    assert all(f"fcjax {command} " in README for command in commands)


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
