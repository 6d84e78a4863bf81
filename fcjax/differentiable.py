"""log Z and posteriors as functions that JAX can differentiate (`jax.grad`, `jax.vjp`), solved by the engine.

The derivative of log Z with respect to a log weight is the posterior of that state; of a posterior, a covariance, which
comes from rows that observe the variable. Both are exact. The engine runs on the host in float64 behind a callback, so
the functions work under `jit`, `grad` and (one row after another) `vmap`; results have the dtype of the inputs. They
are differentiable once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fcjax.engine import infer
from fcjax.graph import FactGraph
from fcjax.limits import Limits
from fcjax.table import GraphTable


class LogWeights(NamedTuple):
    """The natural logarithms of all weights of a batch of graphs with `V` variables and `E` factors in all."""

    unary: Any  # Float["V 2"], of JAX or, on the host, of numpy: by state (false, true)
    tables: Any  # Float["E 2 2"]: by [source state][target state]


def log_weights(graphs: Sequence[FactGraph]) -> LogWeights:
    """The weights that `graphs` have, as a starting point; in JAX's default float dtype."""
    table = GraphTable.from_graphs(graphs)
    with np.errstate(divide="ignore"):
        return LogWeights(jnp.asarray(np.log(table.unary)), jnp.asarray(np.log(table.tables)))


class _Moments(NamedTuple):
    log_z: Any  # Float["G"], of numpy inside the callback and of JAX outside
    p: Any  # Float["V"]
    pairs: Any  # Float["E 2 2"]


def log_z(graphs: Sequence[FactGraph], limits: Limits | None = None) -> Callable[[LogWeights], Float[Array, " G"]]:
    """The function from the weights of a batch to the log Z of each graph; `graphs` give the structure.

    Rows that are not exact (too wide, inconsistent) are NaN or -inf, and so are their derivatives.
    """
    shape = GraphTable.from_graphs(graphs)
    owner = np.repeat(np.arange(len(graphs)), np.diff(shape.node_ptr))
    factor_owner = np.repeat(np.arange(len(graphs)), np.diff(shape.factor_ptr))

    @jax.custom_vjp
    def function(weights: LogWeights) -> Float[Array, " G"]:
        return forward(weights)[0]

    def forward(weights: LogWeights) -> tuple[Array, _Moments]:
        moments = _called(lambda w: _moments(graphs, shape, w, limits), shape, weights)
        return moments.log_z, moments

    def backward(moments: _Moments, cotangent: Array) -> tuple[LogWeights]:
        unary = cotangent[owner][:, None] * jnp.stack([1 - moments.p, moments.p], axis=1)
        return (LogWeights(unary, cotangent[factor_owner][:, None, None] * moments.pairs),)

    function.defvjp(forward, backward)
    return function


def posteriors(graphs: Sequence[FactGraph], limits: Limits | None = None) -> Callable[[LogWeights], Float[Array, " V"]]:
    """The function from the weights of a batch to P(true) of all variables, end to end.

    Its derivative takes one more row for every variable whose cotangent is not 0.
    """
    shape = GraphTable.from_graphs(graphs)

    @jax.custom_vjp
    def function(weights: LogWeights) -> Float[Array, " V"]:
        return forward(weights)[0]

    def forward(weights: LogWeights) -> tuple[Array, LogWeights]:
        return _called(lambda w: _moments(graphs, shape, w, limits), shape, weights).p, weights

    def backward(weights: LogWeights, cotangent: Array) -> tuple[LogWeights]:
        def pulled(weights: LogWeights, cotangent: np.ndarray) -> LogWeights:
            return _pull_back(graphs, shape, weights, np.asarray(cotangent, np.float64), limits)

        kind = jax.tree.map(lambda x: _kind(x.shape, x.dtype), weights)
        return (jax.pure_callback(pulled, kind, weights, cotangent, vmap_method="sequential"),)

    function.defvjp(forward, backward)
    return function


def _kind(shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def _called(solve: Callable[[LogWeights], _Moments], shape: GraphTable, weights: LogWeights) -> _Moments:
    dtype = weights.unary.dtype
    kind = _Moments(
        _kind((len(shape),), dtype),
        _kind((len(shape.unary),), dtype),
        _kind((len(shape.ends), 2, 2), dtype),
    )

    def call(weights: LogWeights) -> _Moments:
        return _Moments(*(np.asarray(x, dtype) for x in solve(weights)))

    return jax.pure_callback(call, kind, weights, vmap_method="sequential")


def _weighted(graphs: Sequence[FactGraph], shape: GraphTable, weights: LogWeights) -> list[FactGraph]:
    """The graphs with other weights, each graph's scaled to a largest entry of 1 (a scale moves only log Z)."""
    unary, tables = (np.asarray(x, np.float64) for x in weights)
    unary = np.exp(unary - unary.max(axis=1, keepdims=True))
    tables = np.exp(tables - tables.max(axis=(1, 2), keepdims=True))
    return [
        replace(
            graph,
            unary=np.ascontiguousarray(unary[shape.node_ptr[g] : shape.node_ptr[g + 1]]),
            tables=np.ascontiguousarray(tables[shape.factor_ptr[g] : shape.factor_ptr[g + 1]]),
            evidence={},  # it is in the weights
        )
        for g, graph in enumerate(graphs)
    ]


def _moments(graphs: Sequence[FactGraph], shape: GraphTable, weights: LogWeights, limits: Limits | None) -> _Moments:
    answers = infer(_weighted(graphs, shape, weights), limits=limits, pairs=True)
    exact = [answer.method == "exact" for answer in answers]
    unary, tables = (np.asarray(x, np.float64) for x in weights)
    z = np.array([answer.log_z if ok else np.nan for answer, ok in zip(answers, exact, strict=True)])
    for g in range(len(graphs)):
        z[g] += unary[shape.node_ptr[g] : shape.node_ptr[g + 1]].max(axis=1).sum()
        z[g] += tables[shape.factor_ptr[g] : shape.factor_ptr[g + 1]].max(axis=(1, 2)).sum()
    p = [v if ok else np.nan for answer, ok in zip(answers, exact, strict=True) for v in answer.p.values()]
    return _Moments(z, np.array(p, np.float64), np.concatenate([np.empty((0, 2, 2)), *(a.pairs for a in answers)]))


def _pull_back(
    graphs: Sequence[FactGraph], shape: GraphTable, weights: LogWeights, cotangent: np.ndarray, limits: Limits | None
) -> LogWeights:
    """sum_v cotangent_v dP(v) / d(log weights) = sum_v cotangent_v P(v) (E[. | v] - E[.])."""
    weighted = _weighted(graphs, shape, weights)
    rows: list[tuple[int, int]] = []  # graph, variable; -1: without evidence
    for g in range(len(graphs)):
        mine = np.flatnonzero(cotangent[shape.node_ptr[g] : shape.node_ptr[g + 1]])
        rows += [(g, v) for v in (-1, *mine.tolist())]
    evidence = [{graphs[g].ids[v]: True} if v >= 0 else {} for g, v in rows]
    answers = infer([weighted[g] for g, _ in rows], evidence=evidence, limits=limits, pairs=True)
    dtype = np.asarray(weights.unary).dtype
    unary, tables = np.zeros(shape.unary.shape), np.zeros(shape.tables.shape)
    for (g, v), answer in zip(rows, answers, strict=True):
        if v < 0:
            base = answer
            base_p = np.array([np.nan if p is None else p for p in base.p.values()], np.float64)
            continue
        if base_p[v] == 0.0:
            continue  # P(v) stays 0 however its neighbours' finite log weights move
        nodes = slice(shape.node_ptr[g], shape.node_ptr[g + 1])
        factors = slice(shape.factor_ptr[g], shape.factor_ptr[g + 1])
        weight = cotangent[shape.node_ptr[g] + v] * base_p[v]
        p = np.array([np.nan if p is None else p for p in answer.p.values()], np.float64)
        unary[nodes, 1] += weight * (p - base_p)
        unary[nodes, 0] -= weight * (p - base_p)
        tables[factors] += weight * (answer.pairs - base.pairs)
    return LogWeights(unary.astype(dtype), tables.astype(dtype))
