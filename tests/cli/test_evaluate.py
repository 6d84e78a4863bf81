"""`fcjax eval` as a user starts it, against a server on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
import scripted_model as model
import scripted_writer
from command import INTERRUPTED, KEY, OK, SCRIPT, SOME_FAILED, UNUSABLE, fcjax
from jsonl import write
from scripted_critique import corpus_of, settings
from scripted_server import ScriptedServer

TOWNS = 6
PLAN = """\
data: [{path: towns.jsonl, corpus: corpus.jsonl}]
models: [{model: scripted, price: [1, 2]}]
correctors: [factcorrector, rac]
scores: {facts: 3}
"""


@pytest.fixture
def server():
    with ScriptedServer(scripted_writer.answer, key=KEY) as running:
        yield running


@pytest.fixture
def run(server, tmp_path):
    """Runs `fcjax eval` with a plan and the server of this test."""
    corpus_of(tmp_path)
    write(tmp_path / "towns.jsonl", *(model.case(town, 1 + town % 4) for town in range(1, TOWNS)))
    (tmp_path / "grid.yaml").write_text(PLAN)

    def go(*args, **env):
        return fcjax("eval", *args, **settings(server, tmp_path) | env)

    return go


def test_a_grid_from_the_file_to_the_tables(run, server, tmp_path):
    out = tmp_path / "out"
    done = run(tmp_path / "grid.yaml", "-o", out, COLUMNS="120")
    assert done.returncode == OK, done.stderr
    shown = done.stdout.decode()
    assert "factcorrector" in shown
    assert "9 steps, 0 kept from an earlier run" in shown
    assert f"3 tables and 8 plots in {out}" in shown or "no plots: matplotlib is not installed" in shown
    assert done.stderr == b""
    report = (out / "report.md").read_text()
    assert "| factcorrector | scripted | 5 |" in report
    calls = server.calls
    again = run(tmp_path / "grid.yaml", "-o", out)
    assert "9 steps, 9 kept from an earlier run" in again.stdout.decode()
    tables = {path.name: path.read_bytes() for path in (out / "tables").iterdir()}
    for path in (out / "tables").iterdir():
        path.unlink()
    server.stop()
    once_more = run(out, "--no-plots")  # the tables alone
    assert once_more.returncode == OK, once_more.stderr
    assert {path.name: path.read_bytes() for path in (out / "tables").iterdir()} == tables
    server.start()
    assert server.calls == calls
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY.encode() not in kept + done.stdout + done.stderr


def test_json(run, tmp_path):
    done = run(tmp_path / "grid.yaml", "-o", tmp_path / "out", "--json", "--no-plots")
    document = json.loads(done.stdout)
    assert (document["steps"], document["kept"], document["failed"]) == (9, 0, {})
    assert [(cell["data"], cell["corrector"]) for cell in document["cells"]] == [
        ("towns", "factcorrector"),
        ("towns", "rac"),
    ]
    assert document["cells"][0]["comparison"]["measures"]["precision"]["after"]["mean"] == 1.0
    assert document["client"]["cost"] > 0
    assert document["statuses"]["towns/scripted/rac"] == {"ok": 5}
    assert document["missing"] == []


def test_a_dry_run_lists_the_cells(run, server, tmp_path):
    done = run(tmp_path / "grid.yaml", "-n")
    assert done.stdout.decode().splitlines() == [
        "towns: factcorrector with scripted, evaluated by scripted",
        "towns: rac with scripted, evaluated by scripted",
        "2 cells",
    ]
    assert json.loads(run(tmp_path / "grid.yaml", "-n", "--json").stdout)["dry_run"]
    assert server.calls == 0


def test_a_budget_stops_it_and_the_next_run_goes_on(run, tmp_path):
    out = tmp_path / "out"
    done = run(tmp_path / "grid.yaml", "-o", out, "--budget-prompts", 60)
    assert done.returncode == SOME_FAILED
    message = done.stderr.decode()
    assert "the budget of 60 prompts is used up" in message
    assert f"of 9 steps finished in {out}; run the same command to resume" in message
    assert run(out, "--no-plots").returncode == OK  # tables of what there is
    assert "missing: towns, scripted, rac" in run(out, "--no-plots").stdout.decode()
    assert run(tmp_path / "grid.yaml", "-o", out, "--no-plots").returncode == OK


def test_what_failed_is_said(run, server, tmp_path):
    server.answer = lambda messages: (
        "" if "<false_statements>" in messages[0]["content"] else scripted_writer.answer(messages)
    )
    done = run(tmp_path / "grid.yaml", "-o", tmp_path / "out", "--no-plots")
    assert done.returncode == SOME_FAILED
    assert "towns/scripted/factcorrector: 4 correction_failed" in done.stderr.decode()


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGKILL])
def test_stopped_at_any_moment_it_goes_on(run, server, tmp_path, signal_):
    calm = run(tmp_path / "grid.yaml", "-o", tmp_path / "calm", "--no-plots")
    assert calm.returncode == OK, calm.stderr
    total = server.answered.total()
    server.asked.clear()
    server.answered.clear()
    server.delay = 0.02
    command = [SCRIPT, "eval", tmp_path / "grid.yaml", "-o", tmp_path / "out", "--no-plots"]
    env = settings(server, tmp_path)
    process = subprocess.Popen(command, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while server.answered.total() < 0.7 * total:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal_)
    _, said = process.communicate(timeout=30)
    if signal_ is signal.SIGINT:
        assert process.returncode == INTERRUPTED
        assert b"run the same command to resume" in said
        assert b"Traceback" not in said
    server.delay = 0
    done = fcjax(*command[1:], **env)
    assert done.returncode == OK, done.stderr
    for name in (
        "report.md",
        "cells/towns/scripted/factcorrector/corrections.jsonl",
        "data/towns/scripted/before.jsonl",
    ):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "calm" / name).read_bytes(), name
    if signal_ is signal.SIGINT:
        assert server.calls <= total + 8  # what was on the wire is waited for, and stored


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["grid.yaml"], "add -o FOLDER"),
        (["grid.yaml", "-o", "out", "--replay"], "there is no store there"),
        ([".", "-n"], "--dry-run has no effect with a folder, whose tables are only recreated"),
        (["."], "does not contain an evaluation"),
        (["towns.jsonl", "-n"], "is not valid YAML"),
        (["bad.yaml", "-n"], "bad.yaml: data is missing or empty"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(run, tmp_path, monkeypatch, args, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("models: [a]")
    done = run(*args)
    assert done.returncode == UNUSABLE
    assert words in done.stderr.decode()
    assert len(done.stderr.decode().splitlines()) == 1
