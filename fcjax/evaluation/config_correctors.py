"""The correctors of a grid as a configuration file has them: a section per method, with the arguments of its class."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from fcjax.core.errors import SettingsError
from fcjax.correction.baselines import METHODS
from fcjax.correction.guards import Guards
from fcjax.correction.refine import Refiner
from fcjax.critic.critic import Critic
from fcjax.evaluation.config_file import ArgumentError, Checked, ConfigError, NamedSection, Section, Text
from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint


class CorrectorConfig(NamedSection):
    """A method of correction with its arguments. `model` rewrites in place of the grid's models."""

    named_by: ClassVar[str] = "method"

    method: str
    model: Text | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that the file gives for the method's class."""
        own = self.model_fields_set - CorrectorConfig.model_fields.keys()
        return {key: getattr(self, key) for key in type(self).model_fields if key in own}

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        unused = Critic(Client(Endpoint("http://localhost/v1", "unused")))
        try:
            METHODS[self.method](unused, **self.arguments)
        except SettingsError as error:
            raise ArgumentError("", error) from error
        return self


class GuardsConfig(Section):
    """The arguments of `Guards`, of which None switches one off."""

    keeps_null: ClassVar[bool] = True

    supported: Checked = None
    may_lose: Checked = None
    oscillation: Checked = None
    shortest: Checked = None
    longest: Checked = None
    language: Checked = None


class RefinerConfig(Section):
    """The arguments of `Refiner`."""

    max_tokens: Checked = None
    temperature: Checked = None
    excerpt: Checked = None


class FactCorrectorConfig(CorrectorConfig):
    method: Literal["factcorrector"]
    theta: Checked = None
    rounds: Checked = None
    pool: bool = False
    guards: GuardsConfig | None = None
    refiner: RefinerConfig | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        found = super().arguments
        for key, kind in (("guards", Guards), ("refiner", Refiner)):
            if key in found:
                try:
                    found[key] = kind(**{name: getattr(found[key], name) for name in found[key].model_fields_set})
                except SettingsError as error:
                    raise ArgumentError(key, error) from error
        return found


class LLM1Config(CorrectorConfig):
    method: Literal["llm1"]


class LLM2Config(CorrectorConfig):
    method: Literal["llm2"]
    k: Checked = None


class RACConfig(CorrectorConfig):
    method: Literal["rac"]
    unmentioned: bool = True
    max_tokens: Checked = None


class CriticBaselineConfig(CorrectorConfig):
    method: Literal["critic"]
    rounds: Checked = None
    queries: Checked = None
    max_tokens: Checked = None


class SFTConfig(CorrectorConfig):
    method: Literal["sft"]
    system: Text | None = None
    max_tokens: Checked = None


def _with_method(value: Any) -> Any:
    """An item with its method, which is by default its name."""
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, dict):
        return value
    allowed = ", ".join(map(repr, METHODS))
    key = "name" if value.get("method") is None else "method"
    method = value.get(key)
    if method is None:
        raise ConfigError("method", "missing", allowed)
    if not isinstance(method, str) or method not in METHODS:
        raise ConfigError(key, f"{method!r:.60}", allowed)
    return {**value, "method": method}


AnyCorrector = Annotated[
    FactCorrectorConfig | LLM1Config | LLM2Config | RACConfig | CriticBaselineConfig | SFTConfig,
    Field(discriminator="method"),
    BeforeValidator(_with_method),
]
