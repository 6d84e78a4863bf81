"""The file formats of SPEC 7, read and written as streams."""

from fcjax.io.files.cases import CaseRow, case_to_dict, parse_case, read_cases, write_cases
from fcjax.io.files.convert import Conversion, Target, convert
from fcjax.io.files.factreasoner import (
    GraphRow,
    case_to_graph,
    case_to_problem,
    graph_to_case,
    parse_graph,
    read_graphs,
    write_graphs,
    write_problems,
)
from fcjax.io.files.formats import Format, detect
from fcjax.io.files.results import Finished, ResultsWriter, encode_result, read_finished, read_results
from fcjax.io.files.uai import read_evidence, read_uai, write_evidence, write_uai
from fcjax.io.files.validate import Notice, validate

__all__ = [
    "CaseRow",
    "Conversion",
    "Finished",
    "Format",
    "GraphRow",
    "Notice",
    "ResultsWriter",
    "Target",
    "case_to_dict",
    "case_to_graph",
    "case_to_problem",
    "convert",
    "detect",
    "encode_result",
    "graph_to_case",
    "parse_case",
    "parse_graph",
    "read_cases",
    "read_evidence",
    "read_finished",
    "read_graphs",
    "read_results",
    "read_uai",
    "validate",
    "write_cases",
    "write_evidence",
    "write_graphs",
    "write_problems",
    "write_uai",
]
