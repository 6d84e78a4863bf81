"""The demonstration: its replies belong to the questions that are asked today, and it needs no network."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def replies(monkeypatch, tmp_path):
    """The script that makes the replies."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    spec = importlib.util.spec_from_file_location("replies", EXAMPLES / "replies.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_replies_are_those_of_todays_questions(replies, tmp_path):
    replies.make(tmp_path / "replies.jsonl")
    made, kept = (
        sorted(map(json.dumps, map(json.loads, path.read_text(encoding="utf-8").splitlines())))
        for path in (tmp_path / "replies.jsonl", EXAMPLES / "replies.jsonl")
    )
    assert made == kept, "a template has changed: run `python -P examples/replies.py`"


def test_the_replies_say_that_they_were_written_by_hand():
    assert "no model has said any of this" in json.loads((EXAMPLES / "answers.json").read_text("utf-8"))["note"]
    for line in (EXAMPLES / "replies.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        assert (row["model"], row["source"]) == ("written-by-hand", "http://written-by-hand.invalid/v1")


def test_every_answer_is_used(replies, tmp_path):
    """An answer about a passage that nobody retrieves, or an atom that is worded otherwise, would say nothing."""
    given = json.loads((EXAMPLES / "answers.json").read_text("utf-8"))
    rows = [json.loads(line) for line in (EXAMPLES / "replies.jsonl").read_text("utf-8").splitlines()]
    labels = [row["answer"]["text"] for row in rows if row["template"].startswith("relate.")]
    told = [f"[{label}]" for _, _, label, _ in given["relations"]]
    assert sorted(label for label in labels if label != "[neutral]") == sorted(told)
