"""The labels of an examination: which occur among the pairs, and their shares where a calibration is used (SPEC 9)."""

from __future__ import annotations

from collections.abc import Sequence

from fcjax.core.checks import is_number
from fcjax.core.errors import InputError, SettingsError, counted
from fcjax.core.records import DISTRIBUTED, Distribution
from fcjax.evaluation.relation_pairs import LabelledPairs


def checked_shares(shares: Sequence[float]) -> Distribution:
    """Shares of entailment, contradiction and neutral, which add up to 1. Raises `SettingsError`."""
    good = isinstance(shares, Sequence) and len(shares) == len(DISTRIBUTED)
    if not good or not all(is_number(share, 0, 1) for share in shares) or abs(sum(shares) - 1) > 1e-3:
        names = ", ".join(DISTRIBUTED)
        raise SettingsError(f"in_use is {shares!r:.80}; allowed: the shares of {names}: three numbers that add up to 1")
    entailment, contradiction, neutral = (float(share) / sum(shares) for share in shares)
    return entailment, contradiction, neutral


def check_in_use(pairs: LabelledPairs, in_use: Distribution) -> None:
    """Raise `InputError` where a label that is in use occurs in no pair: nothing is known of it."""
    for label, share in zip(DISTRIBUTED, in_use, strict=True):
        if share and label not in pairs.labels:
            raise InputError(
                f"in use, {share:.3g} of the labels are {label}, and no pair has that label; allowed: pairs of every "
                "label that is in use"
            )


def check_labels(pairs: LabelledPairs) -> None:
    """Raise `InputError` where no calibration can be fitted, as all pairs have one label."""
    if len(pairs.labels) < 2:
        (label,) = pairs.labels
        disputed = f" ({counted(len(pairs.disputed), 'pair')} with different labels left out)" if pairs.disputed else ""
        raise InputError(
            f"no calibration can be fitted: all pairs have the label {label}{disputed}; "
            "allowed: pairs of at least two labels, better of all three"
        )
