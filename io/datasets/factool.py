"""FacTool's knowledge-based questions: responses split into claims, each with a human label.

A row has `prompt`, `response` and `claims`, a list of `{"claim": text, "label": true or false}`; its own `label` says
whether the whole response is right. The files for code, mathematics and scientific literature have claims of other
kinds (snippets, calculations, titles of papers) and are not supported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fcjax.core.records import Atom, Case
from fcjax.io.datasets.rows import Fields, Origin, Unit, read_each
from fcjax.io.files.objects import Row
from fcjax.io.files.streams import Source

_KNOWN: Final = frozenset(("prompt", "response", "claims", "label", "entry_point", "category"))


def read_factool(*paths: Source) -> Iterator[Row[Unit]]:
    """FacTool's file of knowledge-based questions as cases whose atoms are the labelled claims."""
    return read_each("factool", paths, _KNOWN, _parse)


def _parse(row: Fields, origin: Origin) -> Unit:
    query, response = row.text("prompt"), row.text("response")
    atoms = []
    for i, claim in enumerate(row.objects("claims")):
        text, label = claim.text("claim"), claim.truth("label")
        atoms.append(Atom(id=f"a{i}", text=text, label="S" if label else "NS"))
    id = f"factool-{origin.label}-{origin.number}"
    extra = {"source": "factool"}
    return Unit(query.strip(), (Case(id=id, query=query, response=response, atoms=tuple(atoms), extra=extra),))
