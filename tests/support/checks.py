"""From samples to graphs, and what every row of an answer must satisfy (SPEC 3, 4)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracle
import pytest
from samples import PRIOR, settings_of

from fcjax import FactGraph, Label, MarkovModel, Posterior, Status

P_TOLERANCE = 1e-5  # SPEC 3
LOG_Z_TOLERANCE = 1e-4  # relative to max(1, |log Z|)


def build(row: dict[str, Any]) -> FactGraph:
    """The graph of a golden or drawn row: nodes, edges and their settings."""
    return FactGraph.from_dict({"nodes": row["nodes"], "edges": row["edges"]}, **settings_of(row))


def expect(out: Posterior, answer: oracle.Answer, name: object = "", *, methods: tuple[str, ...] = ("exact",)) -> None:
    """A row that says what the oracle says, to the tolerance of exact ones; where Z = 0, an inconsistent one."""
    if answer.log_z == -math.inf:
        assert out.status == Status.INCONSISTENT, name
        assert out.log_z == -math.inf
        assert all(p is None for p in out.p.values())
        assert out.reason
        return
    assert out.status == Status.OK, (name, out.reason)
    assert out.method in methods, name
    assert out.p == pytest.approx(answer.p, abs=P_TOLERANCE, rel=0), name
    assert abs(out.log_z - answer.log_z) <= LOG_Z_TOLERANCE * max(1, abs(answer.log_z)), name
    got, lower, upper = out.p, out.lower, out.upper
    for v, p in answer.p.items():
        assert lower[v] <= p <= upper[v], (name, v)
        assert 0.0 <= lower[v] <= got[v] <= upper[v] <= 1.0, (name, v)


def preset(data: dict[str, Any], name: str = "paper") -> tuple[FactGraph, oracle.Network]:
    """The engine's graph and the oracle's network of a fact graph under a preset's numbers."""
    encoding, prior = PRIOR[name]
    return (
        FactGraph.from_dict(data, encoding=encoding, context_prior=prior),  # type: ignore[arg-type]
        oracle.network(data, encoding, prior),
    )


def bare(net: oracle.Network) -> FactGraph:
    """A bare model of the network's weights."""
    factors = [((v,), tuple(row)) for v, row in enumerate(np.exp(net.unary).tolist())]
    factors += [(scope, tuple(np.exp(table).ravel().tolist())) for scope, table in net.pairs]
    return FactGraph.from_model(MarkovModel(names=net.ids, factors=tuple(factors)))


def expect_proved(out: Posterior, answer: oracle.Answer, name: object = "") -> None:
    """A row that is exact, or conditioned with proved intervals that hold the truth, or too wide and without values."""
    if out.method == "exact" or answer.log_z == -math.inf:
        return expect(out, answer, name)
    p, lower, upper, certain = out.p, out.lower, out.upper, out.certain
    if out.status.failed:
        assert out.status == Status.TOO_WIDE, (name, out.reason)
        assert out.reason
        assert out.width > 0
        assert set(p.values()) <= {None}
        assert not any(certain.values())
        return None
    assert out.method == "conditioned", name
    for v, truth in answer.p.items():
        assert 0.0 <= lower[v] <= p[v] <= upper[v] <= 1.0, (name, v)
        assert lower[v] <= truth <= upper[v], (name, v)
        assert not certain[v] or Label.of(truth) == Label.of(p[v]), (name, v)
    slack = LOG_Z_TOLERANCE * max(1, abs(answer.log_z))
    assert out.log_z - slack <= answer.log_z <= out.log_z + math.log1p(out.gap) + slack, name
    return None
