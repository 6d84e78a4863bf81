"""Domains of the web: which may serve as evidence, and with what prior. Nothing here uses the network."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from yarl import URL

from fcjax.core.checks import is_number
from fcjax.core.errors import SettingsError
from fcjax.io.files.objects import is_deeper
from fcjax.io.files.small import MOST_KEYS, read_small, read_toml
from fcjax.io.files.streams import WHOLE_LIMIT

_ALLOWED: Final = "a domain such as example.org, which includes its subdomains"


class Domains:
    """Lists of domains, and a table of priors (SPEC 1: the prior of a context).

    A domain stands for itself and all below it: `example.org` for `www.example.org`, and not for `badexample.org`.
    International names may be written in their own letters or in Punycode. A link is admitted where no domain of `deny`
    and, if there is an `allow`, one of its domains stands for it; so a link without a host is admitted only where
    nothing is demanded. Of the domains in `priors` that stand for a link, the longest wins.

    Raises `SettingsError`.
    """

    def __init__(
        self,
        *,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
        priors: Mapping[str, float] | None = None,
    ):
        self.allow = None if allow is None else frozenset(domain(name, "allow") for name in _listed(allow, "allow"))
        self.deny = frozenset(domain(name, "deny") for name in _listed(deny, "deny"))
        self.priors: Mapping[str, float] = MappingProxyType(_priors(priors or {}, "priors"))

    @property
    def restricted(self) -> bool:
        """Whether any link may be rejected."""
        return self.allow is not None or bool(self.deny)

    @property
    def name(self) -> str:
        """The name of the two lists in cache keys; the priors do not affect searches."""
        lists = [None if self.allow is None else sorted(self.allow), sorted(self.deny)]
        return f"domains:{hashlib.sha256(json.dumps(lists).encode()).hexdigest()[:12]}"

    def admits(self, link: str | None) -> bool:
        """Whether the page behind a link may be used as evidence."""
        names = _above(host(link))
        if any(name in self.deny for name in names):
            return False
        return self.allow is None or any(name in self.allow for name in names)

    def prior(self, link: str | None) -> float | None:
        """The prior of the page behind a link; None if the table has none for it."""
        return next((self.priors[name] for name in _above(host(link)) if name in self.priors), None)


def host(link: str | None) -> str | None:
    """The host of a link, in lower case and Punycode; None if it has none."""
    if not link:
        return None
    link = link.strip()
    try:
        found = URL(link if "://" in link else f"//{link.removeprefix('//')}").raw_host
    except (ValueError, TypeError):
        return None
    found = (found or "").lower().rstrip(".")
    return found if "." in found or ":" in found or "://" in link else None  # a bare word is a title, not a host


def domain(given: Any, place: str) -> str:
    """A domain in its compared form: lower case, Punycode, no dots or star at its ends. Raises `SettingsError`."""
    text = given.strip().removeprefix("*.").strip(".") if isinstance(given, str) else ""
    try:
        name = URL.build(scheme="http", host=text).raw_host if text else None
    except (ValueError, TypeError):
        name = None
    if not name or not all(label and set(label.lower()) <= _SIGNS for label in name.split(".")) or len(name) > 253:
        raise SettingsError(f"{place} has {given!r:.80}; allowed: {_ALLOWED}")
    return name.lower()


def read_priors(path: str | os.PathLike[str]) -> dict[str, float]:
    """A table of priors from a file: TOML (`"example.org" = 0.9`, at its top or under `[priors]`), JSON, or CSV.

    CSV has the columns `domain` and `prior`, with or without a line that says so. Raises `SettingsError`.
    """
    place = Path(path)
    suffix = place.suffix.lower()
    if suffix not in _READERS:
        raise SettingsError(
            f"{path}: priors are read from .toml, .json and .csv files; rename it to end in one of these"
        )
    try:
        table = _READERS[suffix](read_small(path, WHOLE_LIMIT >> 2, "utf-8-sig"))
        if is_deeper(table, MOST_KEYS):
            raise ValueError("it is nested too deep")
    except OSError as error:
        raise SettingsError(f"{path}: the priors cannot be read ({error.strerror})") from error
    except (ValueError, csv.Error, RecursionError) as error:  # of JSON, TOML and UTF-8 alike
        raise SettingsError(f"{path}: not a valid table of priors ({error})") from error
    if isinstance(table, Mapping) and isinstance(table.get("priors"), Mapping):
        table = table["priors"]
    return _priors(table, os.fspath(path))


def _priors(table: Any, place: str) -> dict[str, float]:
    if not isinstance(table, Mapping):
        raise SettingsError(f"{place} is a {type(table).__name__}; allowed: a table from domain to prior")
    found: dict[str, float] = {}
    for given, value in table.items():
        if not is_number(value, 0, 1):
            raise SettingsError(f"{place}: the prior of {given!r:.80} is {value!r:.60}; allowed: a number from 0 to 1")
        name = domain(given, place)
        if found.setdefault(name, float(value)) != value:
            raise SettingsError(f"{place}: {name} has two priors, {found[name]} and {value}; allowed: one")
    return found


def _csv(text: str) -> dict[str, Any]:
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if any(map(str.strip, row))]
    if rows and [cell.lower() for cell in rows[0]] == ["domain", "prior"]:
        del rows[0]
    pairs: list[tuple[str, Any]] = []
    for row in rows:
        if row[0].startswith("#"):
            continue
        if len(row) != 2:
            raise ValueError(f"the line {','.join(row)!r:.80} has {len(row)} columns; allowed: domain and prior")
        value: Any = row[1]
        with contextlib.suppress(ValueError):  # `_priors` reports what is wrong with it
            value = float(value)
        pairs.append((row[0], value))
    return _unique(pairs)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a domain occurs twice in it")
    return found


def _listed(names: Any, place: str) -> Iterable[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise SettingsError(f"{place} is {names!r:.60}; allowed: a list of domains")
    return names


def _above(name: str | None) -> list[str]:
    """A host and the domains above it, the longest first; an address has none above it."""
    if not name:
        return []
    if ":" in name or name.replace(".", "").isdecimal():
        return [name]
    labels = name.split(".")
    return [".".join(labels[i:]) for i in range(len(labels))]


_SIGNS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    ".toml": read_toml,
    ".json": partial(json.loads, object_pairs_hook=_unique),
    ".csv": _csv,
}
