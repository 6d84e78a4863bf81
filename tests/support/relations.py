"""Cases whose relations a scripted model can read off their texts, and a client for it."""

from __future__ import annotations

import json
import re

from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.pacing import Retry

QUICK = Retry(attempts=8, first=0.01, longest=0.05)


def case(id, atoms=2, contexts=2, **more):
    """Atoms and contexts of which those with equal numbers say the same; atom i has context i of its own."""
    return {
        "id": id,
        "atoms": [
            {"id": f"a{i}", "text": f"{id} says {i}", "contexts": [f"c{i}"] * (i < contexts)} for i in range(atoms)
        ],
        "contexts": [{"id": f"c{j}", "text": f"{id} says {j}"} for j in range(contexts)],
        **more,
    }


def judge(messages):
    """Answers by the texts between the tags: the same number entails, another contradicts, another case is neutral."""
    content = messages[0]["content"]
    premise, rest = (
        re.search(rf"^<({name})>\n(.*?)\n</\1>$", content, re.MULTILINE | re.DOTALL)[2]
        for name in ("premise", "hypothesis|claims")
    )

    def label(text):
        return "entailment" if premise == text else "contradiction" if premise[:-1] == text[:-1] else "neutral"

    if "<claims>" not in content:
        return f"[{label(rest)}]"
    claims = [line.partition(". ")[2] for line in rest.splitlines()]
    return json.dumps({str(i): label(text) for i, text in enumerate(claims, 1)})


def client_of(server, **more):
    return Client(Endpoint(server.url, "scripted"), **{"retry": QUICK, "concurrency": 8, **more})
