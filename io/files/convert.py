"""Conversion between formats: cases, FactReasoner's problems, and fact graphs, in any container.

UAI models come from graphs, which `fcjax.graph.fact_graph` builds:
`write_uai(path, FactGraph.from_case(case).to_model())`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from fcjax.core.errors import Fault, InputError, SettingsError
from fcjax.core.records import Case
from fcjax.io.files.cases import CaseRow, read_cases, write_cases
from fcjax.io.files.factreasoner import (
    ATOM_PRIOR,
    case_to_graph,
    graph_to_case,
    read_graphs,
    write_graphs,
    write_problems,
)
from fcjax.io.files.formats import Format, detect
from fcjax.io.files.objects import Row
from fcjax.io.files.streams import Source, display_name, refuse_input

Target = Literal["cases", "problem", "graph"]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Conversion:
    """The result of a conversion: rows written, and the faults of rows that were left out."""

    written: int
    faults: tuple[Fault, ...]


def convert(
    source: Source,
    target: Source,
    to: Target = "cases",
    *,
    format: Format | None = None,
    context_prior: float = 0.99,
    atom_prior: float = ATOM_PRIOR,
) -> Conversion:
    """Write the content of `source` to `target` in the format `to`, as a stream; the target's name sets the container.

    `format` is the source's, detected where it is not given. The priors go into graphs that are made of cases; a graph
    whose atoms have another prior than `atom_prior` cannot be a case. A row with faults is left out and its faults are
    returned. Raises `InputError` where nothing can be read, `SettingsError` for a pair of formats that has no way
    between, and `OutputError`.
    """
    format = format or detect(source)
    if format not in get_args(Target) or to not in get_args(Target):
        allowed = ", ".join(get_args(Target))
        raise SettingsError(
            f"{display_name(source)}: cannot convert {format} to {to}; allowed as source and target: {allowed}"
        )
    refuse_input(target, source)
    faults: list[Fault] = []
    if to == "graph" and format == "graph":
        written = write_graphs(target, _values(read_graphs(source), faults))
    elif to == "graph":
        cases = _values(read_cases(source), faults)
        graphs = (case_to_graph(case, context_prior=context_prior, atom_prior=atom_prior) for case in cases)
        written = write_graphs(target, graphs)
    else:
        rows = _cases_of_graphs(source, atom_prior) if format == "graph" else read_cases(source)
        write = write_problems if to == "problem" else write_cases
        written = write(target, _values(rows, faults))
    return Conversion(written, tuple(faults))


def _values(rows: Iterable[Row[Value]], faults: list[Fault]) -> Iterator[Value]:
    """The good rows' values; the others' faults gather in `faults`."""
    for row in rows:
        faults += row.faults
        if row.value is not None:
            yield row.value


def _cases_of_graphs(source: Source, atom_prior: float) -> Iterator[Row[Case]]:
    name = display_name(source)
    for row in read_graphs(source):
        case, faults = None, row.faults
        if row.value is not None:
            try:
                case = graph_to_case(row.value, row.number, atom_prior=atom_prior)
            except InputError as error:
                faults = tuple(Fault(fault.message, name, row.line, row.id, fault.field) for fault in error.faults)
        yield CaseRow(row.number, row.id, case, faults, row.line)
