"""A model that answers all stages' questions, and the world that it knows: towns, and how many of what they have.

    with ScriptedServer(answer) as server, Shelf(passages(20)) as retriever: ...

`python tests/support/scripted_model.py --delay 0.05` serves it as a process of its own, as `scripted_server.py` does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for the process of its own

from scripted_server import Messages, ScriptedServer

from fcjax.core.passages import Found, Passage
from fcjax.core.prompts import Failure

THINGS = (
    "bridges",
    "schools",
    "mills",
    "towers",
    "parks",
    "wells",
    "inns",
    "gates",
    "barns",
    "docks",
    "courts",
    "halls",
)
_CLAIM = re.compile(r"(Town \d+) has (\d+) (\w+)")


def count(town: int, thing: int) -> int:
    """How many of a thing a town has, truly."""
    return 2 + (7 * town + 5 * thing) % 89


def case(town: int, atoms: int = 3, **more: Any) -> dict[str, Any]:
    """A response about a town, whose every third claim is false."""
    claims = (f"Town {town} has {count(town, thing) + (thing % 3 == 1)} {THINGS[thing]}." for thing in range(atoms))
    return {"id": f"town {town}", "query": f"What is in Town {town}?", "response": " ".join(claims), **more}


def passages(towns: int, atoms: int = 3, copies: int = 2) -> Iterator[Passage]:
    """What sources say of the towns: the truth about every claim, in several words; the last claim's is not told."""
    for town in range(towns):
        for thing, name in enumerate(THINGS[: atoms - 1]):
            for copy in range(copies):
                yield Passage(
                    title=f"Town {town}",
                    text=f"Guide {copy} says so: Town {town} has {count(town, thing)} {name}.",
                    link=f"https://source{copy}.example/town{town}/{name}",
                )


class Shelf:
    """A `Retriever` over passages: those that have the town and the thing of the query, in their order."""

    name = "shelf"

    def __init__(self, held: Iterable[Passage], broken: Iterable[str] = (), delay: float = 0.0):
        self.broken = set(broken)  # words that no search may have
        self.delay = delay
        self.searches = 0
        self.closed = False
        self._held: dict[tuple[str, str], list[Passage]] = {}
        for passage in held:
            for town, _, thing in _CLAIM.findall(passage.text or ""):
                self._held.setdefault((town, thing), []).append(passage)

    async def search(self, query: str, k: int) -> Found | Failure:
        self.searches += 1
        await asyncio.sleep(self.delay)
        if broken := self.broken.intersection(re.findall(r"\w+", query)):
            return Failure("forbidden", f"403 for {min(broken)}", attempts=1)
        town, thing = re.search(r"Town \d+", query), next((one for one in THINGS if one in query), "")
        return tuple(self._held.get((town[0] if town else "", thing), ())[:k])

    async def close(self) -> None:
        self.closed = True


def answer(messages: Messages) -> str:
    """The right answer to a question of any stage."""
    content = messages[0]["content"]
    if premise := _between(content, "premise"):
        if (hypothesis := _between(content, "hypothesis")) is not None:
            return f"[{relation(premise, hypothesis)}]"
        return _numbered(content, "claims", lambda claim: relation(premise, claim))
    if (text := _between(content, "text")) is not None:
        return json.dumps([f"{one}." for one in text.rstrip(".").split(". ")] if text else [])
    if _between(content, "statements") is not None:
        return _numbered(content, "statements", lambda statement: statement.replace("It has", "Town 0 has"))
    if passage := _between(content, "passage"):
        found = _CLAIM.search(passage)
        return json.dumps({"summary": f"{found[0]}." if found else "irrelevant", "confidence": 0.9})
    return _numbered(content, "claims", lambda claim: claim.rstrip("."))


def relation(premise: str, hypothesis: str) -> str:
    """What a text says of a claim: it entails it, contradicts its number, or speaks of something else."""
    told = {(town, thing): number for town, number, thing in _CLAIM.findall(premise)}
    claimed = _CLAIM.search(hypothesis)
    number = told.get((claimed[1], claimed[3])) if claimed else None
    return "neutral" if number is None else "entailment" if number == claimed[2] else "contradiction"  # type: ignore


def _between(content: str, tag: str) -> str | None:
    found = re.search(rf"^<{tag}>\n(.*?)\n</{tag}>$", content, re.MULTILINE | re.DOTALL)
    return found[1] if found else None


def _numbered(content: str, tag: str, said: Any) -> str:
    lines = (_between(content, tag) or "").splitlines()
    parts = (line.partition(". ") for line in lines)
    return json.dumps({number: said(text) for number, _, text in parts})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that a reply takes")
    parser.add_argument("--spread", type=float, default=0.0, help="share of it that varies, up and down")
    given = parser.parse_args()
    with ScriptedServer(answer, delay=given.delay, spread=given.spread) as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
