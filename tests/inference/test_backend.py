"""JAX's programs are kept on disk where a folder can be written."""

from __future__ import annotations

import os

import pytest

from fcjax.inference import backend


@pytest.fixture
def environ(monkeypatch):
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "")  # so that what the call sets is undone
        monkeypatch.delenv(name)
    return monkeypatch


def test_programs_are_kept_in_the_users_cache_folder(environ, tmp_path):
    environ.setenv("HOME", str(tmp_path))
    backend.use_persistent_cache()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / ".cache" / "fcjax" / "jax")
    assert list((tmp_path / ".cache" / "fcjax" / "jax").iterdir()) == []


def test_a_folder_on_a_remote_store_is_left_to_jax(environ):
    environ.setenv("JAX_COMPILATION_CACHE_DIR", "gs://bucket/jax")
    backend.use_persistent_cache()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "gs://bucket/jax"


@pytest.mark.parametrize("accelerator", [False, True])
def test_a_folder_that_cannot_be_written_is_not_used(environ, caplog, accelerator):
    environ.setenv("HOME", os.devnull)
    environ.setattr(backend, "_may_have_accelerator", lambda: accelerator)
    backend.use_persistent_cache()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == accelerator
    assert all("set JAX_COMPILATION_CACHE_DIR" in words for words in told)
