"""Other ways to assess a response, for comparison with the critic: a model's verdict on each atom.

All use the client, source and stages of the same critic, so that only the method differs.
"""

from __future__ import annotations

from typing import Final

from fcjax.core.checks import check_choice
from fcjax.evaluation.assessors.assessor import Assessor
from fcjax.evaluation.assessors.factscore import FactScore
from fcjax.evaluation.assessors.factverify import FactVerify
from fcjax.evaluation.assessors.veriscore import VeriScore

ASSESSORS: Final[dict[str, type[Assessor]]] = {one.name: one for one in (FactScore, VeriScore, FactVerify)}
"""Assessors by name."""


def assessor_of(name: str) -> type[Assessor]:
    """The assessor with a name. Raises `SettingsError` for an unknown one."""
    check_choice("assessor", name, ASSESSORS)
    return ASSESSORS[name]
