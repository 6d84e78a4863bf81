"""The house stands as docs/architecture.md says: floors, light imports, honest names, a package that installs."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"fcjax": ROOT / "fcjax", "fcjax.kernels": ROOT / "kernels", "fcjax.io": ROOT / "io"}

# What each room may import of the others, and of other people's packages. Every module lives in one room.
GROUND, KERNELS, IO, GRAPH, ENGINE = "ground", "kernels", "io", "graph", "engine"
STAGES, BULK, EVALUATION, DOOR = "stages", "bulk", "evaluation", "door"
BELOW = {
    GROUND: set(),
    KERNELS: set(),
    IO: {GROUND},
    GRAPH: {GROUND},
    ENGINE: {GROUND, GRAPH, KERNELS},
    STAGES: {GROUND, GRAPH},
    BULK: {GROUND, IO, GRAPH, ENGINE, STAGES},
    EVALUATION: {GROUND, IO, GRAPH, ENGINE, STAGES, BULK},
    DOOR: {GROUND, IO, GRAPH, ENGINE, STAGES, BULK, EVALUATION},
}
GUESTS = {
    GROUND: set(),
    KERNELS: {"jax", "jaxlib", "jaxtyping", "numba", "numpy"},
    IO: {"aiohttp", "bm25s", "litellm", "numpy", "orjson", "pypdf", "trafilatura", "yarl"},
    GRAPH: {"jaxtyping", "numpy", "scipy"},
    ENGINE: {"jax", "jaxtyping", "numpy"},
    STAGES: set(),
    BULK: {"numpy", "orjson"},
    EVALUATION: {"matplotlib", "numpy", "orjson", "rouge_score", "sacrebleu", "scipy", "yaml"},
    DOOR: {"click", "numpy", "orjson", "rich"},
}
ROOMS = {
    "fcjax.core.records": GROUND,
    "fcjax.core.checks": GROUND,
    "fcjax.core.errors": GROUND,
    "fcjax.core.limits": GROUND,
    "fcjax.core.passages": GROUND,
    "fcjax.core.prompts": GROUND,
    "fcjax.kernels": KERNELS,  # and all below it
    "fcjax.io": IO,
    "fcjax.scoring.human_labels": GRAPH,
    "fcjax.graph.conflict": GRAPH,
    "fcjax.scoring.findings": GRAPH,
    "fcjax.graph.fact_graph": GRAPH,
    "fcjax.scoring.measures": GRAPH,
    "fcjax.inference.posterior": GRAPH,
    "fcjax.evaluation.inter_rater": GRAPH,
    "fcjax.scoring.near_duplicates": GRAPH,
    "fcjax.scoring.rows": GRAPH,
    "fcjax.graph.selection": GRAPH,
    "fcjax.scoring.summary": GRAPH,
    "fcjax.graph.batch": GRAPH,
    "fcjax.inference.map_assignment": ENGINE,
    "fcjax.inference.grad": ENGINE,
    "fcjax.inference.engine": ENGINE,
    "fcjax.scoring.feedback": ENGINE,
    "fcjax.inference.influence": ENGINE,
    "fcjax.inference.conditioning": ENGINE,
    "fcjax.stages": STAGES,
    "fcjax.critic.asker": BULK,
    "fcjax.runs.score_file": BULK,
    "fcjax.correction.factcorrector": BULK,
    "fcjax.runs.checkpoint": BULK,
    "fcjax.correction.record": BULK,
    "fcjax.core.word_diff": BULK,
    "fcjax.correction.method": BULK,
    "fcjax.critic.ordered": BULK,
    "fcjax.runs.doctor": BULK,
    "fcjax.evaluation.falsify": BULK,
    "fcjax.correction.guards": BULK,
    "fcjax.evaluation.annotator_study": BULK,
    "fcjax.runs.preview": BULK,
    "fcjax.critic.relation_stream": BULK,
    "fcjax.scoring.score_cases": BULK,
    "fcjax.critic.critic": BULK,
    "fcjax.runs.critique_file": BULK,
    "fcjax.scoring.settings": BULK,
    "fcjax.runs.input_scan": BULK,
    "fcjax.__main__": DOOR,
    "fcjax.cli.main": DOOR,
    "fcjax.cli.doctor": DOOR,
    "fcjax.cli.model_options": DOOR,
    "fcjax.cli.relate": DOOR,
    "fcjax.cli.cache": DOOR,
    "fcjax.cli.correct": DOOR,
    "fcjax.cli.evidence_options": DOOR,
    "fcjax.cli.critique": DOOR,
    "fcjax.cli.preview": DOOR,
    "fcjax.cli.score": DOOR,
    "fcjax.cli.display_critique": DOOR,
    "fcjax.cli.data_build": DOOR,
    "fcjax.cli.data": DOOR,
    "fcjax.cli.evaluate": DOOR,
    "fcjax.cli.method_options": DOOR,
    "fcjax.cli.display_correct": DOOR,
    "fcjax.correction.baselines": EVALUATION,
    "fcjax.runs.correct_file": EVALUATION,
    "fcjax.evaluation": EVALUATION,
    "fcjax.cli.display": DOOR,
    "fcjax.cli.shell": DOOR,
    "fcjax": DOOR,  # loads its public names on first use
}
OPTIONAL = {"matplotlib"}  # imported on demand, with an error that names the extra
HEAVY = ("jax", "litellm", "numba", "rich")


def sources() -> dict[str, Path]:
    """Every module that is installed, by its name."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(part for part in parts if part != "__init__")] = path
    return found


SOURCES = sources()


def room(module: str) -> str:
    for name in (module, ".".join(module.split(".")[:2])):
        if name in ROOMS:
            return ROOMS[name]
    pytest.fail(f"{module} lives in no room; give it one in ROOMS of {Path(__file__).name}")


def imports(module: str) -> Iterator[str]:
    """The modules that `module` imports, wherever in its code; ours by their full names, others by their first part."""
    for node in ast.walk(ast.parse(SOURCES[module].read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import in line {node.lineno}; allowed: absolute ones"
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in SOURCES else str(node.module) for name in inside]
        yield from (name if name.partition(".")[0] == "fcjax" else name.partition(".")[0] for name in names)


@pytest.mark.parametrize("module", SOURCES)
def test_imports_go_down(module):
    here = room(module)
    for name in set(imports(module)) - set(sys.stdlib_module_names):
        if name.partition(".")[0] == "fcjax":
            assert room(name) == here or room(name) in BELOW[here], f"{module} ({here}) imports {name} ({room(name)})"
        else:
            assert name in GUESTS[here], f"{module} ({here}) imports {name}; allowed: {sorted(GUESTS[here])}"


def test_architecture_names_every_module_of_the_package():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    names = [room.rpartition(".")[2] for room in ROOMS if not room.endswith("__")]
    missing = [name for name in names if name and not re.search(rf"`{name}/?`", page)]
    assert not missing, f"docs/architecture.md names no room for {missing}"


def test_imports_make_no_circle():
    open_, done = [], set()

    def visit(module):
        assert module not in open_, f"a circle: {' > '.join([*open_[open_.index(module) :], module])}"
        if module not in done:
            open_.append(module)
            for name in set(imports(module)) & set(SOURCES) - {"fcjax"}:
                visit(name)
            done.add(open_.pop())

    for module in SOURCES:
        visit(module)


def test_every_import_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.match(r"[\w.-]+", line)[0].lower().replace("-", "_") for line in project["dependencies"]}
    declared |= {"yaml"} if "pyyaml" in declared else set()
    declared |= OPTIONAL
    used = {name for module in SOURCES for name in imports(module)} - set(sys.stdlib_module_names)
    missing = {name for name in used if name.partition(".")[0] != "fcjax"} - declared
    assert not missing, f"add {sorted(missing)} to the dependencies of pyproject.toml"


def test_every_folder_is_packaged():
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert sorted(packages) == sorted(name for name, path in SOURCES.items() if path.name == "__init__.py")


@pytest.mark.parametrize(
    "code", ["import fcjax.cli.main", "sys.argv[1:] = ['--help']; from fcjax.__main__ import main; main()"]
)
def test_import_is_light(code, tmp_path):
    tail = f"\nfinally:\n print('heavy:', [name for name in {HEAVY} if name in sys.modules])"
    done = run([sys.executable, "-c", f"import sys\ntry:\n {code}{tail}"], tmp_path)
    assert "heavy: []" in done.stdout


@pytest.mark.parametrize("module", SOURCES)
def test_module_is_short(module):
    lines = SOURCES[module].read_text(encoding="utf-8").count("\n")
    assert lines <= 400, f"{module} has {lines} lines; allowed: 400. What second noun does it own?"


@pytest.mark.parametrize("module", SOURCES)
def test_no_group_is_repeated_with_possession(module):
    """`(?:...)*+` matches too little in Python 3.11.0 to 3.11.4 (gh-106052); a single sign's `[...]*+` does not."""
    for number, line in enumerate(SOURCES[module].read_text(encoding="utf-8").splitlines(), 1):
        found = re.search(r"\)(?:[*+?]|\{\d*,?\d*\})\+", line)
        assert not found, f"{module}, line {number}: {found[0]}"


@pytest.mark.parametrize("module", SOURCES)
def test_all_is_real(module):
    loaded = importlib.import_module(module)
    assert loaded.__doc__, f"{module} does not say what it owns"
    for name in getattr(loaded, "__all__", ()):
        assert hasattr(loaded, name), f"{module}.__all__ lists {name}, which is not there"


def test_spec_citations_exist():
    sections = set(re.findall(r"^## (\d+)\.", (ROOT / "docs" / "spec.md").read_text(encoding="utf-8"), re.MULTILINE))
    cited = 0
    for path in tracked():
        if path.suffix in {".py", ".md", ".toml"}:
            for numbers in re.findall(r"\bSPEC (\d+(?:(?:,| and| to) \d+)*)", path.read_text(encoding="utf-8")):
                cited += 1
                unknown = set(re.findall(r"\d+", numbers)) - sections
                assert not unknown, (
                    f"{path.relative_to(ROOT)} cites SPEC {numbers}; docs/spec.md has {sorted(sections)}"
                )
    assert cited > 20


def test_nothing_names_a_machine_or_registry():
    # Spelt in pieces, so that this file does not hold what it looks for.
    places = ["/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/", "/tmp/" + "w/", "py" + "pi.org", "python" + "hosted.org"]
    places += ["npm" + "js.org", "deb" + "ian.org"]
    for path in tracked():
        text = path.read_bytes()
        seen = [place for place in places if place.encode() in text]
        assert not seen, f"{path.relative_to(ROOT)} names {seen}; allowed: paths within the project, no registry's host"


@pytest.mark.slow
def test_wheel_installs_all_rooms(tmp_path):
    """A wheel made of the tracked files alone works apart from the source tree, and leaves the standard `io` alone."""
    source, site = tmp_path / "source", tmp_path / "site"
    for path in tracked():
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(source)], tmp_path)
    (wheel,) = tmp_path.glob("fcjax-*.whl")
    run([*pip, "install", "--no-deps", "--target", str(site), str(wheel)], tmp_path)

    code = """
import io, fcjax, fcjax.kernels, fcjax.io.files
print(fcjax.__file__, fcjax.kernels.__file__, fcjax.io.files.__file__, io.__file__, io.StringIO("intact").read())
"""
    *ours, standard, intact = run([sys.executable, "-P", "-c", code], tmp_path, PYTHONPATH=str(site)).stdout.split()
    assert all(Path(file).is_relative_to(site) for file in ours)
    assert not Path(standard).is_relative_to(site)
    assert intact == "intact"
    assert (site / "fcjax" / "py.typed").exists()
    installed = {".".join(path.relative_to(site).with_suffix("").parts) for path in (site / "fcjax").rglob("*.py")}
    assert {name.removesuffix(".__init__") for name in installed} == set(SOURCES)
    assert "score" in run([str(site / "bin" / "fcjax"), "--help"], tmp_path, PYTHONPATH=str(site)).stdout


def run(command: list[str], cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def tracked() -> list[Path]:
    """The project's files: those that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("needs a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]
