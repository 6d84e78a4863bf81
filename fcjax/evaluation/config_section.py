"""A part of a plan that is being read: a mapping, and where it stands, which every fault names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from fcjax.core.checks import check_choice, check_number
from fcjax.core.errors import SettingsError

_NAME: Final = re.compile(r"[\w.+-]{1,64}")


class ConfigSection:
    """A mapping of a plan, and where it stands."""

    def __init__(self, file: str, at: str, value: Any):
        self.file, self.at = file, at
        if not isinstance(value, dict):
            self._raise(at or "the plan", "empty" if value is None else repr(value), "keys with values")
        self.value: dict[str, Any] = value

    def place(self, key: str) -> str:
        return f"{self.file}: {self.at}{'.' if self.at else ''}{key}"

    def fail(self, key: str, seen: str, allowed: str) -> NoReturn:
        raise SettingsError(f"{self.place(key)} is {seen}; allowed: {allowed}")

    def _raise(self, what: str, seen: str, allowed: str) -> NoReturn:
        raise SettingsError(f"{self.file}: {what} is {seen:.80}; allowed: {allowed}")

    def only(self, *allowed: str) -> None:
        """Raise where there is any other key."""
        for key in self.value:
            if key in ("api_key", "key", "token"):
                raise SettingsError(f"{self.place(key)} is a key; name the variable that holds it in api_key_env")
            if key not in allowed:
                raise SettingsError(f"{self.place(str(key))} is unknown; allowed: {', '.join(allowed)}")

    def text(self, key: str, *, needed: bool = False) -> Any:
        value = self.value.get(key)
        if (value is None and needed) or not (value is None or (isinstance(value, str) and value.strip())):
            self.fail(key, "missing" if value is None else repr(value), "a text")
        return value

    def name(self, otherwise: str) -> str:
        """The name that an item is spoken of by, which is a folder's too."""
        given = self.text("name")
        name = re.sub(r"[^\w.+-]+", "-", otherwise).strip("-.") if given is None else given
        if not _NAME.fullmatch(name) or name.startswith("."):
            self.fail("name", repr(name), "up to 64 letters, digits and . _ + -")
        return str(name)

    def number(self, key: str, otherwise: Any, low: float, high: float = float("inf"), *, whole: bool = False) -> Any:
        value = self.value.get(key)
        if value is None:
            return otherwise
        check_number(self.place(key), value, low, high, whole=whole)
        return value

    def flag(self, key: str, otherwise: bool) -> bool:
        value = self.value.get(key, otherwise)
        if not isinstance(value, bool):
            self.fail(key, repr(value), "true or false")
        return bool(value)

    def choice(self, key: str, allowed: Iterable[str]) -> Any:
        value = self.value.get(key)
        check_choice(self.place(key), value, allowed, none=True)
        return value

    def values(self, key: str) -> list[Any] | None:
        value = self.value.get(key)
        if not (value is None or isinstance(value, list)):
            self.fail(key, repr(value), "a list")
        return value

    def part(self, key: str) -> ConfigSection:
        value = self.value.get(key)
        return ConfigSection(self.file, f"{self.at}{'.' if self.at else ''}{key}", {} if value is None else value)

    def made(self, kind: Any) -> Any:
        """What `kind` makes of the values; its own faults name this place."""
        try:
            return kind(**self.value) if isinstance(kind, type) else kind()
        except SettingsError as error:
            raise SettingsError(f"{self.file}: {self.at}.{error}") from error
