"""What to ask about the relations of cases, and how; and the running totals of what was asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, Final, Literal, get_args

from fcjax.core.checks import check_choice, check_number
from fcjax.core.errors import SettingsError
from fcjax.graph.selection import Version
from fcjax.scoring.settings import Settings
from fcjax.stages.calibration import Calibration
from fcjax.stages.relate import Relater, RelationModel

Ask = Literal["all", "adaptive"]

EXPERIENCE: Final = {"pairwise": (0.27, 0.40), "packed": (0.79, 0.91)}
"""What part of the prompts of asking all adaptive asking took, by style, with ten and with three passages a claim: see
docs/adaptive.md."""


@dataclass(frozen=True, kw_only=True)
class RelationConfig:
    """What to ask about a case, and how: the graph version that the relations are for (SPEC 2), the relation model, and
    the score below which a pair is not worth asking about (see `Screen`; None asks about all). A `calibration` given
    here becomes the model's.

    To `ask` is all, or `adaptive`: first of what could change a label most, until no label is less sure than `settle`
    or, where that cannot be, no answer that is missing is likely to say anything; `ask_at_most` prompts a case. Labels
    are those of the settings `graph`. A model `first`, a calibrated local one, then answers where it is as sure as
    `settle`, so that the other is not asked.

    Raises `SettingsError`.
    """

    version: Version = "FR2"
    model: Relater = field(default_factory=RelationModel)
    screen: float | None = None
    ask: Ask = "all"
    settle: float = 0.99
    ask_at_most: int | None = None
    first: Relater | None = None
    graph: Settings = field(default_factory=Settings)
    calibration: InitVar[Calibration | None] = None

    def __post_init__(self, calibration: Calibration | None) -> None:
        check_choice("version", self.version, get_args(Version))
        check_number("screen", self.screen, 0, 1, none=True)
        check_choice("ask", self.ask, get_args(Ask))
        check_number("settle", self.settle, 0.5, 1)
        check_number("ask_at_most", self.ask_at_most, 0, 2**31 - 1, whole=True, none=True)
        self._check_adaptive()
        object.__setattr__(self, "graph", replace(self.graph, version=self.version))
        if calibration is not None:
            object.__setattr__(self, "model", self.model.calibrated(calibration))

    def expected(self, prompts: int) -> tuple[int, int] | None:
        """How many of the `prompts` of asking all will be sent, by experience; None where all will, or where a local
        model goes first, of which there is none."""
        if self.ask == "all" or self.first is not None:
            return None
        low, high = EXPERIENCE["packed" if self.model.style == "packed" else "pairwise"]
        return round(low * prompts), round(high * prompts)

    def asking(self) -> dict[str, Any]:
        """What decides which pairs are asked about, as JSON; nothing where all are."""
        if self.ask == "all":
            return {}
        first = None
        if self.first is not None and self.first.calibration is not None:
            first = self.first.settings() | {"calibration": self.first.calibration.digest}
        numbers = self.graph.numbers()
        return {
            "ask": self.ask,
            "settle": self.settle,
            "ask_at_most": self.ask_at_most,
            "first": first,
            "graph": numbers,
        }

    def _check_adaptive(self) -> None:
        """Raise `SettingsError` for what does not go with the way of asking."""
        if self.ask == "all":
            if self.first is not None or self.ask_at_most is not None:
                name = "first" if self.first is not None else "ask_at_most"
                raise SettingsError(f"{name} has no effect with ask='all'; remove it, or use ask='adaptive'")
            return
        if self.version == "FR3":
            raise SettingsError(
                "version is 'FR3', which asks about contexts too; allowed with ask='adaptive': FR1, FR2"
            )
        if not self.model.asks:
            raise SettingsError(
                "ask is 'adaptive', and the relations are read by a local model, which costs no prompts"
            )
        if self.first is not None and self.first.calibration is None:
            raise SettingsError(
                "the local model that answers first has no calibration, so it is unknown how sure it is; make one with "
                "`fcjax calibrate`"
            )


@dataclass(slots=True)
class RelationCounts:
    """Running totals of what was related."""

    cases: Counter[str] = field(default_factory=Counter)  # finished, by status
    pairs: int = 0  # that were asked about
    types: Counter[str] = field(default_factory=Counter)  # of these, the answered ones by type
    methods: Counter[str] = field(default_factory=Counter)  # and by where their probabilities come from
    failed: Counter[str] = field(default_factory=Counter)  # the others, by the kind of failure
    given: int = 0  # relations that the input has
    earlier: int = 0  # cases that keep relations of another model, wording or calibration (see `keeps_earlier`)
    screened: int = 0  # pairs left out as unrelated
    not_asked: Counter[str] = field(default_factory=Counter)  # pairs left out by adaptive asking, by first opinion
    prompts: int = 0  # of adaptive asking, repairs and votes apart
    prompts_of_all: int = 0  # that asking all would have taken in its place
    skipped: Counter[str] = field(default_factory=Counter)  # atoms and contexts that cannot be asked about, by reason

    @property
    def n_failed(self) -> int:
        """Pairs that were asked about and not answered."""
        return self.failed.total()

    def to_dict(self) -> dict[str, Any]:
        """The counts as JSON."""
        return {
            "n_cases": self.cases.total(),
            "statuses": dict(self.cases),
            "n_pairs": self.pairs,
            "types": dict(self.types),
            "methods": dict(self.methods),
            "n_failed": self.n_failed,
            "failed": dict(self.failed),
            "n_given": self.given,
            "n_earlier": self.earlier,
            "n_screened": self.screened,
            **(
                {"not_asked": dict(self.not_asked), "prompts": self.prompts, "prompts_of_all": self.prompts_of_all}
                if self.not_asked or self.prompts_of_all
                else {}
            ),
            "skipped": dict(self.skipped),
        }
