"""Every snippet and command of README and docs runs and prints what the page shows; names and links exist."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import importlib.util
import io
import json
import math
import re
import shlex
import shutil
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import click
import pytest
from batch_answers import BatchServer
from scripted_server import ScriptedServer

import fcjax
from fcjax.__main__ import main
from fcjax.cli.main import commands
from fcjax.io import files
from fcjax.runs.probe_pairs import PROBE_PAIRS
from fcjax.stages.templates import quoted

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINKING = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md"]
ENDPOINT = "http://localhost:8000/v1"
"""The endpoint in the pages' commands; here it is a server that knows the answers of the examples."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[str, str]]:
    return BLOCK.findall(text)


def text_of(page: Path | str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: Path | str, language: str) -> list[str]:
    return [code for name, code in blocks(text_of(page)) if name == language]


def page_ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


def script_of(path: Path):
    """A script of the project as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


@pytest.fixture
def endpoint(tmp_path, monkeypatch):
    """A server that knows the relations of the examples, in the environment as a user names it."""
    relations = relations_of_the_examples()
    hand = script_of(ROOT / "examples" / "replies.py").Hand()
    probes = {(quoted(probe.premise), quoted(probe.hypothesis)): probe.label for probe in PROBE_PAIRS}

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
        if pair in probes:
            return f"[{probes[pair]}]"
        label, p = hand.relations.get(pair) or relations[pair]
        other = "neutral" if label != "neutral" else "entailment"
        top = [(label, math.log(p)), (other, math.log(1 - p))]
        return {"text": f"[{label}]", "tokens": [("[", 0.0, []), (*top[0], top), ("]", 0.0, [])]}

    with ScriptedServer(answer, key="sk-the-examples-key", elsewhere=BatchServer(answer)) as server:
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


def write_models(page: Path) -> None:
    """The folders of models that a page takes for given: `judge`, a classifier, and `encoder`, what it is made from."""
    if "--relation-model judge" in text_of(page):
        import model_folders  # loads jax

        model_folders.write_folder(Path("judge"))
        model_folders.write_folder(Path("encoder"), head=False)


@pytest.mark.parametrize("page", PAGES, ids=page_ids)
def test_python_runs_and_prints(page, usual_files, endpoint):
    """Python blocks of a page run one after the other; a text block after one is what it prints."""
    write_models(page)
    names: dict[str, object] = {}
    printed = None
    for language, code in blocks(text_of(page)):
        if language == "python" and page.name != "spec.md":  # the contract there is an outline
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(code, str(page), "exec"), names)
            printed = out.getvalue()
        elif language == "text" and printed is not None:
            assert printed == code
        else:
            printed = None


@pytest.mark.parametrize("page", PAGES, ids=page_ids)
def test_commands_run(page, folder, endpoint, monkeypatch, capsys):
    """Commands of a page run one after the other, each with the exit code in its comment, or 0.

    A text block after them is in the output of the last one; a line of `...` stands for any lines.
    """
    monkeypatch.delenv("COLUMNS", raising=False)
    write_models(page)
    printed = None
    for language, text in blocks(text_of(page)):
        if language == "text" and printed is not None:
            assert_shows(printed, text)
        printed = None
        for line in text.splitlines() if language == "bash" else ():
            command, _, comment = line.replace(ENDPOINT, endpoint.url).partition("  # ")
            program, *arguments = shlex.split(command)
            if program == "fcjax":
                expected = int(code[1]) if (code := re.search(r"exit code (\d+)", comment)) else 0
                monkeypatch.setattr(sys, "argv", [program, *arguments])
                with pytest.raises(SystemExit) as ended:
                    main()
                printed, complaints = capsys.readouterr()
                assert ended.value.code == expected, f"{line}\n{printed}\n{complaints}"
            elif program == "make":
                assert set(arguments) <= targets(), f"{line}: the Makefile has {sorted(targets())}"
            else:
                assert [program, *arguments] == ["pip", "install", "."], f"{line}: no test runs {program}"


def assert_shows(printed: str, shown: str) -> None:
    rest = "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"
    for part in shown.split("...\n"):
        assert part in rest, f"{part}\nis not in\n{printed}"
        rest = rest.partition(part)[2]


@pytest.mark.parametrize("page", PAGES, ids=page_ids)
def test_named_make_targets_exist(page):
    assert set(re.findall(r"`make ([a-z-]+)`", text_of(page))) <= targets()


@pytest.mark.parametrize("page", LINKING, ids=page_ids)
def test_links_lead_somewhere(page):
    text = text_of(page)
    links = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text) + [(src, "") for src in re.findall(r'src="([^"]+)"', text)]
    for target, anchor in links:
        if not target.startswith("https://"):
            file = page.parent / target if target else page
            assert file.exists(), f"{page_ids(page)} links to {target}"
            assert not anchor or anchor in anchors(file), f"{page_ids(page)} links to {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors that a code host gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_index_links_to_every_page():
    index = text_of("docs/index.md")
    assert all(f"({page.name})" in index for page in (ROOT / "docs").glob("*.md") if page.name != "index.md")


def test_pages_named_in_sources_exist():
    for folder in ("fcjax", "io", "kernels", "benchmarks", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            for name in re.findall(r"\bdocs/(\w+\.md)", text_of(path)):
                assert (ROOT / "docs" / name).exists(), f"{path.relative_to(ROOT)} names docs/{name}"


@pytest.mark.parametrize("page", PAGES, ids=page_ids)
def test_modules_and_files_named_by_pages_exist(page):
    for name in re.findall(r"`(fcjax(?:\.\w+)+)`", text_of(page)):
        module, found = name.split("."), fcjax
        for depth, part in enumerate(module[1:], 2):
            if not hasattr(found, part):
                importlib.import_module(".".join(module[:depth]))
            found = getattr(found, part)
    for name in re.findall(r"`((?:fcjax|io|kernels|tests|benchmarks|docs|examples)/[\w/.]*)`", text_of(page)):
        assert (ROOT / name).exists(), f"{page_ids(page)} names {name}"


def test_readme_is_short():
    assert len(text_of("README.md").split()) <= 700


def test_picture_of_the_speed_is_drawn_from_the_results():
    pictures = script_of(ROOT / "docs" / "images" / "make.py")
    drawn = pictures.speed()
    assert drawn == text_of("docs/images/speed.svg"), "run `python -P docs/images/make.py speed`"
    ratios = [int(number.replace(",", "")) for number in re.findall(r">([\d,]+)×<", drawn)]
    assert f"{min(ratios)} to {max(ratios)} times faster" in " ".join(text_of("README.md").split())


def test_case_of_the_results_page_comes_out_as_it_says(folder):
    case, atom = map(json.loads, blocks_of("docs/results.md", "json"))
    Path("case.json").write_text(json.dumps(case), encoding="utf-8")
    assert [row.faults for row in files.read_cases("case.json")] == [()]
    fcjax.score("case.json", "row.jsonl")
    row = json.loads(Path("row.jsonl").read_text(encoding="utf-8"))
    assert row["atoms"][1] == atom


def test_results_page_names_every_key_of_a_row(folder):
    fcjax.score("examples/cases.jsonl", "rows.jsonl", feedback=True)
    page = text_of("docs/results.md")
    row = json.loads(Path("rows.jsonl").read_text(encoding="utf-8").splitlines()[0])
    atom_keys = {key for atom in row["atoms"] for key in atom}
    named = set(re.findall(r"`(\w+)`", page))
    assert (row.keys() - {"id", "atoms"}) | (atom_keys - {"id"}) <= named


def test_configs_of_the_models_page_are_read(folder):
    config, options = blocks_of("docs/models.md", "toml")
    Path("endpoint.toml").write_text(config, encoding="utf-8")
    found = fcjax.Endpoint.from_env(config="endpoint.toml", env={"MY_SERVERS_KEY": "sk-a-key"})
    assert (found.name, found.model, found.key) == (ENDPOINT, "NAME", "sk-a-key")
    assert found.options == {"seed": 1, "chat_template_kwargs": {"enable_thinking": False}}
    Path("options.toml").write_text(options, encoding="utf-8")
    found = fcjax.Endpoint.from_env(ENDPOINT, "NAME", "options.toml", env={})
    assert found.options == {"max_completion_tokens": 2000, "temperature": "omit"}


@pytest.mark.parametrize("page", ["docs/cli.md", "docs/models.md"])
def test_pages_name_every_variable(page):
    text = text_of(page)
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "io").glob("*.py"))
    variables = set(re.findall(r"\b(?:OPENAI|FCJAX)_[A-Z_]+", sources))
    assert len(variables) == 4
    assert all(f"`{variable}`" in text for variable in variables)


def test_json_of_the_formats_page_is_valid(folder):
    shown = blocks_of("docs/formats.md", "json")
    assert len(shown) == 3
    for code in shown:
        Path("shown.json").write_text(code, encoding="utf-8")
        assert not [fault for fault in files.validate("shown.json") if not isinstance(fault, files.Notice)]


def test_rows_for_a_store_on_the_formats_page_can_be_imported(folder):
    from fcjax.io.maintenance import import_rows

    (rows,) = blocks_of("docs/formats.md", "jsonl")
    Path("rows.jsonl").write_text(rows, encoding="utf-8")
    imported = import_rows(Path("store.sqlite"), "rows.jsonl")
    assert (imported.added, tuple(imported.faults)) == (len(rows.splitlines()), ())


def test_statuses_page_names_every_status():
    page = text_of("docs/statuses.md")
    assert all(f"| `{status}` |" in page for status in fcjax.Status)


def options(command: click.Command, context: click.Context) -> set[str]:
    """The long options of a command and of the commands in it."""
    if isinstance(command, click.Group):
        return set().union(
            *(options(command.get_command(context, name), context) for name in command.list_commands(context))
        )
    given = (param for param in command.params if isinstance(param, click.Option))
    return {name for param in given for name in (*param.opts, *param.secondary_opts) if name.startswith("--")}


def test_cli_page_names_every_command_and_option():
    page, context = text_of("docs/cli.md"), click.Context(commands)
    names = commands.list_commands(context)
    assert len(names) >= 4
    assert all(f"`fcjax {name}" in page for name in names)
    named = set(re.findall(r"--[a-z][a-z-]*", page)) - {"--help", "--version"}
    assert named == options(commands, context) - {"--wrong", "--feedback"}  # the defaults of --no-wrong, --no-feedback


@pytest.mark.parametrize("page", PAGES, ids=page_ids)
def test_commands_that_need_files_have_these_options(page):
    """Commands in sh blocks need files that are not here; what they are called with exists."""
    for text in blocks_of(page, "sh"):
        for line in text.splitlines():
            program, *words = shlex.split(line)
            if program == "fcjax":
                command, context = commands, click.Context(commands)
                while isinstance(command, click.Group):
                    command = command.get_command(context, words.pop(0))
                given = {word for word in words if word.startswith("--")}
                assert given <= options(command, context), line


def test_extras_of_the_pages_exist():
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    for page in PAGES:
        assert set(re.findall(r"fcjax\[(\w+)\]", text_of(page))) <= extras.keys(), page_ids(page)


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
