"""What FactCorrector is compared with: other methods of correction, and other ways to assess a response.

All use the same critic's client, source and stages, so that they differ in their method alone.
"""

from __future__ import annotations

from typing import Final

from fcjax.arguments import check_choice
from fcjax.baselines.assessor import Assessor
from fcjax.baselines.critic_baseline import CriticBaseline
from fcjax.baselines.factscore import FactScore
from fcjax.baselines.factverify import FactVerify
from fcjax.baselines.llm1 import LLM1
from fcjax.baselines.llm2 import LLM2
from fcjax.baselines.rac import RAC
from fcjax.baselines.sft import SFT
from fcjax.baselines.veriscore import VeriScore
from fcjax.corrector import Corrector
from fcjax.method import Method

METHODS: Final[dict[str, type[Method]]] = {
    method.name: method for method in (Corrector, LLM1, LLM2, RAC, CriticBaseline, SFT)
}
"""Methods of correction by their names, as `fcjax correct --corrector` takes them."""

ASSESSORS: Final[dict[str, type[Assessor]]] = {one.name: one for one in (FactScore, VeriScore, FactVerify)}
"""Assessors by their names."""


def method_of(name: str) -> type[Method]:
    """The method of a name. Raises `SettingsError` for an unknown one."""
    check_choice("corrector", name, METHODS)
    return METHODS[name]


def assessor_of(name: str) -> type[Assessor]:
    """The assessor of a name. Raises `SettingsError` for an unknown one."""
    check_choice("assessor", name, ASSESSORS)
    return ASSESSORS[name]
