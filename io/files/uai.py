"""UAI files (SPEC 7): MARKOV models of two-state variables with unary and binary tables, and evidence.

The format has no names for variables; they stand beside the model, in `MODEL.uai.names`, one JSON string a line.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import NoReturn

import orjson

from fcjax.core.errors import Fault, InputError
from fcjax.core.records import MarkovModel
from fcjax.io.files.streams import Source, display_name, opened, read_whole, replacing


class _Tokens:
    """The words of a file, taken one after another, with the place of the last one for messages."""

    def __init__(self, path: Source):
        self.name = display_name(path)
        with opened(path) as stream:
            text = read_whole(stream, self.name)
        try:
            lines = text.decode("ascii").split("\n")
        except UnicodeDecodeError as error:
            line = text.count(b"\n", 0, error.start) + 1
            fault = "the line contains non-ASCII characters; allowed: numbers and the word MARKOV"
            raise InputError(Fault(fault, self.name, line)) from error
        # a line that begins with the word `c` is a comment
        self._lines = [[] if words[:1] == ["c"] else words for words in map(str.split, lines)]
        self.all = [word for words in self._lines for word in words]
        self._next = 0

    def fail(self, message: str, field: str | None = None) -> NoReturn:
        """Raise `InputError` at the line of the word that was taken last."""
        ends = accumulate(map(len, self._lines))  # how many words there are up to the end of each line
        line = next((number for number, end in enumerate(ends, 1) if end >= self._next), None)
        raise InputError(Fault(message, self.name, line, field=field))

    def take(self, what: str, field: str | None = None) -> str:
        if self._next == len(self.all):
            self.fail(f"the file ends where {what} is expected", field)
        self._next += 1
        return self.all[self._next - 1]

    def count(self, what: str, below: int | None = None, field: str | None = None) -> int:
        """A whole number from 0, less than `below`."""
        word = self.take(what, field)
        if not word.isdigit() or len(word) > 9 or (below is not None and int(word) >= below):
            allowed = "a whole number from 0" if below is None else f"a whole number from 0 to {below - 1}"
            self.fail(f"{what} is {word!r}; allowed: {allowed}", field)
        return int(word)

    def weight(self, what: str, field: str) -> float:
        """A finite number of at least 0."""
        word = self.take(what, field)
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not 0.0 <= value < math.inf:
            self.fail(f"{what} is {word}; allowed: a number of at least 0", field)
        return value

    def end(self) -> None:
        if self._next < len(self.all):
            self._next += 1
            self.fail(f"{self.all[self._next - 1]!r} follows the end of the model; allowed: nothing more")


def read_uai(path: Source, evidence: Source | None = None) -> MarkovModel:
    """The Markov model in a UAI file, with the evidence of another file where one is named.

    Names come from `MODEL.uai.names` where that file is there, else they are `x0`, `x1`, ... Raises `InputError` for
    anything but a MARKOV model of two-state variables with tables over one or two of them; it names the variable or
    factor.
    """
    tokens = _Tokens(path)
    network = tokens.take("the word MARKOV")
    if network == "BAYES":
        tokens.fail("the network is of type BAYES; allowed: MARKOV (write each conditional table as a factor)")
    if network != "MARKOV":
        tokens.fail(f"the file begins with {network!r}; allowed: MARKOV")
    variables = tokens.count("the number of variables")
    for v in range(variables):
        states = tokens.count("the number of states", field=f"variable {v}")
        if states != 2:
            tokens.fail(f"the variable has {states} states; allowed: 2", f"variable {v}")
    scopes = [_scope(tokens, i, variables) for i in range(tokens.count("the number of factors"))]
    tables = [_table(tokens, i, 2 ** len(scope)) for i, scope in enumerate(scopes)]
    tokens.end()
    observed = {} if evidence is None else read_evidence(evidence, variables)
    return MarkovModel(
        names=_read_names(path, variables), factors=tuple(zip(scopes, tables, strict=True)), evidence=observed
    )


def _scope(tokens: _Tokens, i: int, variables: int) -> tuple[int, ...]:
    field = f"factor {i}"
    size = tokens.count("the number of variables in the scope", field=field)
    if size not in (1, 2):
        tokens.fail(f"the factor is over {size} variables; allowed: 1 or 2", field)
    scope = tuple(tokens.count("a variable in the scope", variables, field) for _ in range(size))
    if len(set(scope)) < size:
        tokens.fail(f"the factor is over variable {scope[0]} twice; allowed: two different variables", field)
    return scope


def _table(tokens: _Tokens, i: int, size: int) -> tuple[float, ...]:
    field = f"factor {i}"
    given = tokens.count("the number of table entries", field=field)
    if given != size:
        tokens.fail(f"the table has {given} entries; allowed: {size}, one per combination of states", field)
    return tuple(tokens.weight(f"table entry {k}", field) for k in range(size))


def read_evidence(path: Source, variables: int | None = None) -> dict[int, int]:
    """The observed state, 0 or 1, of each variable that a UAI evidence file names.

    Both styles are read: `n v s v s ...`, and the same after a leading count of samples, which has to be 1. Raises
    `InputError`, also for a variable that the model, of `variables` variables, does not have.
    """
    tokens = _Tokens(path)
    if len(tokens.all) % 2 == 0 and tokens.count("the number of samples") != 1:
        tokens.fail(f"the file has {tokens.all[0]} samples or a word too many; allowed: one sample, `n v s v s ...`")
    observed: dict[int, int] = {}
    for _ in range(tokens.count("the number of observed variables")):
        v = tokens.count("an observed variable", variables)
        state = tokens.count("the observed state", 2, f"variable {v}")
        if v in observed:
            tokens.fail("the variable is observed twice; allowed: once", f"variable {v}")
        observed[v] = state
    tokens.end()
    return observed


def _names_file(path: Source) -> Path:
    return Path(os.fspath(path) + ".names")


def _read_names(path: Source, variables: int) -> tuple[str, ...]:
    beside = _names_file(path)
    if os.fspath(path) == "-" or not beside.exists():
        return tuple(f"x{v}" for v in range(variables))
    names: list[str] = []
    for number, line in enumerate(beside.read_bytes().splitlines(), 1):
        try:
            name = orjson.loads(line)
        except orjson.JSONDecodeError:
            name = None
        if not isinstance(name, str) or not name:
            raise InputError(Fault("the line is not a name; allowed: a JSON string", str(beside), number))
        names.append(name)
    if len(names) != variables or len(set(names)) != variables:
        fault = f"{len(names)} names, {len(set(names))} of them different; allowed: {variables} different names"
        raise InputError(Fault(fault + ", one per variable (or remove the file)", str(beside)))
    return tuple(names)


def write_uai(path: Source, model: MarkovModel, evidence: Source | None = None) -> None:
    """Write a model, its names beside it, and its evidence, where it has any, to `evidence` or `MODEL.uai.evid`.

    Every table reads back to the same numbers. Standard output (`-`) takes the model alone. Raises `OutputError`.
    """
    lines = ["MARKOV", str(len(model.names)), " ".join("2" for _ in model.names), str(len(model.factors))]
    lines += [f"{len(scope)} {' '.join(map(str, scope))}" for scope, _ in model.factors]
    lines += [f"\n{len(table)}\n{' '.join(repr(float(value)) for value in table)}" for _, table in model.factors]
    with replacing(path) as stream:
        stream.write("\n".join([*lines, ""]).encode())
    if os.fspath(path) == "-":
        return
    with replacing(_names_file(path)) as stream:
        stream.writelines(orjson.dumps(name) + b"\n" for name in model.names)
    if model.evidence:
        write_evidence(evidence if evidence is not None else os.fspath(path) + ".evid", model.evidence)


def write_evidence(path: Source, observed: Mapping[int, int]) -> None:
    """Write observed states as one line, `n v s v s ...`. Raises `OutputError`."""
    words = [len(observed), *(word for pair in observed.items() for word in pair)]
    with replacing(path) as stream:
        stream.write((" ".join(map(str, words)) + "\n").encode())
