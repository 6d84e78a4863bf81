"""Thirty pairs whose labels nobody would dispute, ten of each, to examine a relation model with.

They were written for this purpose: nothing in them is true of the world, so that a model has to read them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from fcjax.core.records import DISTRIBUTED, RelationType


class ProbePair(NamedTuple):
    """A premise, a hypothesis, and what the premise says of it."""

    premise: str
    hypothesis: str
    label: RelationType


_TEXTS: Final = (
    (
        "The Vantorre tunnel was dug between 1958 and 1963. It is 4.2 kilometres long and carries two railway tracks.",
        "The Vantorre tunnel was finished in 1963.",
        "The Vantorre tunnel carries four railway tracks.",
        "The Vantorre tunnel cost more than was planned.",
    ),
    (
        "Ilse Marchetti, a botanist from Turin, described the plant in 1884 and named it after her teacher.",
        "The plant was described by a botanist.",
        "Ilse Marchetti described the plant in 1921.",
        "The plant grows to a height of two metres.",
    ),
    (
        "With 312 votes for and 87 against, the assembly of Oredale adopted the new harbour law on Tuesday.",
        "The harbour law was adopted.",
        "The assembly of Oredale rejected the harbour law.",
        "The mayor of Oredale signed the harbour law in public.",
    ),
    (
        "The band Copper Lanterns released its third album, Low Tide, in 2009. None of its songs entered the charts.",
        "Low Tide is the third album of Copper Lanterns.",
        "A song of Low Tide reached number one in the charts.",
        "Low Tide was recorded in a church.",
    ),
    (
        "Lake Sirna lies 640 metres above sea level and freezes every winter, usually from December until March.",
        "Lake Sirna is frozen in January in most years.",
        "Lake Sirna never freezes.",
        "Lake Sirna is known for its trout.",
    ),
    (
        "Dr Okafor's trial had 420 patients. The new drug lowered blood pressure in most of them and had no serious "
        "side effects.",
        "More than 400 patients took part in the trial.",
        "The new drug had serious side effects.",
        "The trial was paid for by a foundation.",
    ),
    (
        "Born in Lisbon in 1930, the architect moved to Montreal as a child and stayed there until his death in 2011.",
        "The architect was born in Portugal.",
        "The architect died in 1995.",
        "The architect had two sisters.",
    ),
    (
        "Halden United lost the final 2-1 after leading at half-time; their only goal came from a penalty.",
        "Halden United scored one goal in the final.",
        "Halden United won the final.",
        "More than 30,000 people watched the final in the stadium.",
    ),
    (
        "The company sold 1.4 million bicycles last year, a fifth more than the year before, and opened a new plant.",
        "The company sold more bicycles last year than the year before.",
        "The company's sales of bicycles fell last year.",
        "The company was founded by two brothers.",
    ),
    (
        "The novel is set in a lighthouse off the coast of Chile, where a keeper and his daughter wait for a ship.",
        "The novel takes place in a lighthouse.",
        "The novel is set in a city in the desert.",
        "The novel was made into a film.",
    ),
)  # fmt: skip

PROBE_PAIRS: Final = tuple(
    ProbePair(premise, hypothesis, label)
    for premise, *hypotheses in _TEXTS
    for label, hypothesis in zip(DISTRIBUTED, hypotheses, strict=True)
)
