"""A corpus for the scripted model's towns, and the variables of a run over it."""

from __future__ import annotations

import scripted_model as model
from command import environment
from jsonl import write


def corpus_of(tmp_path, towns=10):
    rows = ({"title": p.title, "text": p.text, "link": p.link} for p in model.passages(towns, 4))
    return write(tmp_path / "corpus.jsonl", *rows)


def settings(server, tmp_path):
    return environment(server, tmp_path) | {"XDG_CACHE_HOME": str(tmp_path / "indexes")}
