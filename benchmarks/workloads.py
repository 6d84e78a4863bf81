"""Synthetic fact graphs with the sizes and versions of long answers; seeded, so that they are equal in every run.

A response has n ~ round(Normal(mean, std)) atoms, at least 2, and round(0.7 (n + 1) k) contexts, those that are left of
k = 3 retrieved ones per query; every context was retrieved for one random atom, its owner. A context has a relation to
its owner with probability 0.7, and to any other atom with probability `cross` (0 in FR1): an entailment with 0.8, else
a contradiction. In FR3 every pair of contexts has one with probability `cc`: an entailment 0.3, a contradiction 0.2, an
equivalence 0.5. The relations' own probabilities are Beta(8, 1), clipped to [0.5, 0.9999].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from fcjax.core.records import RelationType
from fcjax.graph.fact_graph import FactGraph
from fcjax.graph.factors import ATOM_PRIOR, PRESETS, factor_table

SIZES = {"veli5": (8, 4), "bio": (15, 6), "askhist": (22, 6), "biofr": (31, 8)}  # atoms: mean, standard deviation
TYPES = (RelationType.ENTAILMENT, RelationType.CONTRADICTION, RelationType.EQUIVALENCE)
K = 3


@dataclass(frozen=True)
class Workload:
    """A kind of graph; `preset` is a name of SPEC 2."""

    size: str
    version: str  # FR1, FR2 or FR3
    cross: float = 0.0
    cc: float = 0.0
    preset: str = "release"

    @property
    def name(self) -> str:
        """For example `bio FR2 0.1 release`."""
        numbers = [str(value) for value in (self.cross, self.cc) if value]
        return " ".join([self.size, self.version, *numbers, self.preset])

    @property
    def seed(self) -> list[int]:
        """A seed per workload; the two presets share theirs, and so their relations."""
        return [list(SIZES).index(self.size), int(self.version[2]), round(1000 * self.cross), round(1000 * self.cc)]

    def graphs(self, count: int, seed: int = 0) -> list[FactGraph]:
        """`count` graphs; a longer list starts with the shorter one."""
        rng = np.random.default_rng([seed, *self.seed])
        return [self._graph(rng) for _ in range(count)]

    def _graph(self, rng: np.random.Generator) -> FactGraph:
        mean, std = SIZES[self.size]
        n = max(2, round(rng.normal(mean, std)))
        m = round(0.7 * (n + 1) * K)
        chance = np.full((m, n), self.cross)
        chance[np.arange(m), rng.integers(n, size=m)] = 0.7
        context, atom = np.nonzero(rng.random((m, n)) < chance)
        types = np.where(rng.random(len(context)) < 0.8, 0, 1)
        ends = np.stack([context + n, atom], axis=1)
        if self.cc:
            first, second = np.triu_indices(m, 1)
            asked = rng.random(len(first)) < self.cc
            ends = np.concatenate([ends, np.stack([first[asked], second[asked]], axis=1) + n])
            types = np.concatenate([types, rng.choice(3, p=(0.3, 0.2, 0.5), size=int(asked.sum()))])
        p = np.clip(rng.beta(8, 1, size=len(ends)), 0.5, 0.9999)
        return build(n, m, ends, types, p, self.preset)


def build(n: int, m: int, ends: np.ndarray, types: np.ndarray, p: np.ndarray, preset: str) -> FactGraph:
    """The graph of `n` atoms and `m` contexts, numbered from `n` on; `types` counts along `TYPES`.

    A factor table is linear in p, so two of them are enough for all relations of a kind.
    """
    prior = PRESETS[preset].context_prior
    at_zero, slope = _lines(preset)
    kinds = types + 3 * (ends >= n).all(axis=1)
    ids = (*(f"a{i}" for i in range(n)), *(f"c{j}" for j in range(m)))
    true = np.where(np.arange(n + m) < n, ATOM_PRIOR, prior)
    return FactGraph(
        ids=ids,
        kinds=("atom",) * n + ("context",) * m,
        index={name: v for v, name in enumerate(ids)},
        unary=np.stack([1 - true, true], axis=1),
        ends=ends.astype(np.int32),
        tables=at_zero[kinds] + slope[kinds] * p[:, None, None],
    )


@cache
def _lines(preset: str) -> tuple[np.ndarray, np.ndarray]:
    """Tables at p = 0 and their change to p = 1, `[6, 2, 2]`: the three types to an atom, then between contexts."""
    encoding, prior = PRESETS[preset]
    at = [
        np.array([factor_table(type, p, encoding, b) for b in (ATOM_PRIOR, prior) for type in TYPES])
        for p in (0.0, 1.0)
    ]
    return at[0], at[1] - at[0]


def tied(width: int, count: int, seed: int = 0, extra: int = 16) -> list[FactGraph]:
    """Graphs of one induced width: random k-trees of `width + extra` contexts, the hardest graphs of a width."""
    rng = np.random.default_rng([seed, width])
    graphs = []
    for _ in range(count):
        m = width + extra
        cliques = [np.arange(width)]
        ends = [(i, j) for i in range(width) for j in range(i)]
        for v in range(width, m):
            clique = cliques[rng.integers(len(cliques))]
            ends += [(v, int(u)) for u in clique]
            cliques += [np.append(np.delete(clique, i), v) for i in range(width)]
        p = np.clip(rng.beta(8, 1, size=len(ends)), 0.5, 0.9999)
        graphs.append(build(0, m, np.array(ends), rng.choice(3, size=len(ends)), p, "release"))
    return graphs


def matrix(sizes: tuple[str, ...] = tuple(SIZES), presets: tuple[str, ...] = ("release", "paper")) -> list[Workload]:
    """Every version at every size: FR1, FR2 with three densities, FR3."""
    kinds = [("FR1", 0.0, 0.0), ("FR2", 0.05, 0.0), ("FR2", 0.1, 0.0), ("FR2", 0.2, 0.0), ("FR3", 0.1, 0.03)]
    return [Workload(size, *kind, preset) for preset in presets for size in sizes for kind in kinds]
