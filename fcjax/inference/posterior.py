"""The result of inference: posteriors with their intervals, and how they were found (SPEC 4, 8)."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, overload

import numpy as np
from jaxtyping import Float

from fcjax.core.errors import counted
from fcjax.core.records import EPS, Label, Status
from fcjax.graph.fact_graph import SHOWN, FactGraph

OUT_OF_RANGE = "a product of its weights exceeds the range of float64; scale its tables to a largest entry of 1"


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Solution:
    """The arrays behind `G` graphs' posteriors; variables as in their `GraphBatch`. Made by the engine."""

    node_ptr: list[int]  # G + 1 starts
    p: Float[np.ndarray, " V"]  # P(true); NaN where there is none
    lower: Float[np.ndarray, " V"] | None  # None: p -+ EPS everywhere
    upper: Float[np.ndarray, " V"] | None
    log_z: Float[np.ndarray, " G"]
    width: np.ndarray  # [G] int32
    status: list[Status]
    method: list[str | None]
    reason: dict[int, str]  # by graph, where there is something to say
    gap: Float[np.ndarray, " G"]  # upper / lower bound on Z, less 1; NaN where no interval was proved
    rows: np.ndarray  # [G] int64: sweeps spent; 0 for closed forms
    cutset: np.ndarray  # [G] int32: conditioned variables
    factor_ptr: list[int] = field(default_factory=list)  # G + 1 starts
    pairs: Float[np.ndarray, "E 2 2"] | None = None  # joint posteriors by [source][target]; NaN where not exact
    lists: list[list[float]] = field(default_factory=list)  # p as Python floats, made once on first use

    def fail(self, g: int, status: Status, reason: str) -> None:
        """Row g has no value."""
        self.status[g], self.method[g], self.reason[g] = status, None, reason
        self.log_z[g] = -np.inf if status is Status.INCONSISTENT else np.nan
        self.gap[g] = np.nan

    def floats(self) -> list[float]:
        if not self.lists:
            self.lists.append(np.clip(self.p, 0.0, 1.0).tolist())  # sums of weights over Z may be off by rounding
        return self.lists[0]


class Readings(Mapping[str, Any]):
    """One value per variable, by id; ids of merged duplicates can be looked up too, but are not iterated over.

    A view over a list: nothing is copied however many variables are never looked at.
    """

    __slots__ = ("_aliases", "_index", "_values")

    def __init__(self, graph: FactGraph, values: list[Any]):
        self._index = graph.index
        self._aliases = graph.aliases
        self._values = values

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[self._index[name]]
        except KeyError:
            return self._values[self._index[self._aliases[name]]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._index or name in self._aliases

    def values(self) -> list[Any]:  # type: ignore[override]
        return self._values

    def items(self) -> Iterator[tuple[str, Any]]:  # type: ignore[override]
        return zip(self._index, self._values, strict=True)

    def __repr__(self) -> str:
        return repr(dict(self.items()))


class Posterior:
    """The posterior of every variable of one graph. `p`, `lower`, `upper`, `certain` are mappings by id.

    Where `status` is not ok, `reason` says why and the mappings hold `None` for every variable.
    """

    __slots__ = ("_p", "_row", "_solution", "graph")

    def __init__(self, graph: FactGraph, solution: Solution, row: int):
        self.graph = graph
        self._solution = solution
        self._row = row
        self._p: Readings | None = None

    @property
    def p(self) -> Readings:
        """P(true) of every variable."""
        if self._p is None:
            solution, row = self._solution, self._row
            if solution.status[row] is not Status.OK:
                values: list[Any] = [None] * len(self.graph)
            else:
                values = solution.floats()[solution.node_ptr[row] : solution.node_ptr[row + 1]]
            self._p = Readings(self.graph, values)
        return self._p

    @property
    def lower(self) -> Readings:
        """The lower ends of the intervals, rounded outward by `EPS`."""
        return Readings(self.graph, self._bound(self._solution.lower, -EPS))

    @property
    def upper(self) -> Readings:
        """The upper ends of the intervals, rounded outward by `EPS`."""
        return Readings(self.graph, self._bound(self._solution.upper, EPS))

    @property
    def certain(self) -> Readings:
        """Whether the whole interval lies on one side of the tie band, or inside it (SPEC 4)."""
        low, high = self._bound(self._solution.lower, -EPS), self._bound(self._solution.upper, EPS)
        return Readings(
            self.graph, [a is not None and Label.of(a) is Label.of(b) for a, b in zip(low, high, strict=True)]
        )

    @property
    def label(self) -> Readings:
        """The label of every posterior (SPEC 3); `None` if it has none."""
        return Readings(self.graph, [None if p is None else Label.of(p) for p in self.p.values()])

    @property
    def status(self) -> Status:
        return self._solution.status[self._row]

    @property
    def reason(self) -> str | None:
        """Why there is no value, or where an unfinished proof stopped."""
        return self._solution.reason.get(self._row)

    @property
    def log_z(self) -> float:
        """The natural logarithm of the partition function; -inf where the graph is inconsistent, NaN if unknown.

        A lower bound, of the solved assignments, where the method is `conditioned`; an upper bound where it is `wmb`.
        """
        return float(self._solution.log_z[self._row]) + self.graph.log_scale

    @property
    def method(self) -> str | None:
        """`exact`, `conditioned` or `wmb`; `None` where there is no value."""
        return self._solution.method[self._row]

    @property
    def width(self) -> int:
        """Induced width of the elimination order that was used, or the least that one could have."""
        return int(self._solution.width[self._row])

    @property
    def gap(self) -> float:
        """Upper over lower bound on Z, less 1: 0 for exact rows, NaN where nothing is proved."""
        return float(self._solution.gap[self._row])

    @property
    def rows(self) -> int:
        """The number of sweeps spent on this graph."""
        return int(self._solution.rows[self._row])

    @property
    def cutset(self) -> int:
        """The number of variables that were conditioned on."""
        return int(self._solution.cutset[self._row])

    @property
    def pairs(self) -> Float[np.ndarray, "E 2 2"]:
        """The joint posterior of each factor's variables by [source state][target state], float64, in factor order.

        NaN where the row is not exact. Raises `ValueError` where `infer` was not asked for `pairs`.
        """
        solution, row = self._solution, self._row
        if solution.pairs is None:
            raise ValueError("joint posteriors were not computed; call infer(graphs, pairs=True)")
        return np.clip(solution.pairs[solution.factor_ptr[row] : solution.factor_ptr[row + 1]], 0.0, 1.0)

    def _bound(self, bound: np.ndarray | None, margin: float) -> list[Any]:
        solution, row = self._solution, self._row
        if solution.status[row] is not Status.OK:
            return [None] * len(self.graph)
        part = slice(solution.node_ptr[row], solution.node_ptr[row + 1])
        values = solution.p[part] if bound is None else bound[part]
        return np.clip(values + margin, 0.0, 1.0).tolist()

    def __repr__(self) -> str:
        if self.status.failed:
            return f"Posterior({self.status}: {self.reason})"
        labels = self.label.values()
        counts = ", ".join(f"{labels.count(label)} {label}" for label in Label if label in labels)
        return f"Posterior({self.method}, width {self.width}, log_z {self.log_z:.6g}: {counts})"

    def _repr_html_(self) -> str:
        if self.status.failed:
            return f"<p><b>{self.status}</b>: {html.escape(self.reason or '')}</p>"
        p, low, high, certain = self.p, self.lower, self.upper, self.certain
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{p[name]:.4f}</td><td>[{low[name]:.4f}, {high[name]:.4f}]</td>"
            f"<td>{Label.of(p[name])}{'' if certain[name] else ' (not certain)'}</td></tr>"
            for name in p
        )
        return (
            f"<table><caption>{self.method}, width {self.width}, log Z {self.log_z:.6g}</caption>"
            f"<tr><th>variable</th><th>P(true)</th><th>interval</th><th>label</th></tr>{rows}</table>"
        )


class Posteriors(Sequence[Posterior]):
    """One `Posterior` per graph, in the order of the input."""

    def __init__(self, graphs: Sequence[FactGraph], solutions: Sequence[Solution]):
        self._graphs = graphs
        self._solutions = solutions
        self._starts = np.cumsum([0, *(len(solution.status) for solution in solutions)])

    def __len__(self) -> int:
        return len(self._graphs)

    @overload
    def __getitem__(self, i: int) -> Posterior: ...
    @overload
    def __getitem__(self, i: slice) -> list[Posterior]: ...
    def __getitem__(self, i: int | slice) -> Posterior | list[Posterior]:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(f"row {i} of {len(self)}")
        i %= len(self)
        part = int(np.searchsorted(self._starts, i, side="right")) - 1
        return Posterior(self._graphs[i], self._solutions[part], i - int(self._starts[part]))

    def __iter__(self) -> Iterator[Posterior]:
        graphs = iter(self._graphs)
        for solution in self._solutions:
            for row in range(len(solution.status)):
                yield Posterior(next(graphs), solution, row)

    def __repr__(self) -> str:
        statuses = [status for solution in self._solutions for status in solution.status]
        counts = ", ".join(f"{statuses.count(status)} {status}" for status in Status if status in statuses)
        return f"Posteriors({counted(len(self), 'graph')}{f': {counts}' if counts else ''})"

    def _repr_html_(self) -> str:
        """One line per graph, the first `SHOWN` of many."""
        rows = ""
        for i, row in enumerate(islice(self, SHOWN)):
            labels = row.label.values()
            cells = [str(row.status), row.method or "", str(row.width), *(str(labels.count(label)) for label in Label)]
            cells.append(html.escape(row.reason or ""))
            rows += f"<tr><td>{i}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        more = len(self) - SHOWN
        rest = f"<tr><td colspan=8>and {more:,} more</td></tr>" if more > 0 else ""
        names = ["", "status", "method", "width", *Label, "reason"]
        head = "".join(f"<th>{name}</th>" for name in names)
        return f"<table><caption>{html.escape(repr(self))}</caption><tr>{head}</tr>{rows}{rest}</table>"
