"""Templates and configuration files: hostile ones end in one message, within bounds of time and memory."""

from __future__ import annotations

import os
import time
import tomllib
from pathlib import Path

import pytest

from fcjax.cli.critic import with_words_of
from fcjax.core.errors import InputError, SettingsError
from fcjax.evaluation.config import read_plan
from fcjax.io.endpoint import Endpoint
from fcjax.io.files.small import read_small, read_toml
from fcjax.io.retrievers.domains import read_priors
from fcjax.stages import wordings

ALIASES = "a: &a [x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 100_000, "nested more than 100 levels"),
        ("{a: " * 100_000, "nested more than 100 levels"),
        ("- " * 50_000 + "x", "nested more than 100 levels"),
        (ALIASES, "with its aliases written out, it has more than 300,000 values"),
        ("a: &a [*a]", "an alias is part of what it stands for"),
        ("seed: " + "9" * 5000, "a number of more than 100 characters"),
        ("seed: " + "9" * 90, "beyond 64 bits"),
        ("seed: 1" + ":59" * 200_000, "a number of more than 100 characters"),
        ("seed: 1" + ":59" * 400 + ".5", "a number of more than 100 characters"),
        ("- a\n" * 250_000, "more than 20,000 values"),
        ("[" + "a," * 500_000 + "]", "more than 20,000 values"),
        ("".join(f"k{i}: a\n" for i in range(90_000)), "more than 20,000 values"),
        ("a: &a {x: 1}\nb:\n  <<: [" + ",".join(["*a"] * 150_000) + "]", "more than 20,000 values"),
        ("".join(f"- &a{i} x\n" for i in range(80_000)), "more than 20,000 values"),
        ("seed: !!timestamp abc", "the value does not fit its tag"),
        ("seed: !!bool abc", "the value does not fit its tag"),
        ("seed: !!int abc", "invalid literal"),
        ("seed: !!binary '='", "."),
        ("seed: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("%YAML " + "9" * 5000 + ".1\n---\na: 1", "Exceeds the limit"),
        ("seed: 2020-99-99", "month must be in 1..12"),
        ("seed: 2020-01-01T99:00:00Z", "hour must be in 0..23"),
        ("x: " + "a" * 2_000_000, "more than 1,048,576 bytes"),
    ],
)
def test_a_hostile_plan_is_not_valid(text, says, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text(text)
    start = time.perf_counter()
    with pytest.raises(SettingsError, match=says):
        read_plan(plan)
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (".".join("a" * 50_000) + " = 1", "a key of more than 100 parts"),
        (" . ".join(['"a"'] * 50_000) + " = 1", "a key of more than 100 parts"),
        ("[" + ".".join("a" * 50_000) + "]", "a key of more than 100 parts"),
        ("x = {" + ".".join("a" * 50_000) + " = 1}", "a key of more than 100 parts"),
        (".".join(['"\\""'] * 20_000) + " = 1", "a key of more than 100 parts"),
        ('x = {x = """a" """, ' + ".".join(['"b"'] * 20_000) + " = 1}", "a key of more than 100 parts"),
        ('x = {x = """a"""", ' + ".".join(['"b"'] * 20_000) + " = 1}", "a key of more than 100 parts"),
        ("x = {x = '''a''''', " + ".".join(["'b'"] * 20_000) + " = 1}", "a key of more than 100 parts"),
        ("x = 1 # ''' \"\"\"\n" + ".".join(['"b"'] * 20_000) + " = 1", "a key of more than 100 parts"),
        ('x = "\\\\"\n' + ".".join(['"b"'] * 20_000) + " = 1", "a key of more than 100 parts"),
        ("x = " + "[" * 100_000, "nested too deep"),
        ("x = " + "[" * 300 + "]" * 300, "nested too deep"),
        ("x = " + "{a=" * 10_000, "nested too deep"),
        ("x = 18446744073709551616", "beyond 64 bits"),
        ("x = " + "9" * 5000, "."),
        ("x = 0x" + "f" * 5000, "."),
        ("x = 2020-99-99", "."),
    ],
)
def test_hostile_toml_is_not_valid(text, says, tmp_path):
    config = tmp_path / "endpoint.toml"
    config.write_text(text)
    start = time.perf_counter()
    with pytest.raises(ValueError, match=says):
        read_toml(text)
    with pytest.raises(SettingsError, match="is not valid TOML"):
        Endpoint.from_env(config=config, env={})
    with pytest.raises(SettingsError, match="not a valid table of priors"):
        read_priors(config)
    assert time.perf_counter() - start < 10


def test_toml_that_is_right_is_read():
    text = 'a.b.c = "x. y. z"\n"example.org" = 0.9\n[t]\nx = [1, 18446744073709551615]\nd = 2020-01-01\n'
    assert read_toml(text)["t"]["x"] == [1, 2**64 - 1]
    dots = "a.b" * 300
    text = f'x = """{dots}\\"""\\{chr(10)}{dots}"""\ny = \'\'\'{dots}{chr(10)}{dots}\'\'\'\nz = "{dots}"\n# "{dots}\n'
    assert read_toml(text) == tomllib.loads(text)
    assert read_toml('x = """\n' + "Well... " * 200 + '\n"""')["x"].startswith("Well")


def test_pipes_devices_and_folders_are_not_read(tmp_path):
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), tmp_path):
        start = time.perf_counter()
        with pytest.raises(OSError, match="regular file|directory"):
            read_small(path)
        with pytest.raises(InputError, match="cannot be read"):
            with_words_of(wordings.PAIRWISE, str(path))
        with pytest.raises(SettingsError, match="cannot be read"):
            Endpoint.from_env(config=path, env={})
        with pytest.raises(SettingsError, match="cannot be read"):
            read_plan(path)
        assert time.perf_counter() - start < 5
    with pytest.raises(SettingsError, match="cannot be read"):
        read_priors(pipe)


def test_line_ends_are_read_as_text_files_have_them(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\r\nb\rc\n")
    assert read_small(path) == path.read_text() == "a\nb\nc\n"
