"""log Z and posteriors as functions that JAX can differentiate (`jax.grad`, `jax.vjp`), solved by the engine.

The derivative of log Z with respect to a log weight is the posterior of that state; of a posterior, a covariance, which
comes from rows that observe the variable. Both are exact. The engine runs on the host behind a callback, so that the
functions work under `jit`, `grad` and (one call after another) `vmap`. They are differentiable once.

The engine solves in float64. Arguments and results have the dtype of the weights, which is float32 unless JAX is
configured otherwise (`jax.config.update("jax_enable_x64", True)`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fcjax.core.limits import Limits
from fcjax.graph.batch import GraphBatch
from fcjax.graph.fact_graph import FactGraph
from fcjax.inference.engine import Evidence, infer
from fcjax.inference.posterior import Posterior, Posteriors


class LogWeights(NamedTuple):
    """The natural logarithms of all weights of a batch of graphs with `V` variables and `E` factors in all."""

    unary: Any  # Float["V 2"], of JAX or, on the host, of numpy: by state (false, true)
    tables: Any  # Float["E 2 2"]: by [source state][target state]


def log_weights(graphs: Sequence[FactGraph]) -> LogWeights:
    """The weights that `graphs` have, as a starting point; in JAX's default float dtype."""
    table = GraphBatch.from_graphs(graphs)
    with np.errstate(divide="ignore"):
        return LogWeights(jnp.asarray(np.log(table.unary)), jnp.asarray(np.log(table.tables)))


class _Moments(NamedTuple):
    log_z: Any  # Float["G"], of numpy inside the callback and of JAX outside
    p: Any  # Float["V"]
    pairs: Any  # Float["E 2 2"]


def log_z(graphs: Sequence[FactGraph], limits: Limits | None = None) -> Callable[[LogWeights], Float[Array, " G"]]:
    """The function from the weights of a batch to the log Z of each graph; `graphs` give the structure.

    It is -inf for an inconsistent graph, NaN for one too wide for elimination; the derivatives of both are NaN.
    """
    shape = GraphBatch.from_graphs(graphs)
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

    All of a graph that is inconsistent or too wide for elimination are NaN. The derivative takes one more row for every
    variable whose cotangent is not 0.
    """
    shape = GraphBatch.from_graphs(graphs)

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


def _called(solve: Callable[[LogWeights], _Moments], shape: GraphBatch, weights: LogWeights) -> _Moments:
    dtype = weights.unary.dtype
    kind = _Moments(
        _kind((len(shape),), dtype),
        _kind((len(shape.unary),), dtype),
        _kind((len(shape.ends), 2, 2), dtype),
    )

    def call(weights: LogWeights) -> _Moments:
        return _Moments(*(np.asarray(x, dtype) for x in solve(weights)))

    return jax.pure_callback(call, kind, weights, vmap_method="sequential")


def _weighted(
    graphs: Sequence[FactGraph], shape: GraphBatch, weights: LogWeights
) -> tuple[list[FactGraph], Float[np.ndarray, " G"]]:
    """The graphs with other weights, every table scaled to a largest entry of 1; the log of what that takes off Z."""
    unary, tables = (np.asarray(x, np.float64) for x in weights)
    tops, table_tops = unary.max(axis=1), tables.max(axis=(1, 2))
    tops[tops == -np.inf] = 0.0  # weights that are all 0 have no scale
    table_tops[table_tops == -np.inf] = 0.0
    unary, tables = np.exp(unary - tops[:, None]), np.exp(tables - table_tops[:, None, None])
    weighted, scale = [], np.empty(len(graphs))
    for g, graph in enumerate(graphs):
        nodes, factors = _parts(shape, g)
        scale[g] = tops[nodes].sum() + table_tops[factors].sum()
        # evidence is in the weights already
        weighted.append(replace(graph, unary=unary[nodes], tables=tables[factors], evidence={}))
    return weighted, scale


def _parts(shape: GraphBatch, g: int) -> tuple[slice, slice]:
    """Graph g's variables and factors."""
    return slice(shape.node_ptr[g], shape.node_ptr[g + 1]), slice(shape.factor_ptr[g], shape.factor_ptr[g + 1])


def _solved(graphs: Sequence[FactGraph], evidence: Sequence[Evidence] | None, limits: Limits | None) -> Posteriors:
    # the backend `xla` would call JAX from inside of a callback of JAX, which may wait for itself
    return infer(graphs, evidence=evidence, limits=limits, pairs=True, backend="cpu")


def _p(answer: Posterior) -> Float[np.ndarray, " V"]:
    return np.array([np.nan if p is None else p for p in answer.p.values()], np.float64)


def _moments(graphs: Sequence[FactGraph], shape: GraphBatch, weights: LogWeights, limits: Limits | None) -> _Moments:
    weighted, scale = _weighted(graphs, shape, weights)
    answers = _solved(weighted, None, limits)
    return _Moments(
        scale + [answer.log_z for answer in answers],
        np.concatenate([np.empty(0), *map(_p, answers)]),
        np.concatenate([np.empty((0, 2, 2)), *(answer.pairs for answer in answers)]),
    )


def _pull_back(
    graphs: Sequence[FactGraph], shape: GraphBatch, weights: LogWeights, cotangent: np.ndarray, limits: Limits | None
) -> LogWeights:
    """sum_v cotangent_v dP(v) / d(log weights) = sum_v cotangent_v P(v) (E[. | v] - E[.])."""
    weighted, _ = _weighted(graphs, shape, weights)
    rows: list[tuple[int, int]] = []  # graph, variable; -1: without evidence
    for g in range(len(graphs)):
        mine = np.flatnonzero(cotangent[_parts(shape, g)[0]])
        rows += [(g, v) for v in (-1, *mine.tolist())]
    evidence = [{graphs[g].ids[v]: True} if v >= 0 else {} for g, v in rows]
    answers = _solved([weighted[g] for g, _ in rows], evidence, limits)
    unary, tables = np.zeros(shape.unary.shape), np.zeros(shape.tables.shape)
    for (g, v), answer in zip(rows, answers, strict=True):
        if v < 0:
            base, base_p = answer, _p(answer)
            continue
        if base_p[v] == 0.0:
            continue  # P(v) stays 0 however its neighbours' finite log weights move
        nodes, factors = _parts(shape, g)
        weight = cotangent[nodes][v] * base_p[v]
        moved = weight * (_p(answer) - base_p)
        unary[nodes] += np.stack([-moved, moved], axis=1)
        tables[factors] += weight * (answer.pairs - base.pairs)
    dtype = np.asarray(weights.unary).dtype
    return LogWeights(unary.astype(dtype), tables.astype(dtype))
