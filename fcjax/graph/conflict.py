"""The relations that conflict in an inconsistent graph, Z = 0 (SPEC 4).

A factor over two Boolean variables that is 0 somewhere forbids that pair of states, so Z = 0 is an unsatisfiable
2-SAT problem: some variable can be neither false nor true. The two chains of implications that show it are the proof,
and the relations along them are the ones to name (Aspvall, Plass and Tarjan, "A Linear-Time Algorithm for Testing the
Truth of Certain Quantified Boolean Formulas", Information Processing Letters 8, 1979).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fcjax.graph.fact_graph import FactGraph

Literal = int  # 2 * variable + state
Link = tuple[Literal, int | None]  # the consequence, and the factor that implies it; None: a prior or evidence
NOTHING: Mapping[str, bool] = {}


def satisfiable(graph: FactGraph, observed: Mapping[str, bool] = NOTHING) -> bool:
    """Whether some assignment has a weight over 0; `observed` adds to the graph's own evidence."""
    return _impossible(_implications(graph, observed), len(graph)) is None


def conflicting_factors(graph: FactGraph, observed: Mapping[str, bool] = NOTHING) -> list[int]:
    """Indices of factors that no assignment satisfies together, in order; empty if Z > 0 or only priors conflict."""
    follows = _implications(graph, observed)
    v = _impossible(follows, len(graph))
    if v is None:
        return []
    return sorted({*_chain(follows, 2 * v, 2 * v + 1), *_chain(follows, 2 * v + 1, 2 * v)})


def describe_conflict(graph: FactGraph, observed: Mapping[str, bool] = NOTHING) -> str:
    """The conflict in words, for a row's `reason`."""
    seen: dict[str, str] = {}  # kept variable -> the id that it was first observed by
    states = {**graph.evidence, **observed}
    for name, state in states.items():
        other = seen.setdefault(graph.aliases.get(name, name), name)
        if bool(states[other]) != bool(state):
            first, second = ("true" if states[id] else "false" for id in (other, name))
            both = f"{other!r} is observed as {first} and {name!r} as {second}"
            return f"Z = 0: {both}, but they have the same text and are one variable; change one of them"
    factors = conflicting_factors(graph, observed)
    if not factors:
        return "Z = 0: the priors and the evidence contradict each other; change one of them"
    names = []
    for f in factors:
        source, target = (graph.ids[v] for v in graph.ends[f])
        if graph.relations:
            relation = graph.relations[f]
            names.append(f"{source} {relation.type} {target} ({relation.probability:g})")
        else:
            names.append(f"factor of {source}, {target}")
    together = "; ".join(names)
    return (
        f"Z = 0: no assignment satisfies these together: {together}; move one of their probabilities away from 0 and 1"
    )


def _implications(graph: FactGraph, observed: Mapping[str, bool]) -> dict[Literal, list[Link]]:
    follows: dict[Literal, list[Link]] = {}

    def forbid(a: Literal, b: Literal, factor: int | None) -> None:
        follows.setdefault(a, []).append((b ^ 1, factor))
        follows.setdefault(b, []).append((a ^ 1, factor))

    for v, state in np.argwhere(graph.unary == 0.0).tolist():
        forbid(2 * v + state, 2 * v + state, None)
    for name, observation in {**graph.evidence, **observed}.items():
        other = 2 * graph.index[graph.aliases.get(name, name)] + (not observation)
        forbid(other, other, None)
    for f, s, t in np.argwhere(graph.tables == 0.0).tolist():
        source, target = graph.ends[f].tolist()
        forbid(2 * source + s, 2 * target + t, f)
    return follows


def _impossible(follows: Mapping[Literal, list[Link]], variables: int) -> int | None:
    """The first variable whose two states imply each other: both lie in one strongly connected component."""
    links = [(a, b) for a, after in follows.items() for b, _ in after]
    if not links:
        return None
    start, end = np.array(links).T
    graph = csr_array((np.ones(len(links)), (start, end)), shape=(2 * variables, 2 * variables))
    _, component = connected_components(graph, connection="strong")
    conflict = np.flatnonzero(component[0::2] == component[1::2])
    return int(conflict[0]) if len(conflict) else None


def _chain(follows: Mapping[Literal, list[Link]], start: Literal, goal: Literal) -> list[int]:
    """The factors along a shortest chain of implications from `start` to `goal`, which must exist."""
    reached: dict[Literal, Link | None] = {start: None}
    queue = deque([start])
    while goal not in reached:
        here = queue.popleft()
        for following, factor in follows.get(here, ()):
            if following not in reached:
                reached[following] = (here, factor)
                queue.append(following)
    factors = []
    step = reached[goal]
    while step is not None:
        here, factor = step
        if factor is not None:
            factors.append(factor)
        step = reached[here]
    return factors
