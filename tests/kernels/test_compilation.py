"""Kernels run, uncached and with one warning, where their machine code cannot be kept on disk."""

from __future__ import annotations

import importlib.util
import os
import pwd
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from fcjax.kernels import compilation

SOURCE = """
from fcjax.kernels.compilation import kernel

@kernel
def double(x):
    return 2 * x

@kernel(fastmath=True)
def half(x):
    return double(x) / 4
"""
FULL = """
import logging, resource, signal, sys
logging.basicConfig(format="%(message)s")
import kernels_of_a_test as kernels
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
print(kernels.half(6.0), kernels.double(3.0))
"""


def read_only(folder: Path) -> Path:
    """A module with kernels, in a folder where no cache can be made, not even by root."""
    path = folder / "kernels_of_a_test.py"
    path.write_text(SOURCE)
    (folder / "__pycache__").write_text("a file, not a folder")
    return path


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No warning yet, and no folder that variables name."""
    monkeypatch.setattr(compilation, "UNCACHED", [])
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_no_folder_that_can_be_written(fresh, tmp_path, caplog) -> None:
    fresh.setenv("HOME", os.devnull)
    module = load(read_only(tmp_path))
    assert (module.half(6.0), module.double(3.0)) == (3.0, 6.0)
    (warning,) = caplog.records
    assert str(tmp_path / "__pycache__") in warning.getMessage()
    assert "set NUMBA_CACHE_DIR to a writable folder" in warning.getMessage()


def test_no_home_folder_at_all(fresh, tmp_path, caplog) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(uid)

    fresh.delenv("HOME", raising=False)
    fresh.setattr(pwd, "getpwuid", nobody)
    fresh.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    fresh.chdir(tmp_path)
    module = load(read_only(tmp_path))
    assert module.half(6.0) == 3.0
    assert len(caplog.records) == 1
    assert not (tmp_path / "~").exists()


def test_a_full_disk(tmp_path) -> None:
    """A limit on the size of files fails the real writes of numba."""
    read_only(tmp_path)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run(
        [sys.executable, "-P", "-c", FULL], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "3.0 6.0\n"), done.stderr
    assert done.stderr.count("\n") == 1
    assert f"{tmp_path / 'cache'}" in done.stderr
    assert "File too large" in done.stderr


def test_a_cache_that_can_be_written_is_used(fresh, tmp_path, caplog) -> None:
    path = read_only(tmp_path)
    (tmp_path / "__pycache__").unlink()
    assert load(path).half(6.0) == 3.0
    kept = {name.suffix for name in (tmp_path / "__pycache__").iterdir()}
    assert {".nbi", ".nbc"} <= kept
    again = load(path).half
    assert again(6.0) == 3.0
    assert sum(again.stats.cache_hits.values()) == 1
    assert not caplog.records
