"""Outside text on terminals, in messages and tables: what would be obeyed is shown instead."""

from __future__ import annotations

import csv
import io
import json

import pytest
from command import fcjax
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
