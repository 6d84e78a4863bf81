"""Where caches are kept, and what a machine without a home folder is asked to set."""

from __future__ import annotations

import pwd

import pytest

from fcjax.core.errors import SettingsError
from fcjax.core.folders import cache_folder
from fcjax.io.retrievers.local import default_folder
from fcjax.io.store import default_path


@pytest.fixture
def homeless(monkeypatch):
    def nobody(uid):
        raise KeyError(uid)

    for name in ("HOME", "XDG_CACHE_HOME", "FCJAX_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    return monkeypatch


def test_the_home_folder_and_the_variable_before_it(homeless, tmp_path):
    homeless.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "fcjax"
    homeless.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the XDG specification
    assert cache_folder() == tmp_path / ".cache" / "fcjax"
    homeless.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache_folder() == tmp_path / "caches" / "fcjax"
    assert default_path() == tmp_path / "caches" / "fcjax" / "replies.sqlite"
    assert default_folder() == tmp_path / "caches" / "fcjax" / "indexes"


def test_without_a_home_folder_the_variables_are_named(homeless, tmp_path):
    for place in (cache_folder, default_path, default_folder):
        with pytest.raises(SettingsError, match="no home folder.*set XDG_CACHE_HOME .*FCJAX_STORE"):
            place()
    homeless.setenv("FCJAX_STORE", str(tmp_path / "store.sqlite"))
    assert default_path() == tmp_path / "store.sqlite"
