"""How a model is reached: base URL, model, key, and options sent with every request."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from fcjax.core.errors import SettingsError
from fcjax.io.files.small import read_small, read_toml
from fcjax.io.outcome import scrubbed

OPENAI: Final = "https://api.openai.com/v1"
_COMPLETIONS: Final = "/chat/completions"
_SECRET: Final = re.compile(
    r"api_?key|access_key|private_key|authorization|secret|passw|credential"
    r"|(?:^|access_|api_|auth_|bearer_|session_|ad_)token$"  # and not max_tokens, eos_token
)
"""Names of fields that hold credentials."""
_SECRET_PARAMETER: Final = re.compile(r"key|code|sig|token|secret|passw|pwd|auth|credential|subscription|session|login")
"""The same for parameters of a URL's query, with all names that may be a credential's."""
_ASKED: Final = ("model", "messages", "n", "stream", "logprobs", "top_logprobs")
"""Fields of a request that the client sets itself: as options they would change what is asked, or how it is read."""
_FIELDS: Final = ("base_url", "model", "api_key_env", "options")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible endpoint and the model to use there.

    `url` may end in the host, in `/v1` or another path, or in `/chat/completions`; after a bare host `/v1` is added.
    A query is sent with the requests; a user name and password are sent as such where there is no key. `options`
    are fields of every request's body and so belong to every question; a prompt's own win. The key is in no `repr`.

    Raises `SettingsError` for a URL or key that cannot be used, and for options that hold a secret, as they are stored,
    or a field that is not theirs, such as `model` or `n`.
    """

    url: str = field(repr=False)
    model: str
    key: str | None = field(default=None, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    name: str = field(init=False)
    """The base URL with its query, without secrets and spelling variants: what goes into cache keys and messages."""
    completions: str = field(init=False, repr=False)
    models: str = field(init=False, repr=False)
    headers: Mapping[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        name, query, login = _parts(self.url.strip())
        key = (self.key or "").strip()
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise SettingsError("the API key contains spaces or invalid characters; set OPENAI_API_KEY again")
        if not self.model:
            raise SettingsError("no model given; specify one with --model, or set FCJAX_MODEL")
        for place in _secrets(self.options, "options"):
            seen = f"{place} looks like a secret, and options are stored with every prompt"
            raise SettingsError(f"{seen}; set api_key_env to the name of the variable that holds the key")
        for taken in _ASKED:
            if taken in self.options:
                seen = f"options.{taken} is set, but fcjax sets {taken} in every request itself"
                raise SettingsError(f"{seen}; allowed: any field other than {', '.join(_ASKED)}")
        if key:
            headers = {"Authorization": f"Bearer {key}"}
        elif login:
            headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
        else:
            headers = {}
        places = {
            "name": name + _shown(query),
            "completions": name + _COMPLETIONS + query,
            "models": name + "/models" + query,
        }
        for attribute, value in {**places, "key": key or None, "headers": headers}.items():
            object.__setattr__(self, attribute, value)

    @classmethod
    def from_env(
        cls,
        base_url: str | None = None,
        model: str | None = None,
        config: str | os.PathLike[str] | None = None,
        *,
        env: Mapping[str, str] | None = None,
    ) -> Endpoint:
        """An endpoint from, in this order: the arguments, a TOML file, the environment, OpenAI's own address.

        The environment's variables are OPENAI_BASE_URL, FCJAX_MODEL and OPENAI_API_KEY; the file's fields are
        `base_url`, `model`, `options` and `api_key_env`, the name of the variable that holds the key.
        Raises `SettingsError` where something is missing or unknown.
        """
        env = os.environ if env is None else env
        given = _configured(config) if config is not None else {}
        url = base_url or given.get("base_url") or env.get("OPENAI_BASE_URL")
        variable = given.get("api_key_env", "OPENAI_API_KEY")
        key = env.get(variable)
        if "api_key_env" in given and not key:
            named = (
                variable if variable.isidentifier() else "something that is not a variable name"
            )  # perhaps the key itself
            raise SettingsError(f"{config}: api_key_env names {named}, which is not set")
        if not url and not key:
            raise SettingsError(
                "no endpoint given; specify its base URL with --base-url, or set OPENAI_BASE_URL or OPENAI_API_KEY"
            )
        named = model or given.get("model") or env.get("FCJAX_MODEL") or ""
        return cls(url or OPENAI, named, key, given.get("options", {}))

    def at(self, path: str, query: str = "") -> str:
        """The URL of another place of the API, such as `/files`, with the base URL's own query and this one."""
        base, own, _ = _parts(self.url.strip())
        more = "&".join(part for part in (own.removeprefix("?"), query) if part)
        return base + path + (f"?{more}" if more else "")

    @property
    def secrets(self) -> tuple[str, ...]:
        """The key, the value of the header, a password in the URL, and the values of its query except for a version."""
        split = urlsplit(self.url.strip())
        queried = [(name, raw) for name, _, raw in (part.partition("=") for part in split.query.split("&"))]
        query = [raw for name, raw in queried if "version" not in name and len(raw) >= 6]  # shorter ones are words
        found = [self.key, split.password, *query, *(value.partition(" ")[2] for value in self.headers.values())]
        return tuple({text: None for raw in found if raw for text in (raw, unquote(raw))})

    def scrubbed(self, words: str) -> str:
        """`words` without the secrets, should the server have repeated one."""
        return masked(words, self.secrets)


def masked(words: str, secrets: Iterable[str]) -> str:
    """`words` with `***` for each of the secrets."""
    for secret in secrets:
        words = words.replace(secret, "***")
    return words


def _secrets(given: Any, place: str) -> Iterator[str]:
    """The places of texts whose field has the name of a secret, at any depth."""
    if isinstance(given, Mapping):
        for name, value in given.items():
            inner = f"{place}.{name}"
            if isinstance(value, str) and _SECRET.search(str(name).lower().replace("-", "_")):
                yield inner
            yield from _secrets(value, inner)
    elif isinstance(given, list | tuple):
        for number, value in enumerate(given):
            yield from _secrets(value, f"{place}[{number}]")


def _parts(url: str) -> tuple[str, str, str]:
    """Normalised base URL, query with its question mark, and `user:password`."""
    # A URL that cannot be used is not repeated: it may hold a password.
    fault = SettingsError("the base URL is invalid; allowed: http://HOST:PORT/v1 or https://HOST/v1")
    try:
        split = urlsplit(url)
        host, port = (split.hostname or "").rstrip("."), split.port
    except ValueError:
        raise fault from None
    if split.scheme not in ("http", "https") or not host:
        raise fault
    place = f"[{host}]" if ":" in host else host
    if port is not None and port != {"http": 80, "https": 443}[split.scheme]:
        place += f":{port}"
    path = split.path.rstrip("/").removesuffix(_COMPLETIONS).rstrip("/")
    if not path and not split.path.rstrip("/").endswith(_COMPLETIONS):
        path = "/v1"
    login = f"{unquote(split.username or '')}:{unquote(split.password or '')}"
    query = f"?{split.query}" if split.query else ""
    return urlunsplit((split.scheme, place, path, "", "")), query, "" if login == ":" else login


def _shown(query: str) -> str:
    """The query without secrets, sorted by name, with its question mark: it may choose the deployment."""
    parts = [part for part in query.removeprefix("?").split("&") if part]
    shown = [part for part in parts if not _is_secret(*part.partition("=")[::2])]
    return "?" + "&".join(sorted(shown, key=lambda part: part.partition("=")[0])) if shown else ""


def _is_secret(name: str, value: str) -> bool:
    """Whether a parameter of a query is a credential, by its name or by the form of its value."""
    value = unquote(value)
    return bool(_SECRET_PARAMETER.search(unquote(name).lower())) or scrubbed(value, most=len(value) + 3) != value


def _configured(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        given = read_toml(read_small(path))
    except OSError as error:
        raise SettingsError(f"{os.fspath(path)}: cannot be read ({error.strerror})") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise SettingsError(f"{os.fspath(path)}: is not valid TOML ({error})") from error
    for name, value in given.items():
        if name == "api_key":
            raise SettingsError(
                f"{os.fspath(path)}: contains a key; set api_key_env to the name of the variable that holds it"
            )
        if name not in _FIELDS:
            raise SettingsError(f"{os.fspath(path)}: {name!r} is unknown; allowed: {', '.join(_FIELDS)}")
        if not isinstance(value, dict if name == "options" else str):
            raise SettingsError(f"{os.fspath(path)}: {name} is {value!r}; allowed: a string, or a table for options")
    return given
