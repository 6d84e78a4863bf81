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

# The rooms are the folders, bottom up, each with the other people's packages that it may import. A room imports from
# rooms above it in this list only; the list of a floor's names is its whole description.
ROOMS: dict[str, set[str]] = {
    "core": {"regex"},
    "io": {
        "aiohttp",
        "bm25s",
        "filelock",
        "huggingface_hub",
        "litellm",
        "numpy",
        "orjson",
        "pypdf",
        "safetensors",
        "tokenizers",
        "trafilatura",
        "yarl",
    },
    "kernels": {"flax", "jax", "jaxlib", "jaxtyping", "numba", "numpy"},
    "graph": {"jaxtyping", "numpy", "scipy"},
    "inference": {"jax", "jaxtyping", "numpy"},
    "stages": {"jaxtyping", "numpy", "orjson", "sentencex"},
    "encoders": {"flax", "jax", "jaxtyping", "numpy", "optax", "orjson", "tokenizers"},
    "scoring": {"jaxtyping", "numpy", "orjson", "scipy"},
    "critic": {"jaxtyping", "numpy", "orjson"},
    "correction": {"numpy", "orjson"},
    "runs": {"numpy", "orjson"},
    "evaluation": {
        "jaxtyping",
        "matplotlib",
        "numpy",
        "orjson",
        "pydantic",
        "rouge_score",
        "sacrebleu",
        "scipy",
        "yaml",
    },
    "cli": {"click", "numpy", "orjson", "rich"},
}
CLOSED = {
    "kernels": {"encoders", "inference"},  # arrays in, arrays out: only these know what they mean
    "io": {"encoders", "critic", "correction", "runs", "evaluation", "cli"},  # stages and scoring do no input or output
}
NEEDED_BY_OTHERS = {"jaxlib": "jax", "lxml_html_clean": "trafilatura"}
MODULE = {"pyyaml": "yaml"}  # where a package's module has another name
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
    """The folder that a module is in; the package itself and its `__main__` stand on the roof."""
    return module.split(".")[1] if module.count(".") and module != "fcjax.__main__" else "fcjax"


def imported(path: Path) -> Iterator[str]:
    """The top-level packages that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).partition(".")[0]


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


def test_every_folder_is_a_room():
    folders = {path.parent.name for path in (ROOT / "fcjax").glob("*/__init__.py")} | {"io", "kernels"}
    assert folders == set(ROOMS)
    assert {path.name for path in (ROOT / "fcjax").iterdir() if path.is_file()} == {
        "__init__.py",
        "__main__.py",
        "py.typed",
    }


def test_imports_go_down():
    floors = list(ROOMS)
    for module in SOURCES:
        here = room(module)
        for name in set(imports(module)) - set(sys.stdlib_module_names):
            if name.partition(".")[0] != "fcjax":
                assert here != "fcjax", f"{module} imports {name}; the roof imports nothing of others"
                assert name in ROOMS[here], f"{module} ({here}) imports {name}; allowed: {sorted(ROOMS[here])}"
                continue
            there = room(name)
            if here in ("fcjax", there):
                continue
            if there == "fcjax":  # the package with its public names, which load on first use
                assert here == "cli", f"{module} ({here}) imports the package itself; only cli may"
                continue
            assert floors.index(there) < floors.index(here), f"{module} ({here}) imports {name} ({there}): that is up"
            assert here in CLOSED.get(there, {here}), f"{module} ({here}) imports {name}; allowed: {CLOSED[there]}"


def test_architecture_names_every_room():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    missing = [name for name in ROOMS if not re.search(rf"`{name}/`", page)]
    assert not missing, f"docs/architecture.md names no room {missing}"


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
    declared = {MODULE.get(name, name) for name in declared} | OPTIONAL
    used = {name for module in SOURCES for name in imports(module)} - set(sys.stdlib_module_names)
    missing = {name for name in used if name.partition(".")[0] != "fcjax"} - declared
    assert not missing, f"add {sorted(missing)} to the dependencies of pyproject.toml"
    tested = {name for path in (ROOT / "tests").rglob("*.py") for name in imported(path)}
    unused = declared - used - tested - OPTIONAL - NEEDED_BY_OTHERS.keys()
    assert not unused, f"nothing imports {sorted(unused)}: take them out of the dependencies of pyproject.toml"


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


def test_module_is_short():
    for module in SOURCES:
        lines = SOURCES[module].read_text(encoding="utf-8").count("\n")
        assert lines <= 400, f"{module} has {lines} lines; allowed: 400. What second noun does it own?"


def test_no_group_is_repeated_with_possession():
    """`(?:...)*+` matches too little in Python 3.11.0 to 3.11.4 (gh-106052); a single sign's `[...]*+` does not."""
    for module in SOURCES:
        for number, line in enumerate(SOURCES[module].read_text(encoding="utf-8").splitlines(), 1):
            found = re.search(r"\)(?:[*+?]|\{\d*,?\d*\})\+", line)
            assert not found, f"{module}, line {number}: {found[0]}"


def test_all_is_real():
    for module in SOURCES:
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
