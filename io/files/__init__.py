"""The file formats of SPEC 7, read and written as streams."""

from fcjax.io.files.cases import CaseRow, case_to_dict, parse_case, read_cases, write_cases
from fcjax.io.files.results import Finished, ResultsWriter, encode_result, read_finished, read_results

__all__ = [
    "CaseRow",
    "Finished",
    "ResultsWriter",
    "case_to_dict",
    "encode_result",
    "parse_case",
    "read_cases",
    "read_finished",
    "read_results",
    "write_cases",
]
