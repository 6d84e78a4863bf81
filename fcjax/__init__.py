"""Which statements of a long answer are false, on what evidence, and how sure that is.

The public names load on first use, so that `import fcjax` stays light: jax and numba come with `infer`, aiohttp with
`Client`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fcjax.assignment import Assignment, most_probable
    from fcjax.bulk import score
    from fcjax.correction import Correction
    from fcjax.corrector import Corrector, correct
    from fcjax.critic import Critic, Critique, critique
    from fcjax.engine import infer
    from fcjax.errors import BudgetError, Fault, FcjaxError, InputError, OutputError, SettingsError
    from fcjax.findings import Evidence, Feedback, Finding
    from fcjax.graph import FactGraph
    from fcjax.guards import Guards
    from fcjax.influence import Influence, influences, leave_one_out
    from fcjax.io.client import Client
    from fcjax.io.endpoint import Endpoint
    from fcjax.io.pacing import Budget, RateLimit
    from fcjax.io.store import Store
    from fcjax.limits import Limits
    from fcjax.passages import Passage, Retriever
    from fcjax.posterior import Posterior
    from fcjax.records import EPS, Atom, Case, Context, Label, MarkovModel, Relation, RelationType, Status
    from fcjax.relating import Relating, relate_cases, relate_file
    from fcjax.settings import Settings
    from fcjax.stages.pipeline import Pipeline
    from fcjax.stages.relate import RelationModel

__all__ = [
    "EPS",
    "Assignment",
    "Atom",
    "Budget",
    "BudgetError",
    "Case",
    "Client",
    "Context",
    "Correction",
    "Corrector",
    "Critic",
    "Critique",
    "Endpoint",
    "Evidence",
    "FactGraph",
    "Fault",
    "FcjaxError",
    "Feedback",
    "Finding",
    "Guards",
    "Influence",
    "InputError",
    "Label",
    "Limits",
    "MarkovModel",
    "OutputError",
    "Passage",
    "Pipeline",
    "Posterior",
    "RateLimit",
    "Relating",
    "Relation",
    "RelationModel",
    "RelationType",
    "Retriever",
    "Settings",
    "SettingsError",
    "Status",
    "Store",
    "correct",
    "critique",
    "infer",
    "influences",
    "leave_one_out",
    "most_probable",
    "relate_cases",
    "relate_file",
    "score",
]

_HOMES = {
    "fcjax.assignment": ("Assignment", "most_probable"),
    "fcjax.bulk": ("score",),
    "fcjax.correction": ("Correction",),
    "fcjax.corrector": ("Corrector", "correct"),
    "fcjax.critic": ("Critic", "Critique", "critique"),
    "fcjax.engine": ("infer",),
    "fcjax.errors": ("BudgetError", "Fault", "FcjaxError", "InputError", "OutputError", "SettingsError"),
    "fcjax.findings": ("Evidence", "Feedback", "Finding"),
    "fcjax.graph": ("FactGraph",),
    "fcjax.guards": ("Guards",),
    "fcjax.influence": ("Influence", "influences", "leave_one_out"),
    "fcjax.io.client": ("Client",),
    "fcjax.io.endpoint": ("Endpoint",),
    "fcjax.io.pacing": ("Budget", "RateLimit"),
    "fcjax.io.store": ("Store",),
    "fcjax.limits": ("Limits",),
    "fcjax.posterior": ("Posterior",),
    "fcjax.records": (
        "EPS", "Atom", "Case", "Context", "Label", "MarkovModel", "Relation", "RelationType", "Status",
    ),
    "fcjax.passages": ("Passage", "Retriever"),
    "fcjax.relating": ("Relating", "relate_cases", "relate_file"),
    "fcjax.settings": ("Settings",),
    "fcjax.stages.pipeline": ("Pipeline",),
    "fcjax.stages.relate": ("RelationModel",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use (PEP 562)."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("fcjax")
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'fcjax' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
