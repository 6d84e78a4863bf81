"""Outside text on terminals, in messages and tables: what would be obeyed is shown instead."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from contextlib import suppress

import pytest
from command import SCRIPT, fcjax
from rich.text import Text
from scripted_server import ScriptedServer

from fcjax.cli.display import SafeConsole
from fcjax.core.errors import Fault, InputError
from fcjax.core.terminal import visible
from fcjax.evaluation.tables import Column, Table

EVIL = "\x1b]0;title\x07\x9b2J\x1b]52;c;aGk=\x07\rok\nfcjax: error\u202e\x7f"
CONTROL = set(map(chr, [*range(32), *range(127, 160), 0x202E])) - {"\n"}


def test_control_characters_become_escapes_and_nothing_else_changes():
    assert visible(EVIL) == (r"\x1b]0;title\x07\x9b2J\x1b]52;c;aGk=\x07\rok\nfcjax: error\u202e\x7f")
    assert visible("a\nb\tc", keep="\n\t") == "a\nb\tc"
    every = "".join(map(chr, range(32, 127))) + "äé漢字 العَرَبِيّة 👩‍👩‍👧 − ±"
    assert visible(every) == every


def test_a_fault_is_one_line_whatever_it_is_about():
    error = InputError(Fault("not read", file=f"/x/{EVIL}.txt", case=EVIL, field=f"a.{EVIL}"))
    assert len(str(error).splitlines()) == 1
    assert not CONTROL & set(str(error))


def test_ids_of_a_server_are_shown_and_not_obeyed():
    with ScriptedServer(lambda messages: "[neutral]", models=[EVIL]) as server:
        done = fcjax("doctor", "--base-url", server.url, "--model", "scripted")
    said = (done.stdout + done.stderr).decode()
    assert r"\x1b]0;title" in said
    assert not CONTROL & set(said)


def test_names_of_files_are_shown_and_not_obeyed(tmp_path):
    path = tmp_path / "a\x1b[2J\nfcjax: error: forged\x9b.jsonl"
    path.write_text('{"id": []}\n')
    for more in ((), ("--json",)):
        done = fcjax("validate", str(path), *more)
        said = (done.stdout + done.stderr).decode()
        assert not CONTROL & set(said)
        assert not any(line.startswith("fcjax: error: forged") for line in said.splitlines())
    assert json.loads(done.stdout)


def test_a_console_keeps_its_own_colours_only():
    out = io.StringIO()
    SafeConsole(file=out, force_terminal=True, color_system="standard", width=200).print(Text(f"red {EVIL}", "red"))
    assert out.getvalue().count("\x1b") == out.getvalue().count("\x1b[31m") + out.getvalue().count("\x1b[0m")
    assert "\x9b" not in out.getvalue()


@pytest.mark.parametrize(
    ("cell", "saved"),
    [("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"), ("+1+1", "'+1+1"), ("-2+3", "'-2+3"), ("@SUM(A1)", "'@SUM(A1)"),
     (" =1", "' =1"), ("\t=1", "'\t=1"), ("＝1", "'＝1"), ("a\x1b[2J", r"a\x1b[2J"), ("plain = text", "plain = text"),
     ("-2.5", "-2.5"), ("+1e-3", "+1e-3")],
)  # fmt: skip
def test_cells_of_a_table_are_not_calculated(cell, saved):
    table = Table((Column("x"),), ((cell,),))
    assert list(csv.reader(io.StringIO(table.csv())))[1] == [saved]
    assert "\x1b" not in table.markdown() + table.latex()


def test_heads_of_a_table_are_not_calculated():
    head = "=cmd|' /C calc'!A0\x1b[2J"
    table = Table((Column("n", head), Column(head), Column("-2.5")), ((1, "x", 2),))
    assert next(csv.reader(io.StringIO(table.csv()))) == [
        r"'=cmd|' /C calc'!A0\x1b[2J n",
        r"'=cmd|' /C calc'!A0\x1b[2J",
        "-2.5",
    ]
    for text in (table.markdown(), table.latex()):
        assert r"x1b" in text
        assert not CONTROL & set(text)


FORGED = "x\x1b]0;title\x07\nfcjax: error: forged"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="the system has no pseudo-terminals")
@pytest.mark.parametrize(
    "args",
    [
        (FORGED,), (f"--{FORGED}",), ("cache", FORGED), ("validate", FORGED), ("score", __file__, FORGED),
        ("score", __file__, "--k", FORGED), ("doctor", "--timeout", FORGED), ("doctor", f"--{FORGED}", "1"),
        ("score", __file__, "-o", FORGED + "/x"), ("data", FORGED),
    ],
)  # fmt: skip
def test_arguments_in_errors_are_shown_and_not_obeyed(args):
    """On a terminal: click removes escape sequences from what goes elsewhere."""
    ours, theirs = os.openpty()
    done = subprocess.run([SCRIPT, *args], stdout=theirs, stderr=theirs, timeout=60, check=False)
    os.close(theirs)
    said = b""
    with suppress(OSError):  # how a terminal ends
        while part := os.read(ours, 65536):
            said += part
    os.close(ours)
    lines = said.decode().replace("\r\n", "\n")
    assert done.returncode == 2
    assert r"\x1b]0;title\x07\nfcjax: error: forged" in lines
    assert not CONTROL & set(lines)
    assert not any(line.startswith("fcjax: error: forged") for line in lines.splitlines())


def test_help_and_choices_keep_their_lines():
    said = fcjax("cache").stderr + fcjax("cache").stdout
    assert b"\nOptions:\n" in said
    assert b"Usage: fcjax score" in fcjax("score").stderr


def test_log_lines_and_warnings_are_shown_and_not_obeyed():
    """Of all libraries, whatever handler writes them."""
    program = f"""
import logging, sys, warnings
from fcjax.cli.shell import escape_log_lines
escape_log_lines()
forged = {FORGED!r}
logging.getLogger("library").warning("found %s", forged)
logging.basicConfig(format="%(levelname)s %(message)s")
try:
    raise ValueError(forged)
except ValueError:
    logging.getLogger("library").exception("failed: " + forged)
logging.getLogger("library").error("no exception", exc_info=True)
warnings.warn(forged)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, timeout=60, check=True)
    lines = done.stderr.decode()
    assert lines.count(r"x\x1b]0;title\x07\nfcjax: error: forged") == 3  # log lines and warnings in one line each
    assert lines.count(r"\x1b]0;title\x07") == 4  # and the traceback
    assert "\nTraceback (most recent call last):\n" in lines
    assert not CONTROL & set(lines)


def test_the_command_line_escapes_its_log_lines():
    """The reason that compiled kernels are not kept has the name of a folder from the environment."""
    program = f"""
import logging, runpy, sys
sys.argv = ["fcjax", "--version"]
try:
    runpy.run_module("fcjax", run_name="__main__")
except SystemExit:
    pass
logging.getLogger("fcjax.kernels.compilation").warning("cannot keep (%s)", {FORGED!r})
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, timeout=60, check=True)
    assert done.stderr.decode() == "cannot keep (x\\x1b]0;title\\x07\\nfcjax: error: forged)\n"
