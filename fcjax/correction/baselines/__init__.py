"""The methods of correction that FactCorrector is compared with.

All use the client, source and stages of the same critic, so that only the method differs.
"""

from __future__ import annotations

from typing import Final

from fcjax.core.checks import check_choice
from fcjax.correction.baselines.critic import CriticBaseline
from fcjax.correction.baselines.llm1 import LLM1
from fcjax.correction.baselines.llm2 import LLM2
from fcjax.correction.baselines.rac import RAC
from fcjax.correction.baselines.sft import SFT
from fcjax.correction.factcorrector import Corrector
from fcjax.correction.method import Method

METHODS: Final[dict[str, type[Method]]] = {
    method.name: method for method in (Corrector, LLM1, LLM2, RAC, CriticBaseline, SFT)
}
"""Methods of correction by their names, as `fcjax correct --corrector` takes them."""


def method_of(name: str) -> type[Method]:
    """The method with a name. Raises `SettingsError` for an unknown one."""
    check_choice("corrector", name, METHODS)
    return METHODS[name]
