"""The plan of an evaluation: which correctors, with which models, on which data, scored how; read from a YAML file.

Every fault names the file, the place in it, what is there and what is allowed. Keys of endpoints are never in it: a
model names the variable that holds its key. Paths are relative to the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from fcjax.core.checks import check_choice, check_number
from fcjax.core.errors import SettingsError
from fcjax.correction.baselines import METHODS
from fcjax.correction.guards import Guards
from fcjax.correction.refine import Refiner
from fcjax.critic.critic import Critic
from fcjax.critic.relation_stream import RelationConfig
from fcjax.evaluation.assessors import ASSESSORS
from fcjax.evaluation.config_section import ConfigSection
from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.files.streams import Source
from fcjax.scoring.settings import Settings
from fcjax.stages.pipeline import Pipeline
from fcjax.stages.query import QueryBuilder
from fcjax.stages.relate import RelationModel
from fcjax.stages.retrieve import EvidenceSearch
from fcjax.stages.revise import Reviser
from fcjax.stages.summarise import Summariser

RETRIEVERS: Final = ("given", "local", "serper", "wikipedia")
_METHOD_KEYS: Final = {
    "factcorrector": ("theta", "rounds", "pool", "guards", "refiner"),
    "llm1": (),
    "llm2": ("k",),
    "rac": ("unmentioned", "max_tokens"),
    "critic": ("rounds", "queries", "max_tokens"),
    "sft": ("system", "max_tokens"),
}
"""What each method may be told in a plan: arguments of its class."""


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A file of cases, and where evidence for them is looked for."""

    name: str
    path: Path
    retriever: str
    corpus: Path | None = None
    limit: int | None = None
    sample: int | None = None


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Who is asked, and how. One that does not `corrects` is in the grid only where it is named."""

    name: str
    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    price: tuple[float, float] | None = None  # US dollars for a million tokens of prompts and of answers
    concurrency: int = 64
    timeout: float | None = None
    litellm: bool = False
    corrects: bool = True


@dataclass(frozen=True, kw_only=True)
class CorrectorConfig:
    """A method of correction with its arguments. `model` rewrites in the place of the grid's."""

    name: str
    method: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None


@dataclass(frozen=True, kw_only=True)
class CriticPlan:
    """The critic that evaluates, and that correctors work with; `model` asks for all, else each model for its own."""

    model: str | None = None
    settings: Settings = field(default_factory=Settings)
    relating: RelationConfig = field(default_factory=RelationConfig)
    contexts: int = 3
    revise: bool = True
    queries: str | None = None
    summarise: bool = False

    def pipeline(self, data: DataSet) -> Pipeline:
        """The stages before the relations; a model words the queries on the web, unless the plan says otherwise."""
        queries = self.queries or ("model" if data.retriever in ("serper", "wikipedia") else "atom")
        return Pipeline(
            revise=Reviser() if self.revise else None,
            query=QueryBuilder() if queries == "model" else None,
            retrieve=EvidenceSearch(k=self.contexts),
            summarise=Summariser() if self.summarise else None,
        )


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What is measured besides SPEC 5's measures.

    `texts`: ROUGE-L and BLEU against a case's `reference`. `judge` is the model that says whether a response says the
    same as the reference, in both orders with `swapped`. `facts` is the most facts of the evidence of a case, out of
    its first `contexts`, that comprehensiveness is measured by; 0 for none. `assessors` are others' verdicts.
    """

    texts: bool = True
    judge: str | None = None
    swapped: bool = False
    facts: int = 0
    contexts: int = 5
    assessors: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One place of the grid, by names. `critic` evaluates, `model` rewrites."""

    data: str
    critic: str
    model: str
    corrector: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A grid. Make it with `read_plan`."""

    path: Path
    data: Mapping[str, DataSet]
    models: Mapping[str, ModelConfig]
    correctors: Mapping[str, CorrectorConfig]
    critic: CriticPlan = field(default_factory=CriticPlan)
    scores: Scores = field(default_factory=Scores)
    seed: int = 0
    store: Path | None = None

    def cells(self) -> list[Cell]:
        """All places of the grid, data set by data set; a corrector with a model of its own has one in each."""
        cells = []
        for data in self.data:
            for corrector in self.correctors.values():
                own = (
                    [corrector.model] if corrector.model else [one.name for one in self.models.values() if one.corrects]
                )
                for model in own:
                    critic = self.critic.model or model
                    cells.append(Cell(data=data, critic=critic, model=model, corrector=corrector.name))
        return cells

    def to_dict(self) -> dict[str, Any]:
        """What the tables want of a plan, as JSON."""
        scores = {**asdict(self.scores), "assessors": list(self.scores.assessors)}
        return {"plan": str(self.path), "cells": [asdict(cell) for cell in self.cells()], "scores": scores}


def read_plan(path: Source) -> Plan:
    """The plan of a YAML file. Raises `SettingsError` for the first fault."""
    import yaml

    name = os.fspath(path)
    try:
        value = _loaded(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{name}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{name}: is no text in UTF-8 ({error.reason})") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{name}: is no YAML ({' '.join(str(error).split())})") from error
    return _plan(ConfigSection(name, "", value), Path(path))


def _loaded(text: str) -> Any:
    """What a YAML text holds; a key that stands twice in a mapping is a fault, of which YAML would keep the last."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[Any] = set()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        raise yaml.constructor.ConstructorError(None, None, f"{key.value} stands twice", key.start_mark)
                    seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    return yaml.load(text, Loader)


def _plan(part: ConfigSection, path: Path) -> Plan:
    part.only("seed", "store", "data", "models", "correctors", "critic", "scores")
    home = path.resolve().parent
    data = _named(part, "data", lambda one: _data(one, home))
    models = _named(part, "models", _model)
    correctors = _named(part, "correctors", lambda one: _corrector(one, models))
    critic = _critic(part.part("critic"), models)
    scores = _scores(part.part("scores"), models)
    if not any(one.corrects for one in models.values()) and not all(one.model for one in correctors.values()):
        part.fail("models", "none that corrects", "one at least, without `corrects: false`")
    store = part.text("store")
    seed = part.number("seed", 0, -(2**63), 2**63 - 1, whole=True)
    kept = None if store is None else home / store
    return Plan(
        path=path, data=data, models=models, correctors=correctors, critic=critic, scores=scores, seed=seed, store=kept
    )


def _data(part: ConfigSection, home: Path) -> DataSet:
    part.only("name", "path", "retriever", "corpus", "limit", "sample")
    file = part.text("path", needed=True)
    path, corpus = home / file, part.text("corpus")
    if not path.is_file():
        part.fail("path", repr(file), f"a file of cases; there is none at {path}")
    retriever = part.choice("retriever", RETRIEVERS) or ("local" if corpus else "given")
    if (retriever == "local") != (corpus is not None):
        part.fail("corpus", repr(corpus), "a path with the retriever local, and nothing with any other")
    if corpus is not None and not (home / corpus).exists():
        part.fail("corpus", repr(corpus), f"a folder or file of documents; there is none at {home / corpus}")
    return DataSet(
        name=part.name(path.name.partition(".")[0]),
        path=path,
        retriever=retriever,
        corpus=None if corpus is None else home / corpus,
        limit=part.number("limit", None, 1, whole=True),
        sample=part.number("sample", None, 1, 2**31 - 1, whole=True),
    )


def _model(part: ConfigSection) -> ModelConfig:
    part.only(*(one.name for one in fields(ModelConfig)))
    model, price = part.text("model", needed=True), part.values("price")
    if price is not None and len(price) != 2:
        part.fail("price", repr(price), "two numbers, dollars for a million tokens of prompts and of answers")
    for i, number in enumerate(price or ()):
        check_number(f"{part.place('price')}[{i}]", number, 0, 1e6)
    options = part.part("options").value
    for key in options:
        if re.sub(r"\W|_", "", str(key)).lower() in ("apikey", "key", "token", "authorization"):
            part.fail(f"options.{key}", "a key", "the variable that holds it, in api_key_env")
    variable = part.text("api_key_env")
    if variable is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):  # and not said: it may be a key
        part.fail("api_key_env", "no name of a variable", "the name of the variable that holds the key")
    return ModelConfig(
        name=part.name(model),
        model=model,
        base_url=part.text("base_url"),
        api_key_env=variable,
        options=options,
        price=None if price is None else (float(price[0]), float(price[1])),
        concurrency=part.number("concurrency", 64, 1, 4096, whole=True),
        timeout=part.number("timeout", None, 0.001, 1e6),
        litellm=part.flag("litellm", False),
        corrects=part.flag("corrects", True),
    )


def _corrector(part: ConfigSection, models: Mapping[str, ModelConfig]) -> CorrectorConfig:
    method = part.choice("method", METHODS) or part.choice("name", METHODS)
    if method is None:
        part.fail("method", "missing", ", ".join(METHODS))
    part.only("name", "method", "model", *_METHOD_KEYS[method])
    arguments = {key: part.value[key] for key in _METHOD_KEYS[method] if part.value.get(key) is not None}
    for key in {"pool", "unmentioned"} & arguments.keys():
        part.flag(key, False)
    part.text("system")
    for key, kind in (("guards", Guards), ("refiner", Refiner)):
        if key in arguments:
            inner = part.part(key)
            inner.only(*(one.name for one in fields(kind) if one.name != "template"))
            arguments[key] = inner.made(kind)
    nobody = Critic(Client(Endpoint("http://localhost/v1", "nobody")))
    part.made(lambda: METHODS[method](nobody, **arguments))
    return CorrectorConfig(
        name=part.name(method), method=method, arguments=arguments, model=part.choice("model", models)
    )


def _critic(part: ConfigSection, models: Mapping[str, ModelConfig]) -> CriticPlan:
    numbers = ("preset", "encoding", "context_prior", "atom_prior", "k", "effort")
    asking = ("style", "pack", "votes", "default")
    part.only("model", "version", "contexts", "revise", "queries", "summarise", "screen", *numbers, *asking)
    version: Any = part.choice("version", ("FR1", "FR2", "FR3")) or "FR2"
    given = {name: part.value[name] for name in numbers if part.value.get(name) is not None}
    how = {name: part.value[name] for name in asking if part.value.get(name) is not None}
    model = part.made(lambda: RelationModel(**how))
    return CriticPlan(
        model=part.choice("model", models),
        settings=part.made(lambda: Settings(version=version, **given)),
        relating=part.made(lambda: RelationConfig(version=version, model=model, screen=part.value.get("screen"))),
        contexts=part.number("contexts", 3, 1, 1000, whole=True),
        revise=part.flag("revise", True),
        queries=part.choice("queries", ("atom", "model")),
        summarise=part.flag("summarise", False),
    )


def _scores(part: ConfigSection, models: Mapping[str, ModelConfig]) -> Scores:
    part.only(*(one.name for one in fields(Scores)))
    assessors = tuple(part.values("assessors") or ())
    for i, name in enumerate(assessors):
        check_choice(f"{part.place('assessors')}[{i}]", name, ASSESSORS)
    return Scores(
        texts=part.flag("texts", True),
        judge=part.choice("judge", models),
        swapped=part.flag("swapped", False),
        facts=part.number("facts", 0, 0, 1000, whole=True),
        contexts=part.number("contexts", 5, 1, 1000, whole=True),
        assessors=assessors,
    )


def _named(part: ConfigSection, key: str, read: Any) -> dict[str, Any]:
    """The items of a list by their names. A text is short for an item with that name."""
    items = part.values(key)
    if not items:
        part.fail(key, "missing or empty", "a list of one item at least")
    found: dict[str, Any] = {}
    for i, item in enumerate(items):
        short = {"models": "model", "data": "path"}.get(key, "name")
        inner = ConfigSection(part.file, f"{part.at}{key}[{i}]", {short: item} if isinstance(item, str) else item)
        one = read(inner)
        if one.name in found:
            inner.fail("name", repr(one.name), "a name that no other item of the list has")
        found[one.name] = one
    return found
