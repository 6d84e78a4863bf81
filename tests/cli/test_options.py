"""Options of the command line: sections of the help, old spellings, and options that would have no effect."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from typing import get_args

import click
import pytest
from click.testing import CliRunner
from command import OK, UNUSABLE, fcjax
from jsonl import write
from rich.console import Console

from fcjax.cli import requirements
from fcjax.cli.command import SECTIONS, Command
from fcjax.cli.display import Worst
from fcjax.cli.main import COMMANDS, commands
from fcjax.cli.options.engine import LIMITS, with_option_names
from fcjax.cli.options.evidence import STAGES
from fcjax.core.limits import Limits
from fcjax.graph.factors import PRESETS, Encoding
from fcjax.stages import pipeline

CASE = {
    "id": "1",
    "response": "Town 1 has 9 parks.",
    "atoms": [{"id": "a0", "text": "Town 1 has 9 parks."}],
    "contexts": [{"id": "c0", "text": "Town 1 has 9 parks.", "link": "https://blog.example.org/x"}],
    "relations": [{"source": "c0", "target": "a0", "type": "entailment", "probability": 0.9}],
}
SECTIONED = {
    "critique": ["Common options", "Model", "Evidence", "Relations", "Graph", "Input and output", "Engine"],
    "correct": [
        *("Common options", "Correction", "Model", "Evidence", "Relations", "Graph", "Input and output", "Engine"),
    ],
    "relate": ["Common options", "Model", "Relations", "Graph", "Input and output"],
    "score": ["Common options", "Graph", "Input and output", "Engine"],
    "rescore": ["Common options", "Graph", "Input and output", "Engine"],
    "eval": ["Common options", "Model", "Relations", "Input and output"],
}


def every_command(group=commands, *names):
    with click.Context(group, info_name="fcjax") as ctx:
        for name in group.list_commands(ctx):
            found = group.get_command(ctx, name)
            if isinstance(found, click.Group):
                yield from every_command(found, *names, name)
            else:
                yield (*names, name), found


EVERY = dict(every_command())


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command in a folder that has a file of every kind."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in.jsonl", CASE)
    write(tmp_path / "corpus.jsonl", {"title": "Town 1", "text": "Town 1 has 9 parks."})
    (tmp_path / "graphs.json").write_text('{"nodes": [{"id": "a0", "type": "atom", "probability": 0.5}], "edges": []}')
    (tmp_path / "grid").mkdir()
    (tmp_path / "prompt.txt").write_text("$premise $hypothesis")
    (tmp_path / "priors.toml").write_text('"example.org" = 0.2')
    env = {"FCJAX_MODEL": "m", "OPENAI_BASE_URL": "http://127.0.0.1:9", "FCJAX_STORE": str(tmp_path / "store")}

    def go(line):
        return CliRunner().invoke(commands, line.split(), env=env | {"XDG_CACHE_HOME": str(tmp_path / "cache")})

    return go


@pytest.mark.parametrize(("name", "sections"), SECTIONED.items())
def test_help_has_sections_in_one_order(name, sections):
    shown = CliRunner().invoke(commands, [name, "--help"]).stdout
    assert [title for title in re.findall(r"^(\S.*):$", shown, re.MULTILINE) if title in SECTIONS] == sections


def test_rarely_used_options_of_the_engine_come_last():
    shown = CliRunner().invoke(commands, ["critique", "--help"]).stdout
    options = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", shown, re.MULTILINE)
    assert options[:2] == ["--output", "--limit"]
    assert options[-5:] == ["--rows", "--seconds", "--tail", "--method", "--i-bound"]


@pytest.mark.parametrize("names", EVERY, ids=" ".join)
def test_every_option_says_what_it_does(names):
    command = EVERY[names]
    assert isinstance(command, Command)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.opts
            assert parameter.help.rstrip("]").endswith("."), parameter.opts
            assert parameter.help[0].isupper() or ":" in parameter.help or parameter.help[0] == "P", parameter.opts


def test_list_of_commands_has_each_commands_own_words():
    for name, lazy in COMMANDS.items():
        with click.Context(commands) as ctx:
            command = commands.get_command(ctx, name)
        assert command.name == name
        assert (command.help or "").split("\n\n")[0].replace("\n", " ").strip() == lazy.help


@pytest.mark.parametrize("args", [["--help"], *([name, "--help"] for name in COMMANDS if name != "cache")])
def test_help_loads_click_alone(args):
    heavy = ("aiohttp", "asyncio", "jax", "litellm", "numba", "numpy", "rich")
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print('heavy:', [name for name in {heavy} if name in sys.modules]))\n"
        "from fcjax.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code, *args], capture_output=True, text=True, check=True)
    assert "heavy: []" in done.stdout


def test_version_is_of_the_program():
    assert re.fullmatch(rb"fcjax \d+\.\d+\.\d+\S*\n", fcjax("--version").stdout)


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ("score in.jsonl --version FR2", "--graph"),
        ("rescore in.jsonl -o out --version FR2", "--graph"),
        ("relate in.jsonl --version FR2", "--graph"),
        ("critique in.jsonl --version FR2", "--graph"),
        ("correct in.jsonl --version FR2", "--graph"),
        ("convert in.jsonl out.uai --version FR2", "--graph"),
        ("critique in.jsonl --k-contexts 3", "--contexts-per-atom"),
        ("correct in.jsonl --k-contexts 3", "--contexts-per-atom"),
    ],
)
def test_old_spellings_name_the_new_one(run, line, new):
    done = run(line)
    assert done.exit_code == UNUSABLE
    assert re.search(rf"Did you mean '?{new}'?\?", done.stderr)


CRITIQUE = "critique in.jsonl -o out "
LOCAL = CRITIQUE + "--corpus corpus.jsonl "
BASELINE = "correct in.jsonl -o out --corpus corpus.jsonl --corrector rac "
WITHOUT_EFFECT = [
    # Engine
    ("score in.jsonl --i-bound 6", "--i-bound", "add --method wmb"),
    ("infer in.jsonl --i-bound 3", "--i-bound", "add --method wmb"),
    ("score in.jsonl --method wmb --rows 10", "--rows", "remove --method wmb"),
    ("rescore in.jsonl -o out --method wmb --limit-width 10", "--limit-width", "remove --method wmb"),
    ("infer in.jsonl --method wmb --seconds 1", "--seconds", "remove --method wmb"),
    ("score in.jsonl --method wmb --tail 1", "--tail", "remove --method wmb"),
    ("score in.jsonl --method wmb --effort fast", "--effort", "remove --method wmb"),
    ("score in.jsonl --method wmb --backend cpu", "--backend", "remove --method wmb"),
    ("score in.jsonl --effort fast --tail 0.1", "--tail", "use --effort tight or label"),
    # Atoms
    ("critique in.jsonl -o out --language de", "--language", "add --atomizer sentences"),
    ("critique in.jsonl -o out --atomizer sentences --no-revise", "--no-revise", "use --atomizer model"),
    ("critique in.jsonl -o out --atomizer sentences --template revise=in.jsonl", "--template", "use --atomizer model"),
    (
        "critique in.jsonl -o out --atomizer sentences --stages atomize --model m",
        "--model",
        "choose a stage that asks one",
    ),
    ("critique in.jsonl -o out --atomizer sentences --stages relate", "--atomizer", "add atomize to --stages"),
    # Output and choice of cases
    ("score in.jsonl --overwrite", "--overwrite", "add -o FILE"),
    ("score in.jsonl -o - --overwrite", "--overwrite", "add -o FILE"),
    ("critique in.jsonl -o - --corpus corpus.jsonl --overwrite", "--overwrite", "add -o FILE"),
    (LOCAL + "--seed 3", "--seed", "add --sample N"),
    ("correct in.jsonl -o out --seed 3", "--seed", "add --sample N"),
    # Batch files
    ("cache import in.jsonl --folder grid", "--folder", "add --batch"),
    ("cache import in.jsonl --price 1 1", "--price", "add --batch"),
    ("batch status grid --every 5", "--every", "add --wait"),
    ("relate in.jsonl -o out --batch-out files --replay", "--replay", "remove --batch-out"),
    ("relate in.jsonl -o out --batch-out files --budget-prompts 5", "--budget-prompts", "remove --batch-out"),
    ("relate in.jsonl -o out --batch-requests 10", "--batch-requests", "add --batch-out FOLDER"),
    (LOCAL + "--batch-size 1M", "--batch-size", "add --batch-out FOLDER"),
    # Relations
    ("relate in.jsonl -o out --pack 4", "--pack", "add --style packed"),
    (LOCAL + "--pack 4", "--pack", "add --style packed"),
    ("relate in.jsonl -o out --votes 3 --default 0.8", "--default", "remove --votes"),
    ("relate in.jsonl -o out --force", "--force", "add one of them"),
    ("relate in.jsonl -o out --settle 0.9", "--settle", "add --ask adaptive"),
    (LOCAL + "--ask-at-most 5", "--ask-at-most", "add --ask adaptive"),
    (LOCAL + "--stages atomize,retrieve --ask adaptive", "--ask", "add relate to --stages"),
    # Evidence that is given
    (CRITIQUE + "--deny-domain example.org", "--deny-domain", "--corpus or --retriever"),
    (CRITIQUE + "--allow-domain other.org", "--allow-domain", "--corpus or --retriever"),
    (CRITIQUE + "--priors priors.toml", "--priors", "--corpus or --retriever"),
    (CRITIQUE + "--retriever given --contexts-per-atom 5", "--contexts-per-atom", "--corpus or --retriever"),
    ("correct in.jsonl -o out --queries model", "--queries", "--corpus or --retriever"),
    # Stages that are left out
    (LOCAL + "--stages retrieve,relate --summarise", "--summarise", "add summarise to --stages"),
    (LOCAL + "--stages retrieve,relate --queries model", "--queries", "add query to --stages"),
    (LOCAL + "--stages atomize --queries atom", "--queries", "add retrieve to --stages"),
    (LOCAL + "--stages atomize --contexts-per-atom 5", "--contexts-per-atom", "add retrieve to --stages"),
    (LOCAL + "--stages atomize --deny-domain a.example", "--deny-domain", "add retrieve to --stages"),
    (LOCAL + "--stages atomize,retrieve --style packed", "--style", "add relate to --stages"),
    (LOCAL + "--stages atomize,retrieve --screen 0.1", "--screen", "add relate to --stages"),
    (LOCAL + "--stages atomize --template relate=prompt.txt", "--template", "add the stage to --stages"),
    # Correction
    (BASELINE + "--theta 0.5", "--theta", "use --corrector factcorrector"),
    (BASELINE + "--rounds 2", "--rounds", "use --corrector factcorrector or critic"),
    (BASELINE + "--no-guard all", "--no-guard", "use --corrector factcorrector"),
    (BASELINE + "--guard-by text", "--guard-by", "use --corrector factcorrector"),
    (BASELINE + "--preset release", "--preset", "use --corrector factcorrector"),
    (BASELINE + "--style packed", "--style", "use --corrector factcorrector"),
    (BASELINE + "--effort fast", "--effort", "use --corrector factcorrector"),
    (BASELINE + "--graph FR1", "--graph", "use --corrector factcorrector"),
    ("correct in.jsonl -o out --no-guard all --guard-by text", "--guard-by", "keep the supported guard"),
    ("correct in.jsonl -o out --no-guard supported --may-lose 0.1", "--may-lose", "keep the supported guard"),
    ("correct in.jsonl -o out --refiner-price 1 1", "--refiner-price", "add --refiner-model"),
    # Conversion
    ("convert in.jsonl out.jsonl --case 1", "--case", "add --to uai"),
    ("convert in.jsonl out.jsonl --to graph --graph FR1", "--graph", "add --to uai"),
    ("convert in.jsonl out.jsonl --to graph --encoding conditional", "--encoding", "add --to uai"),
    ("convert in.jsonl out.jsonl --preset release", "--preset", "add --to graph or --to uai"),
    ("convert in.jsonl out.jsonl --context-prior 0.5", "--context-prior", "add --to graph or --to uai"),
    ("convert in.jsonl out.jsonl --atom-prior 0.5", "--atom-prior", "add --to graph or --to uai"),
    ("convert graphs.json out.json --to graph --preset release", "--preset", "use --to cases"),
    # Evaluation
    ("eval grid -o out", "--output", "specify a YAML file"),
    ("eval grid --replay", "--replay", "specify a YAML file"),
    ("eval grid --dry-run", "--dry-run", "specify a YAML file"),
    ("eval grid --force", "--force", "specify a YAML file"),
    ("eval grid --budget-tokens 5", "--budget-tokens", "specify a YAML file"),
    # Data sets
    ("data factscore in.jsonl -o out --seed 1", "--seed", "add one of these"),
    ("data finetune in.jsonl -o out --limit 1 --seed 1", "--seed", "add --split train"),
    ("data eli5 in.jsonl -o out --no-wrong --errors 2", "--errors", "use --wrong"),
    ("data eli5 in.jsonl -o out --no-wrong --dry-run", "--dry-run", "use --wrong"),
    ("data eli5 in.jsonl -o out --no-wrong --model NAME", "--model", "use --wrong"),
]


@pytest.mark.parametrize(("line", "option", "remedy"), WITHOUT_EFFECT, ids=[line for line, _, _ in WITHOUT_EFFECT])
def test_option_without_effect_is_refused_by_name(run, tmp_path, line, option, remedy):
    before = {path.name for path in tmp_path.iterdir()}
    done = run(line)
    assert (done.exit_code, done.stdout) == (UNUSABLE, "")
    assert done.stderr.startswith(f"fcjax: error: {option} has no effect with")
    assert "remove it, or" in done.stderr
    assert remedy in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} == before


def test_every_requirement_is_tried():
    tried = {option for _, option, _ in WITHOUT_EFFECT}
    for requirement in requirements.REQUIREMENTS:
        names = {
            max(parameter.opts, key=len)
            for command in EVERY.values()
            for parameter in command.params
            if parameter.name in requirement.options
            and set(requirement.reads) - {"detected", "rendered"} <= {one.name for one in command.params}
        }
        assert names & tried, requirement


def test_options_that_have_their_effect_are_taken(run, tmp_path):
    for line in (
        "score in.jsonl -o out.jsonl --method wmb --i-bound 3 --memory 500M -q",
        "score in.jsonl -o other.jsonl --method auto --rows 100 --tail 0.1 --overwrite -q",
        "convert in.jsonl model.uai --case 1 --graph FR2 --encoding conditional --preset release -q",
        "convert in.jsonl graphs.jsonl --to graph --preset release --context-prior 0.5 --atom-prior 0.4 -q",
        "critique in.jsonl --corpus corpus.jsonl --contexts-per-atom 5 --queries model --deny-domain a.example -n -q",
        "critique in.jsonl --corpus corpus.jsonl --stages atomize,query,retrieve --queries model -n -q",
        "correct in.jsonl --corrector critic --rounds 2 -n -q",
        "correct in.jsonl --theta 0.5 --style packed --pack 3 --sample 1 --seed 4 -n -q",
    ):
        done = run(line)
        assert (done.exit_code, done.stderr) == (OK, ""), line


def test_domains_and_priors_where_all_contexts_are_given(run, tmp_path):
    """A source of evidence is named, but no case needs it: the options for retrieved contexts have no effect."""
    line = LOCAL + "--deny-domain example.org --priors priors.toml"
    done = run(line)
    assert done.exit_code == UNUSABLE
    assert "--deny-domain and --priors would have no effect: all cases already have contexts" in done.stderr
    assert not (tmp_path / "out").exists()


def test_limits_are_named_as_options():
    reason = "induced width 26, over 30 (exact_width) or what `memory` allows; raise `rows`, `seconds` or `tail`"
    assert with_option_names(reason) == (
        "induced width 26, over 30 (--limit-width) or what --memory allows; raise --rows, --seconds or --tail"
    )
    assert with_option_names("26 rows in memory (seconds)") == "26 rows in memory (--seconds)"
    assert set(LIMITS) <= Limits.__dataclass_fields__.keys()


def test_a_graph_that_is_too_wide_is_told_in_option_names():
    table = Worst()
    reason = "induced width 26, over 30 (exact_width); raise `memory`"
    table.add({"id": "wide", "status": "too_wide", "reason": reason, "measures": None, "atoms": []})
    table.add({"id": "no", "status": "refused", "reason": "it says `memory`", "measures": None, "atoms": []})
    console = Console(width=120, file=io.StringIO())
    console.print(table)
    shown = console.file.getvalue()
    assert "wide: induced width 26, over 30 (--limit-width); raise --memory" in shown
    assert "no: it says `memory`" in shown


def test_stages_are_those_of_the_pipeline():
    assert STAGES == pipeline.STAGES


def test_presets_and_encodings_are_those_of_the_factors():
    choices = {}
    for name, found in EVERY.items():
        for option in found.params:
            if option.name in ("preset", "encoding"):
                choices.setdefault(option.name, {})[name] = tuple(option.type.choices)
    assert set(choices["preset"].values()) == {tuple(PRESETS)}
    assert set(choices["encoding"].values()) == {get_args(Encoding)}
    assert {("score",), ("rescore",), ("critique",), ("correct",), ("convert",)} <= choices["encoding"].keys()
