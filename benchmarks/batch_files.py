"""Critique through files alone: the same bytes as against an endpoint, with errors and a lost part on the way.

Bare responses of a file of cases are critiqued over the passages of all its cases, once against the tests' scripted
server and once by `--batch-out`, where a scripted answerer reads the request files and writes outputs. In the second of
two runs by files, 5 % of all requests fail and the middle part of the largest round is never answered.

    python benchmarks/batch_files.py --cases cases.jsonl
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from batch_answers import answer_file, last_round
from jsonl import rows_in, write
from scripted_server import Messages, ScriptedServer

WAITING = 3


def tag(content: str, name: str) -> str | None:
    found = re.search(rf"^<{name}>\n(.*?)\n</{name}>$", content, re.MULTILINE | re.DOTALL)
    return found[1] if found else None


def answer(messages: Messages) -> Any:
    """A model that knows nothing and always says the same to the same: sentences are facts, a hash is a relation."""
    content = messages[0]["content"]
    if (text := tag(content, "text")) is not None:
        return json.dumps([one for one in re.split(r"(?<=[.!?])\s+", text) if len(one.split()) > 2] or ["None."])
    if (lines := tag(content, "statements")) is not None:
        return json.dumps(dict(line.split(". ", 1) for line in lines.splitlines()))
    draw = hashlib.sha256(content.encode()).digest()
    label = ("entailment", "contradiction", "neutral", "neutral")[draw[0] % 4]
    p = 0.5 + draw[1] / 520
    return {"text": label, "tokens": [(label, -(1 - p), [(label, -(1 - p)), ("neutral", -3.0)])]}


def fails_at(round: int, number: int) -> bool:
    """Whether a request of a round fails, by its number in its file: one in twenty, another one in each round."""
    return (number + round) % 20 == 0


def fcjax(*words: object, **env: str) -> tuple[int, dict[str, Any], float]:
    """Exit code, the JSON that was printed, and seconds."""
    began = time.perf_counter()
    command = [sys.executable, "-P", "-m", "fcjax", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | env)
    if done.returncode not in (0, WAITING):
        sys.exit(f"{words}: exit code {done.returncode}\n{done.stderr}")
    return done.returncode, json.loads(done.stdout), time.perf_counter() - began


def by_files(command: list[object], folder: Path, out: Path, env: dict[str, str], *, spoiled: bool) -> list[Any]:
    """Rounds until the results are written."""
    rounds = []
    lost = False
    while True:
        code, told, seconds = fcjax(*command, "-o", out, "--batch-out", folder, "--batch-requests", 400, **env)
        if code == 0:
            return rounds
        files = last_round(folder)
        skipped = files[len(files) // 2] if spoiled and not lost and len(files) > 2 else None
        lost = lost or skipped is not None
        fails = partial(fails_at, len(rounds)) if spoiled else (lambda number: False)
        outputs = [answer_file(one, answer, fails=fails) for one in files if one != skipped]
        _, taken, _ = fcjax("cache", "import", "--batch", *outputs, **env)
        batch = told["batch"]
        rounds.append({
            "round": batch["round"], "prompts": batch["n_prompts"], "files": len(batch["files"]),
            "asked_again": batch["asked_again"], "not_imported": batch["not_imported"], "added": taken["added"],
            "failed": taken["n_failed"], "missing": taken["missing"], "seconds": round(seconds, 2),
        })  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=Path, required=True, help="cases with responses and contexts")
    parser.add_argument("--graph", default="FR2")
    given = parser.parse_args()
    if not given.cases.is_file():
        sys.exit(f"{given.cases}: there is no such file; this benchmark needs cases")
    cases = rows_in(given.cases)
    with tempfile.TemporaryDirectory() as name, ScriptedServer(answer) as server:
        folder = Path(name)
        bare = [{key: case[key] for key in ("id", "query", "response")} for case in cases]
        source = write(folder / "responses.jsonl", *bare)
        passages = {context["text"]: context for case in cases for context in case["contexts"]}
        rows = [{key: one.get(key) for key in ("title", "text", "link") if one.get(key)} for one in passages.values()]
        corpus = write(folder / "corpus.jsonl", *rows)
        env = {"OPENAI_BASE_URL": server.url, "FCJAX_MODEL": "scripted", "XDG_CACHE_HOME": str(folder / "cache")}
        command = ["critique", source, "--corpus", corpus, "--graph", given.graph]
        _, _, seconds = fcjax(*command, "-o", folder / "asked.jsonl", FCJAX_STORE=str(folder / "asked.sqlite"), **env)
        calls = server.calls
        print(f"endpoint: {len(cases)} responses, {len(rows)} passages, {calls} prompts, {seconds:.1f} s")
        for spoiled in (False, True):
            kind = "spoiled" if spoiled else "good"
            own = {**env, "FCJAX_STORE": str(folder / f"{kind}.sqlite")}
            for one in by_files(command, folder / kind, folder / f"{kind}.jsonl", own, spoiled=spoiled):
                print(f"{kind}: {json.dumps(one)}")
            same = [
                (folder / f"asked{end}").read_bytes() == (folder / f"{kind}{end}").read_bytes()
                for end in (".jsonl", ".cases.jsonl")
            ]
            print(f"{kind}: results equal {same[0]}, cases equal {same[1]}, calls of the server {server.calls - calls}")
            if not all(same) or server.calls != calls:
                sys.exit(1)


if __name__ == "__main__":
    main()
