"""A relation model's calibration: vector scaling of its distributions, as a file keeps it (SPEC 9).

It belongs to one model, style and wording; another's answers are refused, by name. Where the labelled pairs were
balanced and use is not, the shares of the labels in use are part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import orjson
from jaxtyping import Float

from fcjax.core.checks import SUM_TOLERANCE, check_number, is_distribution, is_number
from fcjax.core.errors import Fault, InputError, SettingsError
from fcjax.core.records import DISTRIBUTED, Distribution, RelationType, by_label

LEAST: Final = 1e-6
"""What a probability of 0 counts as before its logarithm is taken, as in `labels.NEVER_CERTAIN`."""
_LARGEST: Final = 1e3  # of a temperature or bias: beyond, nothing but rounding is left of a distribution
_BOUNDS: Final = -_LARGEST, _LARGEST  # of a bias, in nats


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """q'_l in proportion to exp((ln q_l) / temperature + bias_l), times the label's share in use over that of the
    pairs where `in_use` is known. `figures` is what the examination found, with its `gate`; it has no effect on
    answers. With `force`, the calibration may be used although its gate was not passed (see `check_gate`). Raises
    `SettingsError`."""

    model: str
    style: str
    template: str  # with its version, as in relate.pairwise/2
    temperature: float = 1.0
    biases: Distribution = (0.0, 0.0, 0.0)  # in nats, by `DISTRIBUTED`; their sum is 0
    n_pairs: int = 0
    shares: Distribution | None = None  # of the labels among the pairs
    in_use: Distribution | None = None  # of the labels where the calibration is used
    figures: Mapping[str, Any] = field(default_factory=dict)
    force: bool = field(default=False, compare=False, repr=False)  # of this run, not of the file

    def __post_init__(self) -> None:
        for key in ("model", "style", "template"):
            if not isinstance(text := getattr(self, key), str) or not text:
                raise SettingsError(f"{key} is {text!r:.60}; allowed: a non-empty string")
        check_number("temperature", self.temperature, 1 / _LARGEST, _LARGEST)
        check_number("n_pairs", self.n_pairs, 0, 2**53, whole=True)
        three = ", ".join(DISTRIBUTED)
        biases = self.biases
        if not isinstance(biases, tuple) or len(biases) != 3 or not all(is_number(b, *_BOUNDS) for b in biases):
            allowed = f"a tuple of numbers from {_BOUNDS[0]:g} to {_BOUNDS[1]:g}, of {three}"
            raise SettingsError(f"biases is {biases!r:.80}; allowed: {allowed}")
        for key, given in (("shares", self.shares), ("in_use", self.in_use)):
            if given is not None and not is_distribution(given):
                allowed = f"a tuple of the shares of {three}, which add up to 1, or None"
                raise SettingsError(f"{key} is {given!r:.80}; allowed: {allowed}")
        if self.in_use is not None and self.shares is None:
            raise SettingsError("in_use is given without shares; allowed: both, or neither")
        object.__setattr__(self, "temperature", float(self.temperature))  # 2 and 2.0 are one, also in the digest
        for key in ("biases", "shares", "in_use"):
            if (numbers := getattr(self, key)) is not None:
                object.__setattr__(self, key, tuple(map(float, numbers)))

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that name the calibration: of all that has an effect."""
        rest = (self.model, self.style, self.template, self.temperature, self.biases, self.shares, self.in_use)
        return hashlib.sha256(orjson.dumps(rest)).hexdigest()[:12]

    def apply(self, q: Distribution) -> Distribution:
        """The calibrated distribution of one answer, all of whose probabilities are `LEAST` or more."""
        entailment, contradiction, neutral = self.apply_all(np.array([q]))[0].tolist()
        return entailment, contradiction, neutral

    def apply_all(self, q: Float[np.ndarray, "N 3"]) -> Float[np.ndarray, "N 3"]:
        """The calibrated distributions of many answers, columns by `DISTRIBUTED`, float64."""
        scores = np.log(np.maximum(q, LEAST)) / self.temperature + self.biases
        if self.shares is not None and self.in_use is not None:
            scores += np.log(np.maximum(self.in_use, LEAST)) - np.log(np.maximum(self.shares, LEAST))
        return distributions(scores)

    def check(self, model: str, style: str, template: str) -> None:
        """Raise `SettingsError` unless the calibration is of this model, style and wording."""
        ours = {"model": self.model, "style": self.style, "wording": self.template}
        for (what, own), used in zip(ours.items(), (model, style, template), strict=True):
            if own != used:
                raise SettingsError(
                    f"the calibration is of {what} {own!r:.80}, and this run uses {used!r:.80}; allowed: a calibration "
                    f"of the same {what} (make one with `fcjax calibrate`)"
                )

    def check_gate(self) -> None:
        """Raise `SettingsError` where the examination's gate was not passed, unless `force` is set. A calibration
        without a gate is accepted; see `doubt`."""
        gate = self.figures.get("gate")
        if gate is not None and not gate["passed"] and not self.force:
            raise SettingsError(
                f"the relation model {self.model!r:.80} did not pass the gate of its examination: {gate['verdict']}; "
                "use another model, style or wording, examine it on more pairs (`fcjax calibrate`), or use it all the "
                "same with --force (in Python: force=True)"
            )

    @property
    def doubt(self) -> str | None:
        """What a run that uses the calibration should warn of: no gate, or one that was not passed."""
        gate = self.figures.get("gate")
        if gate is None:
            return (
                "the calibration has no gate: it is unknown whether the relation model is better than always giving "
                "the commonest label; examine it again with `fcjax calibrate`"
            )
        return None if gate["passed"] else f"used although the gate was not passed: {gate['verdict']}"

    def to_dict(self) -> dict[str, Any]:
        """The calibration as its file has it (SPEC 9)."""
        return {
            "model": self.model,
            "style": self.style,
            "template": self.template,
            "temperature": self.temperature,
            "biases": by_label(self.biases),
            "n_pairs": self.n_pairs,
            "shares": None if self.shares is None else by_label(self.shares),
            "in_use": None if self.in_use is None else by_label(self.in_use),
            "digest": self.digest,
            "figures": dict(self.figures),
        }

    @classmethod
    def from_dict(cls, data: Any) -> Calibration:
        """The calibration of a file's content. Raises `InputError` with every fault."""
        if not isinstance(data, Mapping):
            raise InputError("the calibration is not an object; allowed: what `fcjax calibrate -o` writes")
        faults: list[Fault] = []
        texts: dict[str, Any] = {key: data.get(key) for key in ("model", "style", "template")}
        for key, text in texts.items():
            if not isinstance(text, str) or not text:
                faults.append(Fault(f"{key} is {text!r:.60}; allowed: a non-empty string", field=key))
        temperature: Any = data.get("temperature")
        n_pairs: Any = data.get("n_pairs", 0)
        if not is_number(temperature, 1 / _LARGEST, _LARGEST):
            allowed = f"a number from {1 / _LARGEST:g} to {_LARGEST:g}"
            faults.append(Fault(f"temperature is {temperature!r:.60}; allowed: {allowed}", field="temperature"))
        if not is_number(n_pairs, 0, 2**53, whole=True):
            faults.append(Fault(f"n_pairs is {n_pairs!r:.60}; allowed: a whole number from 0", field="n_pairs"))
        biases = read_by_label(data, "biases", *_BOUNDS, faults, required=True)
        shares = read_by_label(data, "shares", 0, 1, faults)
        in_use = read_by_label(data, "in_use", 0, 1, faults)
        for key, given in (("shares", shares), ("in_use", in_use)):
            if given is not None and abs(sum(given) - 1) > SUM_TOLERANCE:
                fault = f"{key} add up to {sum(given):.4g}; allowed: shares that add up to 1"
                faults.append(Fault(fault, field=key))
        if in_use is not None and data.get("shares") is None:
            faults.append(Fault("in_use is given without shares; allowed: both, or neither", field="in_use"))
        figures = data.get("figures")
        if isinstance(figures, Mapping) and "gate" in figures and not _is_gate(figures["gate"]):
            fault = f"figures.gate is {figures['gate']!r:.60}; allowed: an object with `passed` and `verdict`"
            faults.append(Fault(fault, field="figures.gate"))
        if faults:
            raise InputError(*faults)
        assert biases is not None  # else it had a fault
        made = cls(
            **texts,
            temperature=float(temperature),
            biases=biases,
            n_pairs=int(n_pairs),
            shares=shares,
            in_use=in_use,
            figures=figures if isinstance(figures, Mapping) else {},
        )
        if data.get("digest") not in (None, made.digest):
            fault = f"digest is {data['digest']!r:.60}, and the values have {made.digest!r}: the file was changed"
            raise InputError(Fault(f"{fault}; allowed: the values it was written with, or no digest", field="digest"))
        return made


def distributions(scores: Float[np.ndarray, "N 3"]) -> Float[np.ndarray, "N 3"]:
    """The distributions in proportion to exp(score), float64, of which no probability is below `LEAST`."""
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights = weights / weights.sum(axis=1, keepdims=True)
    kept: Float[np.ndarray, "N 3"] = LEAST + (1 - len(DISTRIBUTED) * LEAST) * weights
    return kept


def spread(label: RelationType, p: float) -> Distribution:
    """The distribution of an answer of which only the label and its probability are known (SPEC 2, `soft`)."""
    entailment, contradiction, neutral = (p if one is label else (1 - p) / 2 for one in DISTRIBUTED)
    return entailment, contradiction, neutral


def likeliest(q: Distribution, given: RelationType) -> tuple[RelationType, float]:
    """The label with the largest probability, and that probability; the `given` label on a tie, to rounding."""
    best = max(DISTRIBUTED, key=lambda label: (round(q[DISTRIBUTED.index(label)], 9), label is given))
    return best, q[DISTRIBUTED.index(best)]


def read_by_label(
    data: Mapping[str, Any], key: str, low: float, high: float, faults: list[Fault], required: bool = False
) -> Distribution | None:
    """The numbers from `low` to `high` that `data` has for each label under `key`, by `DISTRIBUTED`; None where there
    are none. What is wrong is added to `faults`, also a missing value where one is `required`."""
    value = data.get(key)
    if value is None and not required:
        return None
    if isinstance(value, Mapping) and value.keys() == set(DISTRIBUTED):
        numbers = [value[label] for label in DISTRIBUTED]
        if all(is_number(number, low, high) for number in numbers):
            entailment, contradiction, neutral = map(float, numbers)
            return entailment, contradiction, neutral
    allowed = f"an object with a number from {low:g} to {high:g} for each of {', '.join(DISTRIBUTED)}"
    faults.append(Fault(f"{key} is {value!r:.80}; allowed: {allowed}", field=key))
    return None


def _is_gate(gate: Any) -> bool:
    return isinstance(gate, Mapping) and isinstance(gate.get("passed"), bool) and isinstance(gate.get("verdict"), str)
