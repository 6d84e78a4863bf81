"""Configuration files: YAML that pydantic models check, with errors that name the file and the place in it.

Every message has the file, the path of the key, the value that was found and what is allowed there. What is allowed
comes from the JSON schema of the models, so that a model states each rule once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fcjax.core.errors import SettingsError
from fcjax.io.files.small import MOST_KEYS, check_values, read_small
from fcjax.io.files.streams import Source

Model = TypeVar("Model", bound="Section")

Text = Annotated[str, Field(pattern=r"\S", description="a string")]
Name = Annotated[str, Field(pattern=r"^[\w+-][\w.+-]{0,63}$", description="up to 64 letters, digits and . _ + -")]
Checked = Any
"""A value that the class which takes it checks."""

SECRETS: Final = ("api_key", "key", "token")
"""Keys that would hold a secret, which belongs into an environment variable."""

_TYPES: Final = {
    "string": "a string",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "array": "a list",
    "object": "keys with values",
}


class Section(BaseModel):
    """A mapping of a configuration file. A key without a value has its default, unless `keeps_null` is set."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    keeps_null: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return cls.completed({key: one for key, one in value.items() if one is not None or cls.keeps_null})

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The values with defaults that depend on other values. Raises `ConfigError`."""
        return values


class NamedSection(Section):
    """An item of a list, with the name that tables and folders use. By default it is made from the text `named_by`.

    A text in place of the item is short for an item with nothing but that text.
    """

    named_by: ClassVar[str]

    name: Name

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {cls.named_by: value} if isinstance(value, str) else value

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        source = values.get(cls.named_by)
        default = cls.name_of(source) if isinstance(source, str) else "unnamed"
        return {"name": default, **values}

    @classmethod
    def name_of(cls, source: str) -> str:
        """The default name of an item whose `named_by` is this text."""
        return re.sub(r"[^\w.+-]+", "-", source).strip("-.")


class ConfigError(ValueError):
    """A fault that a model finds: the key `at`, relative to the model, the value `seen` there and what is `allowed`."""

    def __init__(self, at: str, seen: str, allowed: str):
        super().__init__(at, seen, allowed)
        self.at, self.text = at, f"is {seen}; allowed: {allowed}"


class ArgumentError(ValueError):
    """The `SettingsError` of an object that was made from the keys below `at`."""

    def __init__(self, at: str, error: SettingsError):
        super().__init__(at, error)
        self.at, self.text = at, str(error)


def read_config(path: Source, kind: type[Model]) -> Model:
    """The contents of a YAML file as the model `kind`, whose validators get the file's folder as their context.

    Raises `SettingsError` for the first fault.
    """
    import yaml

    name = os.fspath(path)
    try:
        value = _loaded(read_small(path))
    except OSError as error:
        raise SettingsError(f"{name}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{name}: is not UTF-8 text ({error.reason})") from error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:  # of numbers and dates, too
        raise SettingsError(f"{name}: is not valid YAML ({' '.join(str(error).split())})") from error
    try:
        return kind.model_validate(value, context=Path(path).resolve().parent)
    except ValidationError as error:
        faults: list[Mapping[str, Any]] = [*error.errors(include_url=False)]
        first = next((one for one in faults if one["type"] == "extra_forbidden"), faults[0])
        raise SettingsError(f"{name}: {_message(first, kind.model_json_schema())}") from None  # it may quote a secret


def _loaded(text: str) -> Any:
    """The value of a YAML text. A key that occurs twice in a mapping is a fault; YAML alone would keep the last."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        depth = nodes = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.depth > MOST_KEYS:
                mark = self.peek_event().start_mark
                raise yaml.composer.ComposerError(None, None, f"nested more than {MOST_KEYS} levels deep", mark)
            self.nodes += 1
            if self.nodes > _MOST_WRITTEN:  # reading them takes 60 us each
                mark = self.peek_event().start_mark
                raise yaml.composer.ComposerError(None, None, f"it has more than {_MOST_WRITTEN:,} values", mark)
            self.depth += 1
            try:
                return super().compose_node(parent, index)
            finally:
                self.depth -= 1

        def get_single_node(self) -> Any:
            node = super().get_single_node()
            if _size(node, {}) > _MOST_NODES:
                fault = f"with its aliases written out, it has more than {_MOST_NODES:,} values"
                raise yaml.composer.ComposerError(None, None, fault, node.start_mark)
            return node

        def construct_scalar(self, node: Any) -> Any:
            if node.tag in _NUMBERS and len(node.value) > _DIGITS:
                fault = f"a number of more than {_DIGITS} characters"
                raise yaml.constructor.ConstructorError(None, None, fault, node.start_mark)
            return super().construct_scalar(node)

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep=deep)
            except (AttributeError, LookupError, TypeError) as error:  # of a tag on another value
                fault = f"the value does not fit its tag {node.tag}"
                raise yaml.constructor.ConstructorError(None, None, fault, node.start_mark) from error

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[Any] = set()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        raise yaml.constructor.ConstructorError(None, None, f"{key.value} occurs twice", key.start_mark)
                    seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    value = yaml.load(text, Loader)
    check_values(value)
    return value


def _size(node: Any, known: dict[int, int]) -> int:
    """The number of values of a YAML node with its aliases written out: a few of them can make a value of any size.

    Raises `ValueError` for an alias inside of what it stands for.
    """
    if not isinstance(getattr(node, "value", None), list):
        return 1
    if id(node) not in known:
        known[id(node)] = -1
        parts = (part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,)))
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    if known[id(node)] < 0:
        raise ValueError("an alias is part of what it stands for")
    return known[id(node)]


_MOST_NODES: Final = 300_000  # with aliases written out
_MOST_WRITTEN: Final = 20_000
_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_DIGITS: Final = 100  # characters of a number


def _message(error: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """A fault that pydantic found, with its place in the file."""
    place, node, parent = _located(error["loc"], schema)
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return f"{_joined(place, cause.at)} {cause.text}"
    if isinstance(cause, ArgumentError):
        return f"{_joined(place, cause.at)}.{cause.text}"
    what = place or "the file"
    if error["type"] == "extra_forbidden":
        key, known = str(error["loc"][-1]), list(parent.get("properties", ()))
        if key in SECRETS:
            return f"{what} is an API key; give the name of the variable that holds it in api_key_env"
        close = get_close_matches(key, known, 1)
        meant = f"; did you mean {close[0]}?" if close else ""
        return f"{what} is unknown; allowed: {', '.join(known)}{meant}"
    value = error["input"]
    if error["loc"][-1:] == ("[key]",) or error["type"] == "invalid_key":
        return f"{place.removesuffix('.[key]')} is a key of type {type(value).__name__}; allowed: string keys"
    seen = "empty" if value is None else "a mapping" if isinstance(value, dict) else f"{value!r:.60}"
    if error["type"] == "missing" or value == []:
        seen = "missing or empty" if node.get("minItems") == 1 else "missing" if value != [] else "[]"
    return f"{what} is {seen}; allowed: {_allowed(node) or error['msg']}"


def _joined(place: str, key: str) -> str:
    return f"{place}.{key}" if place and key else place or key


def _located(loc: tuple[int | str, ...], schema: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], Mapping[str, Any]]:
    """The place of an error as people write it, and the schemas of the value there and of the mapping around it."""
    place, parent, node = "", schema, _resolved(schema, schema)
    for part in loc:
        choices = node.get("discriminator", {}).get("mapping", {})
        if part in choices:  # a tag that pydantic inserts, which is not in the file
            node = _resolved({"$ref": choices[part]}, schema)
            continue
        parent = node
        if isinstance(part, int) and node.get("type") == "array":
            place, node = f"{place}[{part}]", node.get("items", {})
        else:
            place, node = _joined(place, str(part)), node.get("properties", {}).get(part, {})
        node = _resolved(node, schema)
    return place, node, parent


def _resolved(node: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema with its reference followed, and without the alternative of null."""
    while True:
        if "$ref" in node:
            target = schema["$defs"][node["$ref"].rpartition("/")[2]]
        elif "anyOf" in node:
            target = next(one for one in node["anyOf"] if one.get("type") != "null")
        else:
            return node
        node = {**target, **{key: value for key, value in node.items() if key not in ("$ref", "anyOf")}}


def _allowed(node: Mapping[str, Any]) -> str:
    """What a schema allows, in words; empty where it allows anything."""
    kind = node.get("type", "")
    if "description" in node and kind != "object":
        return str(node["description"])
    if "oneOf" in node:
        return _TYPES["object"]
    if "enum" in node or "const" in node:
        return ", ".join(map(repr, node.get("enum", [node.get("const")])))
    low, high = node.get("minimum"), node.get("maximum")
    bounds = "" if low is None else f" from {_number(low)}" + ("" if high is None else f" to {_number(high)}")
    return _TYPES.get(kind, "") + bounds


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"
