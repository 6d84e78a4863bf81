"""Public data sets as cases, corrections as training and annotation data: one module per data set.

A builder reads files on disk, row by row. A fault of a row is reported with file, line and field, and the other rows
are read all the same.
"""

from fcjax.io.datasets.conflictbank import CONFLICTS, read_conflictbank
from fcjax.io.datasets.factcheck_gpt import read_factcheck_gpt
from fcjax.io.datasets.factool import read_factool
from fcjax.io.datasets.factscore import read_factscore
from fcjax.io.datasets.reddit import read_askhistorians, read_eli5
from fcjax.io.datasets.rows import Unit
from fcjax.io.datasets.selection import SPLITS, BuildReport, Selection, selected
from fcjax.io.datasets.wikicontradict import read_wikicontradict

__all__ = [
    "CONFLICTS",
    "SPLITS",
    "BuildReport",
    "Selection",
    "Unit",
    "read_askhistorians",
    "read_conflictbank",
    "read_eli5",
    "read_factcheck_gpt",
    "read_factool",
    "read_factscore",
    "read_wikicontradict",
    "selected",
]
