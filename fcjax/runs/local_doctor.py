"""What can be found out about a local relation model: whether it can be used, how it judges, how fast it is."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fcjax.core.records import RelationType
from fcjax.encoders.relation_model import LocalRelationModel
from fcjax.runs.doctor import Check, Verdict, judgement_of
from fcjax.runs.probe_pairs import PROBE_PAIRS
from fcjax.stages.calibration import likeliest


def examine_folder(where: str, *, pairs: int = 32) -> Iterator[Check]:
    """The findings, as they are found; the speed is measured on `pairs` pairs of about 150 words.

    Raises `InputError` and `SettingsError` where the folder holds no model.
    """
    model = LocalRelationModel.open(where, force=True)
    kind = str(model.folder.config.get("model_type"))
    classes = model.labels.classes
    values = {"type": kind, "classes": classes, "length": model.length, "device": model.device}
    words = f"{model.name}: {kind}, {classes} labels, up to {model.length} tokens per pair, on {model.device}"
    if classes == 2:
        words += "; it has no label for contradictions, so that nothing will be refuted"
    yield Check("model", Verdict.GOOD if classes > 2 else Verdict.LIMITED, words, values)
    yield _examined(model)
    judged = model.judge([(probe.premise, probe.hypothesis) for probe in PROBE_PAIRS])
    said = {
        place: likeliest(one.distribution, RelationType.NEUTRAL)[0]
        for place, one in enumerate(judged)
        if one.distribution is not None
    }
    yield judgement_of(said)
    yield _speed(model, pairs)


def _examined(model: LocalRelationModel) -> Check:
    calibration = model.calibration
    if calibration is None:
        return Check("examined", Verdict.LIMITED, model.doubt)
    gate = calibration.figures.get("gate") or {}
    words = calibration.doubt or f"calibrated on {calibration.n_pairs:,} pairs; gate {gate.get('verdict', 'passed')}"
    verdict = Verdict.GOOD if not calibration.doubt else Verdict.BAD if gate else Verdict.LIMITED
    return Check("examined", verdict, words, {"gate": gate})


def _speed(model: LocalRelationModel, count: int) -> Check:
    """Pairs per second, once everything is compiled."""
    premise = " ".join(probe.premise for probe in PROBE_PAIRS[::3])
    pairs = [(f"{place} {premise}"[:800], PROBE_PAIRS[place % len(PROBE_PAIRS)].hypothesis) for place in range(count)]
    model.judge(pairs)
    began = time.perf_counter()
    model.judge(pairs)
    rate = count / (time.perf_counter() - began)
    return Check("speed", Verdict.GOOD, f"{rate:,.0f} pairs per second", {"pairs_per_second": round(rate, 1)})
