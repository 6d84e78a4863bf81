"""Fact graphs: cases, FactReasoner's graphs and bare models as pairwise Boolean Markov networks (SPEC 2).

A `FactGraph` is a pairwise Boolean Markov network kept as three small arrays, so that thousands of them are put
together by concatenation. Its factors are plain 2 x 2 tables: nothing below this module knows of relations.
"""

from __future__ import annotations

import functools
import html
import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np
from jaxtyping import Float, Int

from fcjax.core.checks import (
    case_faults,
    check_choice,
    check_number,
    id_faults,
    is_number,
    parse_distribution,
    relation_faults,
)
from fcjax.core.errors import Fault, InputError, counted
from fcjax.core.records import DISTRIBUTED, Case, Context, Distribution, MarkovModel, Relation, RelationType, by_label
from fcjax.graph.factors import ATOM_PRIOR, OWN, PRESETS, Encoding, factor_slope, factor_table
from fcjax.graph.selection import Kind, Version, merge, merge_parallel, own_contexts, p_of, says_nothing, select

SHOWN = 50  # factors in a notebook's table
MOST = sys.float_info.max
LOG_RANGE = 690.0  # of weights, either way, that products are kept in; float64 has some more


@dataclass(frozen=True, eq=False, repr=False, slots=True, kw_only=True)
class FactGraph:
    """One pairwise Boolean Markov network of `V` variables and `E` factors; build it with a `from_*` method."""

    ids: tuple[str, ...]
    kinds: tuple[Kind, ...]
    index: Mapping[str, int]  # where each id stands in `ids`
    unary: Float[np.ndarray, "V 2"]  # weights of (false, true), float64, >= 0
    ends: Int[np.ndarray, "E 2"]  # source and target of each factor, int32
    tables: Float[np.ndarray, "E 2 2"]  # weights by [source state][target state], float64, >= 0
    encoding: Encoding | None = None  # how relations became tables; None for bare models
    relations: tuple[Relation, ...] = ()  # what the factors came from, in the order of `tables`; empty for bare models
    aliases: Mapping[str, str] = field(default_factory=dict)  # merged duplicate -> the variable that was kept
    evidence: Mapping[str, bool] = field(default_factory=dict)  # observed variables
    log_scale: float = 0.0  # natural logarithm of a factor on all weights together

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        atoms, contexts = self.kinds.count("atom"), self.kinds.count("context")
        parts = [counted(atoms, "atom"), counted(contexts, "context")]
        if atoms + contexts < len(self):
            parts = [counted(len(self), "variable")]
        parts.append(counted(len(self.ends), "factor"))
        parts += [f"{counted(len(self.aliases), 'duplicate')} merged"] if self.aliases else []
        parts += [f"{len(self.evidence)} observed"] if self.evidence else []
        return f"FactGraph({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """The relations, or the factors of a bare model, each on a line; the first `SHOWN` of many."""
        names = [(html.escape(self.ids[s]), html.escape(self.ids[t])) for s, t in self.ends[:SHOWN].tolist()]
        if self.relations:
            said = [f"<td>{r.type}</td><td>{p_of(r):g}</td>" for r in self.relations[:SHOWN]]
        else:
            tables = self.tables[:SHOWN].reshape(-1, 4).tolist()
            said = [f"<td>{' '.join(f'{weight:g}' for weight in table)}</td><td></td>" for table in tables]
        rows = "".join(f"<tr><td>{s}</td>{what}<td>{t}</td></tr>" for (s, t), what in zip(names, said, strict=True))
        more = len(self.ends) - len(names)
        rest = f"<tr><td colspan=4>and {more:,} more</td></tr>" if more else ""
        head = "<tr><th>source</th><th>says</th><th>p</th><th>target</th></tr>"
        return f"<table><caption>{html.escape(repr(self))}</caption>{head}{rows}{rest}</table>"

    @classmethod
    def from_dict(
        cls,
        data: Mapping[str, Any],
        encoding: Encoding = "implication",
        context_prior: float = 0.99,
        atom_prior: float = ATOM_PRIOR,
    ) -> FactGraph:
        """A graph of `{"nodes": [...], "edges": [...]}` (SPEC 7, 8); `from`/`to`/`relation` are accepted too.

        A node's `probability` is its prior; without one it has the default of its kind. An edge may have a
        `distribution`, the probabilities of all three answers by name; in the encoding `soft` it decides, whatever the
        edge's type and probability (SPEC 2), which a case would have to agree with it. Neutral edges make factors in
        that encoding only. Raises `InputError` with every fault that was found.
        """
        priors = _priors(encoding, context_prior, atom_prior)
        faults: list[Fault] = []
        ids: list[str] = []
        kinds: list[Kind] = []
        weights: list[float] = []
        for i, node in enumerate(_listed(data, "nodes", faults)):
            kind = str(node.get("type", "")).lower()
            if kind not in ("atom", "context"):
                faults.append(
                    Fault(f"type is {node.get('type')!r}; allowed: 'atom', 'context'", field=f"nodes[{i}].type")
                )
                kind = "atom"
            ids.append(node.get("id"))  # type: ignore[arg-type]  # looked at next
            faults += id_faults(ids[-1], f"nodes[{i}].id")
            kinds.append("atom" if kind == "atom" else "context")
            given = node.get("probability")
            weights.append(priors[kind] if given is None else _probability(given, f"nodes[{i}].probability", faults))
        count = Counter(name for name in ids if isinstance(name, str))
        relations = []
        for i, edge in enumerate(_listed(data, "edges", faults)):
            place = f"edges[{i}]"
            name = edge.get("type", edge.get("relation"))
            try:
                type = RelationType(str(name).lower())
            except ValueError:
                allowed = ", ".join(repr(str(t)) for t in RelationType)
                faults.append(Fault(f"type is {name!r}; allowed: {allowed}", field=f"{place}.type"))
                continue
            source, target = edge.get("source", edge.get("from")), edge.get("target", edge.get("to"))
            p = _probability(edge.get("probability"), f"{place}.probability", faults)
            q = _distribution(edge.get("distribution"), f"{place}.distribution", faults)
            relations.append(Relation(source=source, target=target, type=type, probability=p, distribution=q))
            faults += relation_faults(relations[-1], count.keys(), place)
        if twice := sorted(name for name in count if count[name] > 1):
            faults.append(Fault(f"ids {twice} occur more than once; allowed: one node per id", field="nodes"))
        if faults:
            raise InputError(*faults)
        return _build(ids, kinds, weights, relations, encoding, priors)

    @classmethod
    def from_case(
        cls,
        case: Case,
        *,
        preset: str = "paper",
        encoding: Encoding | None = None,
        context_prior: float | None = None,
        atom_prior: float = ATOM_PRIOR,
        version: Version | None = None,
    ) -> FactGraph:
        """The graph of a case: duplicates merged, relations chosen by `version`, priors by `preset` (SPEC 2).

        `encoding` and `context_prior` override the preset's. Failed relations make no factor, neutral ones in the
        encoding `soft` only. Raises `InputError` with every fault of the case, such as a relation that names an unknown
        id or an id that occurs twice, and `SettingsError` for an unknown preset, encoding or version.
        """
        check_choice("preset", preset, PRESETS)
        check_choice("version", version, get_args(Version), none=True)
        encoding = PRESETS[preset].encoding if encoding is None else encoding
        context_prior = PRESETS[preset].context_prior if context_prior is None else context_prior
        priors = _priors(encoding, context_prior, atom_prior)

        if faults := case_faults(case):
            raise InputError(*(replace(fault, case=case.id if isinstance(case, Case) else None) for fault in faults))
        aliases: dict[str, str] = {}
        atoms = merge(((atom.id, atom.text.strip()) for atom in case.atoms or ()), aliases)
        contexts = merge(((context.id, context.evidence) for context in case.contexts or ()), aliases)
        believed = {context.id: _believed(context, context_prior) for context in case.contexts or ()}
        kinds: dict[str, Kind] = {**dict.fromkeys(atoms, "atom"), **dict.fromkeys(contexts, "context")}
        soft = encoding == "soft"
        answers = merge_parallel(case.relations or (), aliases, neutral=soft)
        own = own_contexts(case, aliases) if version == "FR1" else {}
        relations = select(answers, kinds, version, own, neutral=soft)
        weights = [priors["atom"]] * len(atoms)
        weights += [believed[name] for name in contexts]
        return replace(_build(list(kinds), list(kinds.values()), weights, relations, encoding, priors), aliases=aliases)

    @classmethod
    def from_model(cls, model: MarkovModel) -> FactGraph:
        """The graph of a bare Markov network, such as a UAI file holds; its variables are neither atom nor context.

        Several unary tables of a variable multiply, however small or large they are: what float64 has no room for goes
        to `log_scale`. Raises `InputError` for a faulty `MarkovModel`: a factor whose scope or values are not those
        of one, a name that is empty or occurs twice, evidence on what is not there, and for a variable whose two
        weights are further apart than float64 can tell.
        """
        names = tuple(model.names)
        faults: list[Fault] = []
        for v, name in enumerate(names):
            faults += id_faults(name, f"names[{v}]")
        if not faults and len(set(names)) < len(names):
            twice = sorted(name for name, count in Counter(names).items() if count > 1)
            faults.append(Fault(f"names {twice} occur more than once; allowed: one variable per name", field="names"))
        for f, (scope, values) in enumerate(model.factors):
            known = all(_is_index(v, len(names)) for v in scope) and len(set(scope)) == len(scope) in (1, 2)
            if not (known and len(values) == 2 ** len(scope) and all(is_number(x, 0.0, MOST) for x in values)):
                seen = f"scope {scope!r:.40}, values {values!r:.60}"
                allowed = f"one or two different variables below {len(names)}, and 2 or 4 finite values >= 0"
                faults.append(Fault(f"{seen}; allowed: {allowed}", field=f"factors[{f}]"))
        for v, state in model.evidence.items():
            if not _is_index(v, len(names)) or state not in (0, 1):
                seen = f"variable {v!r:.40} is observed as {state!r:.40}"
                faults.append(
                    Fault(f"{seen}; allowed: a variable below {len(names)}, observed as 0 or 1", field="evidence")
                )
        if faults:
            raise InputError(*faults)
        pairs = [(scope, values) for scope, values in model.factors if len(scope) == 2]
        alone = [(scope[0], values) for scope, values in model.factors if len(scope) == 1]
        unary, log_scale = _multiplied(alone, names)
        return cls(
            ids=names,
            kinds=tuple("variable" for _ in names),
            index={name: v for v, name in enumerate(names)},
            unary=unary,
            ends=np.array([scope for scope, _ in pairs], np.int32).reshape(-1, 2),
            tables=np.array([values for _, values in pairs], np.float64).reshape(-1, 2, 2),
            evidence={names[v]: bool(state) for v, state in model.evidence.items()},
            log_scale=log_scale,
        )

    def slopes(self) -> Float[np.ndarray, "E 2 2"]:
        """The derivative of every table with respect to its relation's probability; tables are linear in it (SPEC 2).

        In the encoding `soft` the two other answers keep their proportion. Raises `InputError` for bare models: their
        factors have no probability.
        """
        encoding = self.encoding
        if encoding is None:
            raise InputError("a bare Markov model has factors but no relations; allowed: a graph of relations")
        slope = functools.cache(factor_slope)
        slopes = [slope(_type(r), encoding, r.distribution if encoding == "soft" else None) for r in self.relations]
        return np.array(slopes, np.float64).reshape(-1, 2, 2)

    def probabilities(self) -> Float[np.ndarray, " E"]:
        """The probability of every relation that its table is made with, and that `slopes` are with respect to.

        In the encoding `soft`, where a relation has a distribution, that of its type in it.
        """
        soft = self.encoding == "soft"
        given = [
            r.distribution[OWN[_type(r)]] if soft and r.distribution is not None else p_of(r) for r in self.relations
        ]
        return np.array(given, np.float64)

    def to_model(self) -> MarkovModel:
        """The same network as a bare Markov model: one unary factor per variable, one binary factor per relation.

        A `log_scale` is spread over as many more unary factors as it takes.
        """
        factors = [((v,), tuple(row)) for v, row in enumerate(self.unary.tolist())]
        if self.log_scale:
            pieces = math.ceil(abs(self.log_scale) / LOG_RANGE)
            factors += [((0,), (math.exp(self.log_scale / pieces),) * 2)] * pieces
        factors += [
            (tuple(ends), tuple(table))
            for ends, table in zip(self.ends.tolist(), self.tables.reshape(-1, 4).tolist(), strict=True)
        ]
        observed = {self.index[name]: int(state) for name, state in self.evidence.items()}
        return MarkovModel(names=self.ids, factors=tuple(factors), evidence=observed)

    def to_dict(self) -> dict[str, list[dict[str, Any]]]:
        """The graph as `{"nodes", "edges"}` (SPEC 7). Raises `InputError` for bare models: they have no types."""
        if len(self.relations) < len(self.ends):
            raise InputError("a bare Markov model has factors but no relation types; allowed: a graph of relations")
        priors = self.unary[:, 1].tolist()
        return {
            "nodes": [
                {"id": name, "type": kind, "probability": prior}
                for name, kind, prior in zip(self.ids, self.kinds, priors, strict=True)
            ],
            "edges": [
                {"source": r.source, "target": r.target, "type": str(r.type), "probability": r.probability}
                | ({} if r.distribution is None else {"distribution": by_label(r.distribution)})
                for r in self.relations
            ],
        }


def _is_index(value: Any, count: int) -> bool:
    return is_number(value, 0, count - 1, whole=True)


def _multiplied(
    factors: list[tuple[int, tuple[float, ...]]], names: tuple[str, ...]
) -> tuple[Float[np.ndarray, "V 2"], float]:
    """The product of each variable's unary tables, and the natural logarithm of what was taken off all of them."""
    tables = np.array([values for _, values in factors], np.float64).reshape(-1, 2)
    scope = np.array([v for v, _ in factors], np.int64)
    alone = np.bincount(scope, minlength=len(names))[scope] == 1
    logs = np.zeros((len(names), 2))
    with np.errstate(divide="ignore"):
        np.add.at(logs, scope[~alone], np.log(tables[~alone]))
    top = logs.max(axis=1)
    low = np.where(logs == -np.inf, top[:, None], logs).min(axis=1)
    with np.errstate(invalid="ignore"):
        far = np.flatnonzero(top - low > LOG_RANGE)
    if len(far):
        seen = f"the unary tables multiply to weights that are a factor of e^{top[far[0]] - low[far[0]]:.0f} apart"
        raise InputError(Fault(f"{seen}; allowed: e^{LOG_RANGE:.0f}", field=f"variable {names[far[0]]!r}"))
    taken = np.where((top > LOG_RANGE) | ((low < -LOG_RANGE) & (top > -np.inf)), top, 0.0)
    unary = np.exp(logs - taken[:, None])
    unary[scope[alone]] = tables[alone]  # to the bit
    return unary, float(taken.sum())


def _believed(context: Context, default: float) -> float:
    """A context's prior: its own or the default, scaled by the confidence of the summary that stands in its place."""
    prior = default if context.prior is None else float(context.prior)
    return prior if context.summary_confidence is None else prior * context.summary_confidence


def _priors(encoding: str, context_prior: float, atom_prior: float) -> dict[str, float]:
    """The default priors by kind, after a look at the settings."""
    check_choice("encoding", encoding, get_args(Encoding))
    check_number("context_prior", context_prior, 0, 1)
    check_number("atom_prior", atom_prior, 0, 1)
    return {"atom": float(atom_prior), "context": float(context_prior)}


def _listed(data: Mapping[str, Any], key: str, faults: list[Fault]) -> list[Mapping[str, Any]]:
    rows = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        seen = "missing" if rows is None else f"not a list of objects, but {rows!r:.60}"
        faults.append(Fault(f"{key} is {seen}; allowed: a list of objects", field=key))
        return []
    return rows


def _probability(value: Any, place: str, faults: list[Fault]) -> float:
    if is_number(value, 0, 1):
        return float(value)
    faults.append(Fault(f"probability is {value!r}; allowed: a number from 0 to 1", field=place))
    return 0.5


def _distribution(value: Any, place: str, faults: list[Fault]) -> Distribution | None:
    parsed = None if value is None else parse_distribution(value)
    if value is not None and parsed is None:
        allowed = f"an object with the probabilities of {', '.join(DISTRIBUTED)}, which add up to 1, or None"
        faults.append(Fault(f"distribution is {value!r:.60}; allowed: {allowed}", field=place))
    return parsed


def _type(relation: Relation) -> RelationType:
    assert relation.type is not None  # only failed relations lack one, and they make no factor
    return relation.type


def _build(
    ids: list[str],
    kinds: list[Kind],
    weights: list[float],
    relations: list[Relation],
    encoding: Encoding,
    priors: Mapping[str, float],
) -> FactGraph:
    """The arrays of a graph whose parts were checked; `weights` are the priors P(true)."""
    index = {name: v for v, name in enumerate(ids)}
    ends, tables, kept = [], [], []
    for relation in relations:
        if relation.type is None or (says_nothing(relation) and encoding != "soft"):
            continue
        source, target = index[relation.source], index[relation.target]
        b = priors["context" if kinds[source] == kinds[target] == "context" else "atom"]
        ends.append((source, target))
        tables.append(factor_table(relation.type, p_of(relation), encoding, b, relation.distribution))
        kept.append(relation)
    true = np.array(weights, np.float64)
    return FactGraph(
        ids=tuple(ids),
        kinds=tuple(kinds),
        index=index,
        unary=np.stack([1.0 - true, true], axis=1),
        ends=np.array(ends, np.int32).reshape(-1, 2),
        tables=np.array(tables, np.float64).reshape(-1, 2, 2),
        encoding=encoding,
        relations=tuple(kept),
    )
