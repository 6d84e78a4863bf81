"""The measures of SPEC 5 on plain numbers: posteriors, labels and counts in, numbers out.

A measure without a value is None, never NaN; a response without atoms has no measures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from fcjax.core.records import Label

HIGHEST: Final = {"e": math.log10(math.e) / math.e, "entropy": 1.0 / math.e, "norm_entropy": 1.0}
"""The largest share that one atom can have in each of the sums of `AtomCounts`; the smallest is 0."""


def precision(n_supported: int, n: int) -> float | None:
    """Factual precision, Pr = S / n."""
    return n_supported / n if n else None


def recall_at_k(n_supported: int, k: float) -> float:
    """R@K = min(S / K, 1). Raises `ValueError` for K below 1."""
    if not k >= 1:
        raise ValueError(f"k is {k!r}; allowed: a number of at least 1")
    return min(n_supported / k, 1.0)


def f1_at_k(n_supported: int, n: int, k: float) -> float | None:
    """F1@K = 2 Pr R / (Pr + R); 0 if nothing is supported."""
    pr, r = precision(n_supported, n), recall_at_k(n_supported, k)
    if pr is None:
        return None
    return 2.0 * pr * r / (pr + r) if n_supported else 0.0


def comprehensiveness(n_inside: int, n_outside: int) -> float | None:
    """C = A_in / (A_in + A_out); None if there is nothing to cover."""
    total = n_inside + n_outside
    return n_inside / total if total else None


def relative_gain(corrected: float, response: float) -> float:
    """G(S) = 2 (S_c - S_r) / (S_c + S_r) of a score before and after a correction; 0 if both are 0."""
    total = corrected + response
    return 2.0 * (corrected - response) / total if total else 0.0


K = float | Literal["release"]
"""A data set's K, or `release`, which follows the number of atoms of each response."""


def k_of(k: K, n: int) -> float:
    """The K for a response of `n` atoms; that of `release` is max(n // 2, 1)."""
    return max(n // 2, 1) if k == "release" else k


def median_k(counts: Iterable[int]) -> float:
    """K of a data set: the median of its numbers of atoms, at least 1 (SPEC 5); it may end in a half."""
    ordered = sorted(counts)
    if not ordered:
        return 1
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return max(low if low == high else (low + high) / 2, 1)


@dataclass(frozen=True, slots=True)
class AtomCounts:
    """The counts of a response's atoms, and sums over them, from which the measures follow."""

    n: int = 0
    supported: int = 0
    refuted: int = 0
    verifiable: int = 0  # atoms with a supporting or contradicting relation
    e: float = 0.0  # of -P log10 P
    entropy: float = 0.0  # of -P ln P
    norm_entropy: float = 0.0  # of the binary entropy of P, in bits

    @classmethod
    def of(cls, atoms: Iterable[tuple[float, Label, bool]]) -> AtomCounts:
        """The counts of atoms with a posterior: (P, label, whether a relation touches the atom)."""
        n = supported = refuted = verifiable = 0
        entropy = bits = 0.0
        for p, label, related in atoms:
            n += 1
            supported += label is Label.SUPPORTED
            refuted += label is Label.REFUTED
            verifiable += related
            true, false = _minus_p_ln_p(p), _minus_p_ln_p(1.0 - p)
            entropy += true
            bits += (true + false) / math.log(2.0)
        return cls(n, supported, refuted, verifiable, entropy / math.log(10.0), entropy, bits)

    @classmethod
    def of_measures(cls, measures: Mapping[str, Any]) -> AtomCounts:
        """The counts from which `case_measures` made these measures, to the digits that they were rounded to."""
        n = measures["n_atoms"]
        return cls(
            n,
            measures["n_supported"],
            measures["n_refuted"],
            measures["verifiability"],
            measures["e_measure"] * n,
            measures["entropy"],
            measures["norm_entropy"],
        )

    def worst(self, n_failed: int) -> AtomCounts:
        """The worst counts that are possible with `n_failed` more atoms of unknown posterior."""
        return AtomCounts(
            self.n + n_failed,
            self.supported,
            self.refuted + n_failed,
            self.verifiable,
            self.e + HIGHEST["e"] * n_failed,
            self.entropy + HIGHEST["entropy"] * n_failed,
            self.norm_entropy + HIGHEST["norm_entropy"] * n_failed,
        )

    def best(self, n_failed: int) -> AtomCounts:
        """The best counts that are possible with `n_failed` more atoms of unknown posterior."""
        return AtomCounts(
            self.n + n_failed,
            self.supported + n_failed,
            self.refuted,
            self.verifiable + n_failed,
            self.e,
            self.entropy,
            self.norm_entropy,
        )


def case_measures(counts: AtomCounts, k: K) -> dict[str, float] | None:
    """The measures of one response by name (SPEC 5, 7); None without atoms."""
    k = k_of(k, counts.n)
    pr, f1 = precision(counts.supported, counts.n), f1_at_k(counts.supported, counts.n, k)
    if pr is None or f1 is None:
        return None
    n = counts.n
    return {
        "precision": pr,
        "recall_at_k": recall_at_k(counts.supported, k),
        "f1_at_k": f1,
        "k": k,
        "e_measure": counts.e / n,
        "entropy": counts.entropy,
        "avg_entropy": counts.entropy / n,
        "norm_entropy": counts.norm_entropy,
        "avg_norm_entropy": counts.norm_entropy / n,
        "verifiability": counts.verifiable,
        "verifiability_share": counts.verifiable / n,
        "n_atoms": n,
        "n_supported": counts.supported,
        "n_refuted": counts.refuted,
        "n_unverified": n - counts.supported - counts.refuted,
    }


def _minus_p_ln_p(p: float) -> float:
    return -p * math.log(p) if p > 0.0 else 0.0
