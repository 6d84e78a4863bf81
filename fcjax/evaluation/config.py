"""The plan of an evaluation: the correctors, models, data sets and scores of a grid, read from a YAML file.

Keys of endpoints are never in the file: a model names the environment variable that holds its key. Paths are relative
to the file.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from fcjax.core.errors import InputError, SettingsError
from fcjax.critic.calibration_file import read_calibration
from fcjax.critic.relation_config import RelationConfig
from fcjax.evaluation.config_correctors import AnyCorrector, CorrectorConfig
from fcjax.evaluation.config_file import ArgumentError, Checked, ConfigError, NamedSection, Section, Text, read_config
from fcjax.evaluation.layout import Cell
from fcjax.io.files.streams import Source
from fcjax.io.model_folder import is_hub_name
from fcjax.scoring.settings import Settings
from fcjax.stages.calibration import Calibration
from fcjax.stages.pipeline import Pipeline
from fcjax.stages.query import QueryBuilder
from fcjax.stages.relate import RelationModel
from fcjax.stages.retrieve import EvidenceSearch
from fcjax.stages.revise import Reviser
from fcjax.stages.summarise import Summariser
from fcjax.stages.wordings import wording

if TYPE_CHECKING:
    from fcjax.encoders.relation_model import LocalRelationModel

Thousand = Annotated[int, Field(ge=1, le=1000)]
Count = Annotated[int, Field(ge=1)]


def _existing(what: str, folders: bool) -> BeforeValidator:
    """Paths relative to the file, of which there must be a file, or with `folders` a folder or file."""

    def check(value: Any, info: ValidationInfo) -> Any:
        if not (isinstance(value, str) and value.strip()):
            return value
        path = Path(info.context or ".") / value
        try:
            found = path.exists() if folders else path.is_file()
        except OSError:  # such as a name that is too long
            found = False
        if not found:
            raise ConfigError("", repr(value), f"{what}; nothing was found at {path}")
        return path

    return BeforeValidator(check)


def _existing_or_on_hub() -> BeforeValidator:
    """A folder relative to the file, as an absolute path, or a name on Hugging Face's hub, as it is."""

    def check(value: Any, info: ValidationInfo) -> Any:
        if not (isinstance(value, str) and value.strip()):
            raise ConfigError("", repr(value)[:60], "a folder with a model, or its name on Hugging Face's hub")
        path = Path(info.context or ".") / value
        return str(path) if os.path.isdir(path) or not is_hub_name(value) else value

    return BeforeValidator(check)


class DataSet(NamedSection):
    """A file of cases, and the source of evidence for them."""

    named_by: ClassVar[str] = "path"

    path: Annotated[Path, _existing("a file of cases", folders=False)]
    retriever: Literal["given", "local", "serper", "wikipedia"]
    corpus: Annotated[Path, _existing("a folder or file of documents", folders=True)] | None = None
    limit: Count | None = None
    sample: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        """By default a corpus is searched, and without one the cases bring their own evidence."""
        corpus = values.get("corpus")
        values = {"retriever": "local" if corpus else "given", **values}
        if (values["retriever"] == "local") != (corpus is not None):
            seen = "missing" if corpus is None else repr(corpus)
            raise ConfigError("corpus", seen, "a path if the retriever is local, else nothing")
        return super().completed(values)

    @classmethod
    def name_of(cls, source: str) -> str:
        return super().name_of(Path(source).name.partition(".")[0])


class ModelConfig(NamedSection):
    """A model and its endpoint. One that does not correct (`corrects`) is in the grid only where it is named."""

    named_by: ClassVar[str] = "model"

    model: Text
    base_url: Text | None = None
    api_key_env: Text | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    price: (
        Annotated[
            list[Annotated[float, Field(ge=0, le=1e6)]],
            Field(
                min_length=2,
                max_length=2,
                description="two numbers, US dollars per million input tokens and per million output tokens",
            ),
        ]
        | None
    ) = None
    concurrency: Annotated[int, Field(ge=1, le=4096)] = 64
    timeout: Annotated[float, Field(ge=0.001, le=1e6)] | None = None
    litellm: bool = False
    corrects: bool = True

    @model_validator(mode="after")
    def _has_no_key(self) -> Self:
        for key in self.options:
            if re.sub(r"\W|_", "", key).lower() in ("apikey", "key", "token", "authorization"):
                raise ConfigError(
                    f"options.{key}", "an API key", "the name of the variable that holds it, in api_key_env"
                )
        if self.api_key_env and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.api_key_env):
            # The value is not shown: it may be a key.
            raise ConfigError("api_key_env", "not a variable name", "the name of the variable that holds the key")
        return self


_ASKING: Final = (*("style", "pack", "votes", "default", "wording", "max_tokens", "ask", "settle", "ask_at_most"),)
"""Keys about questions to a model, which have no effect with a local one."""


class CriticConfig(Section):
    """The critic that evaluates, and that correctors work with; `model` is asked for all, else each model for its own.

    The other keys are those of `Settings` and `RelationModel`, which check their values; `wording` is the version of
    the question about relations. A `relation_model` is the folder of a local encoder that reads the relations instead.
    """

    model: Text | None = None
    version: Literal["FR1", "FR2", "FR3"] = "FR2"
    contexts: Thousand = 3
    atomizer: Literal["model", "sentences"] = "model"
    language: Text | None = None
    revise: bool = True
    queries: Literal["atom", "model"] | None = None
    summarise: bool = False
    screen: Checked = None
    ask: Checked = None
    settle: Checked = None
    ask_at_most: Checked = None
    preset: Checked = None
    encoding: Checked = None
    context_prior: Checked = None
    atom_prior: Checked = None
    k: Checked = None
    effort: Checked = None
    style: Checked = None
    pack: Checked = None
    votes: Checked = None
    default: Checked = None
    wording: Checked = None
    max_tokens: Checked = None
    calibration: Annotated[Path, _existing("a file of `fcjax calibrate`", folders=False)] | None = None
    relation_model: Annotated[str, _existing_or_on_hub()] | None = None

    @property
    def settings(self) -> Settings:
        """The settings of the graph and the scores."""
        return Settings(
            version=self.version,
            **self._given("preset", "encoding", "context_prior", "atom_prior", "k", "effort"),
        )

    @cached_property
    def local(self) -> LocalRelationModel | None:
        """The local relation model, if there is one, opened once. Raises `InputError` and `SettingsError`."""
        if self.relation_model is None:
            return None
        from fcjax.encoders.relation_model import LocalRelationModel  # loads jax

        return LocalRelationModel.open(self.relation_model, calibration=self._calibration, force=True)

    @property
    def _calibration(self) -> Calibration | None:
        # The gate is checked where the plan is read, which is told whether it is forced.
        return None if self.calibration is None else replace(read_calibration(self.calibration), force=True)

    @property
    def relations(self) -> RelationConfig:
        """How relations are asked for, or read by a local model."""
        if self.local is not None:
            return RelationConfig(version=self.version, model=self.local, screen=self.screen)
        words = {} if self.wording is None else wording(str(self.wording))._asdict()  # YAML has 1 as a number
        chosen = self._given("style", "pack", "votes", "default", "max_tokens")
        model = RelationModel(**words, **chosen, calibration=self._calibration)
        asking = self._given("ask", "settle", "ask_at_most")
        return RelationConfig(version=self.version, model=model, screen=self.screen, **asking)

    def _given(self, *names: str) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        asked = next((name for name in _ASKING if getattr(self, name) is not None), None)
        if self.relation_model is not None and asked is not None:
            raise ConfigError(asked, repr(getattr(self, asked)), "nothing with relation_model, which asks nothing")
        try:
            _ = self.local
        except (InputError, SettingsError) as error:
            seen = f"not a model that can be used ({error})"
            raise ConfigError("relation_model", seen, "a folder with a relation model, and its calibration") from error
        try:
            _ = self.relations, self.settings
            Pipeline(atomizer=self.atomizer, language=self.language)
        except SettingsError as error:
            raise ArgumentError("", error) from error
        except InputError as error:
            raise ArgumentError("calibration", SettingsError(str(error))) from error
        return self

    def pipeline(self, data: DataSet) -> Pipeline:
        """The stages before the relations; by default a model words the queries for the web, and atoms are others."""
        queries = self.queries or ("model" if data.retriever in ("serper", "wikipedia") else "atom")
        return Pipeline(
            atomizer=self.atomizer,
            language=self.language,
            revise=Reviser() if self.revise else None,
            query=QueryBuilder() if queries == "model" else None,
            retrieve=EvidenceSearch(k=self.contexts),
            summarise=Summariser() if self.summarise else None,
        )


class Scores(Section):
    """The scores beside the measures of SPEC 5.

    `texts`: ROUGE-L and BLEU against a case's `reference`. `judge`: the model that compares a response with the
    reference, in both orders with `swapped`. `facts`: the largest number of facts from the evidence of a case, out of
    its first `contexts`, by which comprehensiveness is measured; 0 for none. `assessors`: methods to compare with.
    """

    texts: bool = True
    judge: Text | None = None
    swapped: bool = False
    facts: Annotated[int, Field(ge=0, le=1000)] = 0
    contexts: Thousand = 5
    assessors: list[Literal["factscore", "veriscore", "factverify"]] = Field(default_factory=list)


_Items: Final = Field(min_length=1, description="a list of at least one item")


class _File(Section):
    """The keys of the file."""

    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] = 0
    store: Text | None = None
    data: Annotated[list[DataSet], _Items]
    models: Annotated[list[ModelConfig], _Items]
    correctors: Annotated[list[AnyCorrector], _Items]
    critic: CriticConfig = Field(default_factory=CriticConfig)
    scores: Scores = Field(default_factory=Scores)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Names occur once, and models that are named are there."""
        lists: dict[str, list[Any]] = {"data": self.data, "models": self.models, "correctors": self.correctors}
        for key, items in lists.items():
            names: set[str] = set()
            for i, item in enumerate(items):
                if item.name in names:
                    raise ConfigError(f"{key}[{i}].name", repr(item.name), "a unique name in the list")
                names.add(item.name)
        models = [one.name for one in self.models]
        named = [(f"correctors[{i}].model", one.model) for i, one in enumerate(self.correctors)]
        for place, model in (*named, ("critic.model", self.critic.model), ("scores.judge", self.scores.judge)):
            if model is not None and model not in models:
                raise ConfigError(place, repr(model), f"{', '.join(map(repr, models))}, as in `models`")
        local = self.critic.relation_model is not None
        if not local and (calibration := self.critic.relations.model.calibration) is not None:
            asked = [one for one in self.models if self.critic.model in (None, one.name)]
            if other := next((one for one in asked if one.model != calibration.model), None):
                seen = f"a calibration of {calibration.model!r}, and the critic asks {other.model!r}"
                raise ConfigError(
                    "critic.calibration", seen, "a calibration of the critic's model, named in critic.model"
                )
        if not any(one.corrects for one in self.models) and not all(one.model for one in self.correctors):
            seen = "a list without a model that corrects"
            raise ConfigError("models", seen, "at least one model without `corrects: false`")
        return self


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A grid. Make it with `read_plan`."""

    path: Path
    data: Mapping[str, DataSet]
    models: Mapping[str, ModelConfig]
    correctors: Mapping[str, CorrectorConfig]
    critic: CriticConfig = field(default_factory=CriticConfig)
    scores: Scores = field(default_factory=Scores)
    seed: int = 0
    store: Path | None = None

    def cells(self) -> list[Cell]:
        """All cells of the grid, by data set; a corrector with a model of its own has one per data set."""
        correcting = [one.name for one in self.models.values() if one.corrects]
        return [
            Cell(data=data, critic=self.critic.model or model, model=model, corrector=corrector.name)
            for data in self.data
            for corrector in self.correctors.values()
            for model in ([corrector.model] if corrector.model else correcting)
        ]

    def to_dict(self) -> dict[str, Any]:
        """The parts of a plan that the tables need, as JSON."""
        return {
            "plan": str(self.path),
            "cells": [asdict(cell) for cell in self.cells()],
            "scores": self.scores.model_dump(),
        }


def read_plan(path: Source, *, force: bool = False) -> Plan:
    """The plan of a YAML file. Raises `SettingsError` for the first fault, also for the calibration of a relation model
    that did not pass the gate of its examination, unless `force` is set."""
    found = read_config(path, _File)
    model, where = found.critic.relations.model, found.critic.calibration or found.critic.relation_model
    if (calibration := model.calibration) is not None:
        replace(calibration, force=force).check_gate()
    local_doubt = getattr(model, "doubt", None)
    if doubt := calibration.doubt if calibration is not None else local_doubt:
        warnings.warn(f"{where}: {doubt}", stacklevel=2)
    return Plan(
        path=Path(path),
        data={one.name: one for one in found.data},
        models={one.name: one for one in found.models},
        correctors={one.name: one for one in found.correctors},
        critic=found.critic,
        scores=found.scores,
        seed=found.seed,
        store=None if found.store is None else Path(path).resolve().parent / found.store,
    )
