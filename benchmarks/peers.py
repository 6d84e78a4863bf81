"""The other solvers, run on the same graphs as their users would run them."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from fcjax.graph.fact_graph import FactGraph


def pyagrum(graph: FactGraph) -> np.ndarray:
    """P(true) of every variable by exact inference: build the network, infer, read every posterior.

    Tables go through numpy in one call each, the quickest way in. Factors on one pair of variables are multiplied
    first: a `MarkovRandomField` has one factor per scope.
    """
    import pyagrum as gum

    field = gum.MarkovRandomField()
    for name in graph.ids:
        field.add(gum.LabelizedVariable(name, "", 2))
    for v, row in enumerate(graph.unary):
        field.addFactor([v]).fillWith(row.tolist())
    tables: dict[tuple[int, int], np.ndarray] = {}
    for (s, t), table in zip(graph.ends.tolist(), graph.tables, strict=True):
        pair, values = ((s, t), table) if s < t else ((t, s), table.T)
        tables[pair] = tables[pair] * values if pair in tables else values
    for (s, t), values in tables.items():
        field.addFactor([s, t]).fillWith(values.T.ravel().tolist())  # the first variable of the scope moves fastest
    engine = gum.ShaferShenoyMRFInference(field)
    engine.makeInference()
    return np.array([engine.posterior(v)[1] for v in range(len(graph))])


def merlin(graph: FactGraph, executable: str, i_bound: int = 6) -> np.ndarray:
    """P(true) of every variable by weighted mini-buckets: a subprocess and two files per graph, as in FactReasoner.

    Expects the command line of github.com/radum2275/merlin: it reads a UAI model and writes `OUTPUT.MAR.json`.
    Raises `RuntimeError` with the end of its output if it fails.
    """
    from fcjax.io.files.uai import write_uai

    with tempfile.TemporaryDirectory() as folder:
        model, output = Path(folder, "model.uai"), Path(folder, "output")
        write_uai(str(model), graph.to_model())
        command = [executable, "--input-file", str(model), "--task", "MAR", "--ibound", str(i_bound)]
        command += ["--algorithm", "wmb", "--output-format", "json", "--output-file", str(output)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{executable} ended with {done.returncode}: {(done.stderr or done.stdout)[-300:]}")
        answer = json.loads(Path(f"{output}.MAR.json").read_text())
    p = np.full(len(graph), np.nan)
    for row in answer["marginals"]:
        p[row["variable"]] = row["probabilities"][1]
    return p
