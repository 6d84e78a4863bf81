"""The settings of a run: everything that changes a case's row apart from the case itself."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, get_args

from fcjax.core.checks import check_choice, check_number, is_number
from fcjax.core.errors import SettingsError
from fcjax.core.limits import I_BOUND, Backend, Effort, Limits, Method
from fcjax.core.records import Case
from fcjax.graph.fact_graph import FactGraph
from fcjax.graph.factors import ATOM_PRIOR, PRESETS, Encoding
from fcjax.graph.selection import Version
from fcjax.inference.backend import default_backend
from fcjax.scoring.measures import K


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that changes a case's row apart from the case itself (SPEC 2, 5, 8).

    `encoding` and `context_prior` override the preset's; with `k` None, K is that of the data set; `effort`, `limits`,
    `method`, `i_bound` and `backend` go to `infer`. Raises `SettingsError`.
    """

    preset: str = "paper"
    encoding: Encoding | None = None
    context_prior: float | None = None
    atom_prior: float = ATOM_PRIOR
    version: Version | None = None
    k: K | None = None
    effort: Effort = "tight"
    limits: Limits | None = None
    method: Method | None = None
    i_bound: int = I_BOUND
    backend: Backend | None = None

    def __post_init__(self) -> None:
        self.graph(Case(id="settings"))  # which checks the values that concern the graph
        if not (self.k is None or self.k == "release" or (is_number(self.k, 1) and self.k < math.inf)):
            raise SettingsError(f"k is {self.k!r:.60}; allowed: a number of at least 1, 'release' or None")
        if not isinstance(self.limits, Limits | None):
            raise SettingsError(f"limits is {self.limits!r:.60}; allowed: Limits(...) or None")
        check_choice("effort", self.effort, get_args(Effort))
        check_choice("method", self.method, get_args(Method), none=True)
        check_number("i_bound", self.i_bound, 1, 20, whole=True)
        check_choice("backend", self.backend, get_args(Backend), none=True)

    def graph(self, case: Case) -> FactGraph:
        """The graph of a case under these settings. Raises `InputError`."""
        return FactGraph.from_case(
            case,
            preset=self.preset,
            encoding=self.encoding,
            context_prior=self.context_prior,
            atom_prior=self.atom_prior,
            version=self.version,
        )

    def numbers(self) -> dict[str, Any]:
        """The settings of factors, with the preset's values filled in: arguments of `from_dict`."""
        preset = PRESETS[self.preset]
        return {
            "encoding": preset.encoding if self.encoding is None else self.encoding,
            "context_prior": preset.context_prior if self.context_prior is None else self.context_prior,
            "atom_prior": self.atom_prior,
        }

    def resolved(self) -> dict[str, Any]:
        """Everything that changes the result and nothing else, with every default filled in, as JSON."""

        named = asdict(self) | self.numbers()
        del named["preset"]
        named["limits"] = (self.limits or Limits()).resolved()
        named["backend"] = self.backend or default_backend()
        if self.method is None:
            named["i_bound"] = None
        return named
