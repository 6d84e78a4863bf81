"""What README and the docs say to do works, and prints what they say it prints."""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import io
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from scripted_server import ScriptedServer

import fcjax
from fcjax.io import files
from fcjax.stages.templates import quoted

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
README = PAGES[0].read_text(encoding="utf-8")
ENDPOINT = "http://localhost:8000/v1"
"""Where the pages' commands ask a model; here it is a server that knows the answers of the examples."""
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


def relations_of_the_examples():
    """Label and probability by premise and hypothesis, as these stand in a prompt; neutral where nothing is known."""
    known = defaultdict(lambda: ("neutral", 0.9))
    for row in files.read_cases(ROOT / "examples" / "cases.jsonl"):
        texts = {atom.id: atom.text for atom in row.case.atoms}
        texts |= {context.id: context.evidence for context in row.case.contexts}
        for relation in row.case.relations:
            known[quoted(texts[relation.source]), quoted(texts[relation.target])] = relation.type, relation.probability
    return known


def hand_of_the_examples():
    """Who takes the examples' responses apart."""
    spec = importlib.util.spec_from_file_location("replies", ROOT / "examples" / "replies.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Hand()


@pytest.fixture
def endpoint(tmp_path, monkeypatch):
    """A server that knows the relations of the examples, in the environment as a user names it."""
    relations = relations_of_the_examples()
    hand = hand_of_the_examples()

    def answer(messages):
        parts = dict(re.findall(r"^<(\w+)>\n(.*?)\n</\1>$", messages[0]["content"], re.MULTILINE | re.DOTALL))
        if {"text", "statements", "false_statements"} & parts.keys():
            return hand.reply(messages[0]["content"]).text
        if "claims" in parts:
            claims = dict(line.split(". ", 1) for line in parts["claims"].splitlines())
            return json.dumps({n: relations[parts["premise"], claim][0] for n, claim in claims.items()})
        if "hypothesis" not in parts:
            return "Hello."
        pair = parts["premise"], parts["hypothesis"]
        label, p = hand.relations.get(pair) or relations[pair]
        other = "neutral" if label != "neutral" else "entailment"
        top = [(label, math.log(p)), (other, math.log(1 - p))]
        return {"text": f"[{label}]", "tokens": [("[", 0.0, []), (*top[0], top), ("]", 0.0, [])]}

    with ScriptedServer(answer, key="sk-the-examples-key") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", server.key)
        monkeypatch.setenv("FCJAX_MODEL", "NAME")
        monkeypatch.setenv("FCJAX_STORE", str(tmp_path / "replies.sqlite"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield server


@pytest.fixture
def usual_files(folder):
    """Files of the names that snippets take for given."""
    shutil.copy("examples/cases.jsonl", "cases.jsonl")
    Path("cases.jsonl.gz").write_bytes(gzip.compress(Path("cases.jsonl").read_bytes()))
    files.convert("cases.jsonl", "problem.json", "problem")
    graph = fcjax.FactGraph.from_dict({"nodes": [{"id": "a0", "type": "atom"}], "edges": []})
    files.write_uai("model.uai", graph.to_model())
    Path("model.uai.evid").write_text("1 0 1")
    fcjax.score("examples/cases.jsonl", "critiques.jsonl", feedback=True)


@pytest.mark.parametrize("page", PAGES, ids=page_ids)
def test_python_runs_and_prints(page, usual_files, endpoint):
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
def test_commands_run(page, folder, endpoint):
    """Commands of a page run one after the other, each with the exit code that its comment tells, or 0."""
    for language, text in blocks(page.read_text(encoding="utf-8")):
        for line in text.splitlines() if language == "bash" else ():
            command, _, comment = line.replace(ENDPOINT, endpoint.url).partition("  # ")
            program, *arguments = shlex.split(command)
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


def test_configs_of_the_models_page_are_read(folder):
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    config, options = (code for language, code in blocks(page) if language == "toml")
    Path("endpoint.toml").write_text(config, encoding="utf-8")
    found = fcjax.Endpoint.from_env(config="endpoint.toml", env={"MY_SERVERS_KEY": "sk-a-key"})
    assert (found.name, found.model, found.key) == (ENDPOINT, "NAME", "sk-a-key")
    assert found.options == {"seed": 1, "chat_template_kwargs": {"enable_thinking": False}}
    Path("options.toml").write_text(options, encoding="utf-8")
    found = fcjax.Endpoint.from_env(ENDPOINT, "NAME", "options.toml", env={})
    assert found.options == {"max_completion_tokens": 2000, "temperature": "omit"}


@pytest.mark.parametrize("page", ["README.md", "docs/models.md"])
def test_pages_name_every_variable(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "io").glob("*.py"))
    variables = set(re.findall(r"\b(?:OPENAI|FCJAX)_[A-Z_]+", sources))
    assert len(variables) == 4
    assert all(f"`{variable}`" in text for variable in variables)


def test_json_of_the_formats_page_is_valid(folder):
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    shown = [code for language, code in blocks(page) if language == "json"]
    assert len(shown) == 3
    for code in shown:
        Path("shown.json").write_text(code, encoding="utf-8")
        assert not [fault for fault in files.validate("shown.json") if not isinstance(fault, files.Notice)]


def test_rows_for_a_store_on_the_formats_page_can_be_imported(folder):
    from fcjax.io.maintenance import import_rows

    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    (rows,) = (code for language, code in blocks(page) if language == "jsonl")
    Path("rows.jsonl").write_text(rows, encoding="utf-8")
    imported = import_rows(Path("store.sqlite"), "rows.jsonl")
    assert (imported.added, tuple(imported.faults)) == (len(rows.splitlines()), ())


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
