"""Which statements of a long answer are false, on what evidence, and how sure that is.

The public names load on first use, so that `import fcjax` stays light: jax and numba come with `infer`, aiohttp with
`Client`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fcjax.core.errors import BudgetError, Fault, FcjaxError, InputError, OutputError, SettingsError
    from fcjax.core.limits import Limits
    from fcjax.core.passages import Passage, Retriever
    from fcjax.core.records import EPS, Atom, Case, Context, Label, MarkovModel, Relation, RelationType, Status
    from fcjax.correction.factcorrector import Corrector, correct
    from fcjax.correction.guards import Guards
    from fcjax.correction.record import Correction
    from fcjax.critic.calibration_file import load_calibration
    from fcjax.critic.critic import Critic, Critique, critique
    from fcjax.critic.relation_config import RelationConfig
    from fcjax.critic.relation_stream import relate_cases
    from fcjax.encoders.embedder import Embedder
    from fcjax.encoders.relation_model import LocalRelationModel
    from fcjax.evaluation.relation_exam import Exam, calibrate
    from fcjax.graph.fact_graph import FactGraph
    from fcjax.inference.engine import infer
    from fcjax.inference.influence import Influence, influences, leave_one_out
    from fcjax.inference.map_assignment import Assignment, most_probable
    from fcjax.inference.posterior import Posterior
    from fcjax.io.client import Client
    from fcjax.io.endpoint import Endpoint
    from fcjax.io.pacing import Budget, RateLimit
    from fcjax.io.store import Store
    from fcjax.runs.relate_file import relate_file
    from fcjax.runs.score_file import score
    from fcjax.scoring.findings import Evidence, Feedback, Finding
    from fcjax.scoring.settings import Settings
    from fcjax.stages.calibration import Calibration
    from fcjax.stages.pipeline import Pipeline
    from fcjax.stages.relate import RelationModel

__all__ = [
    "EPS",
    "Assignment",
    "Atom",
    "Budget",
    "BudgetError",
    "Calibration",
    "Case",
    "Client",
    "Context",
    "Correction",
    "Corrector",
    "Critic",
    "Critique",
    "Embedder",
    "Endpoint",
    "Evidence",
    "Exam",
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
    "LocalRelationModel",
    "MarkovModel",
    "OutputError",
    "Passage",
    "Pipeline",
    "Posterior",
    "RateLimit",
    "Relation",
    "RelationConfig",
    "RelationModel",
    "RelationType",
    "Retriever",
    "Settings",
    "SettingsError",
    "Status",
    "Store",
    "calibrate",
    "correct",
    "critique",
    "infer",
    "influences",
    "leave_one_out",
    "load_calibration",
    "most_probable",
    "relate_cases",
    "relate_file",
    "score",
]

_HOMES = {
    "fcjax.inference.map_assignment": ("Assignment", "most_probable"),
    "fcjax.runs.score_file": ("score",),
    "fcjax.correction.record": ("Correction",),
    "fcjax.correction.factcorrector": ("Corrector", "correct"),
    "fcjax.critic.critic": ("Critic", "Critique", "critique"),
    "fcjax.inference.engine": ("infer",),
    "fcjax.core.errors": ("BudgetError", "Fault", "FcjaxError", "InputError", "OutputError", "SettingsError"),
    "fcjax.scoring.findings": ("Evidence", "Feedback", "Finding"),
    "fcjax.graph.fact_graph": ("FactGraph",),
    "fcjax.correction.guards": ("Guards",),
    "fcjax.inference.influence": ("Influence", "influences", "leave_one_out"),
    "fcjax.encoders.embedder": ("Embedder",),
    "fcjax.encoders.relation_model": ("LocalRelationModel",),
    "fcjax.io.client": ("Client",),
    "fcjax.io.endpoint": ("Endpoint",),
    "fcjax.io.pacing": ("Budget", "RateLimit"),
    "fcjax.io.store": ("Store",),
    "fcjax.core.limits": ("Limits",),
    "fcjax.inference.posterior": ("Posterior",),
    "fcjax.core.records": (
        "EPS", "Atom", "Case", "Context", "Label", "MarkovModel", "Relation", "RelationType", "Status",
    ),
    "fcjax.core.passages": ("Passage", "Retriever"),
    "fcjax.critic.relation_config": ("RelationConfig",),
    "fcjax.critic.relation_stream": ("relate_cases",),
    "fcjax.runs.relate_file": ("relate_file",),
    "fcjax.scoring.settings": ("Settings",),
    "fcjax.evaluation.relation_exam": ("Exam", "calibrate"),
    "fcjax.critic.calibration_file": ("load_calibration",),
    "fcjax.stages.calibration": ("Calibration",),
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
