"""Makes the pictures of README: `python -P docs/images/make.py`, or with `speed` or `critique` for one of them.

`speed.svg` is drawn from a file of `benchmarks/results`. `critique.webp` is what a notebook shows of a critique of an
example: the answers are those of `examples/replies.jsonl`, as in `make demo`, and Chromium takes the picture.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "2026-11-30-cpu-cpu.json"

SIZES = {"veli5": "8 atoms", "bio": "15 atoms", "askhist": "22 atoms", "biofr": "31 atoms"}
GRAPHS = {"FR1": "FR1", "FR2 0.1": "FR2", "FR3 0.1 0.03": "FR3"}
OURS, PEER, INK, GRID = "#2563a8", "#c2680f", "#24292f", "#d8dee4"


def speed() -> str:
    """Graphs per second of fcjax and of pyAgrum on the same graphs, as SVG with a logarithmic axis.

    Both rates are of the graphs that the peer can solve, of width 16 at most; a workload with none of them is left out.
    """
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    rates = {row["workload"]: row["peer"] for row in results["speed"] if row["effort"] == "tight" and row.get("peer")}
    rows = []
    for size, atoms in SIZES.items():
        for graph, name in GRAPHS.items():
            if peer := rates.get(f"{size} {graph} release"):
                rows.append((f"{atoms}, {name}", 1000 / peer["our_ms_per_graph"], 1000 / peer["ms_per_graph"]))
    left, right, top, step = 120, 630, 74, 27
    bottom = top + step * len(rows)

    def x(rate: float) -> float:
        return round(left + (right - left) * (math.log10(rate) - 1) / 4.3, 1)

    def text(at: float, y: float, content: str, **style: str) -> str:
        given = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in style.items())
        return f'<text x="{at}" y="{y}"{given}>{escape(content)}</text>'

    machine = results["machine"]
    peer_version = machine["versions"]["pyAgrum"]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {bottom + 58}" font-size="14" fill="{INK}" '
        'font-family="-apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
        f'<rect width="760" height="{bottom + 58}" rx="8" fill="#ffffff"/>',
        text(left, 28, "Posteriors of fact graphs, graphs per second", font_size="17", font_weight="600"),
    ]
    for name, colour, at in (("fcjax", OURS, left), (f"pyAgrum {peer_version}", PEER, left + 80)):
        lines.append(f'<rect x="{at}" y="42" width="12" height="12" rx="2" fill="{colour}"/>')
        lines.append(text(at + 18, 53, name))
    for power in range(1, 6):
        at = x(10**power)
        lines.append(f'<line x1="{at}" y1="{top - 4}" x2="{at}" y2="{bottom}" stroke="{GRID}"/>')
        lines.append(text(at, bottom + 18, f"{10**power:,}", text_anchor="middle", font_size="12"))
    for number, (name, ours, peer) in enumerate(rows):
        y = top + step * number
        lines.append(text(left - 10, y + 15, name, text_anchor="end"))
        for rate, colour, below, height in ((ours, OURS, 1, 11), (peer, PEER, 13, 7)):
            width = round(x(rate) - left, 1)
            lines.append(f'<rect x="{left}" y="{y + below}" width="{width}" height="{height}" rx="2" fill="{colour}"/>')
        lines.append(text(x(ours) + 8, y + 12, f"{ours / peer:,.0f}×", font_size="12", fill=OURS))
    note = (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['date'][:10]}; graphs up to width 16; logarithmic axis"
    )
    lines += [text(left, bottom + 42, note, font_size="12", fill="#57606a"), "</svg>"]
    return "\n".join(lines) + "\n"


STYLE = """
body { margin: 0; padding: 22px 26px; width: 748px; background: #fff; color: #24292f; font: 15px/1.4 sans-serif }
h1 { font-size: 13px; font-weight: 600; color: #57606a; margin: 0 0 4px } p { margin: 0 0 14px }
table { border-collapse: collapse; width: 100%; margin-bottom: 16px } caption { padding: 0 0 6px; font-weight: 600 }
td, th { padding: 5px 10px 5px 6px; border-bottom: 1px solid #e3e7eb } th { text-align: left; font-size: 13px }
a { color: #2563a8 }
"""


def critique(out: Path, chromium: str) -> None:
    """A picture of the critique of an example, as a notebook shows it."""
    import fcjax
    from fcjax.io.files import read_cases
    from fcjax.io.maintenance import import_rows

    case = next(row.case for row in read_cases(ROOT / "examples" / "responses.jsonl") if row.id == "golden-gate")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        store, page = Path(folder) / "store.sqlite", Path(folder) / "page.html"
        import_rows(store, ROOT / "examples" / "replies.jsonl")
        where = fcjax.Endpoint("http://written-by-hand.invalid/v1", "written-by-hand")
        found = fcjax.critique(case, retrieve=ROOT / "examples" / "corpus.jsonl", where=where, store=store, replay=True)
        response = f"<h1>Response</h1><p>{escape(case.response)}</p><h1>Critique</h1>"
        page.write_text(f"<meta charset=utf-8><style>{STYLE}</style>{response}{found._repr_html_()}", encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--force-device-scale-factor=2"]
        command = [chromium, *options, "--window-size=800,580", f"--screenshot={out}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True)


def main(names: list[str]) -> None:
    if "speed" in names:
        (HERE / "speed.svg").write_text(speed(), encoding="utf-8")
    if "critique" in names:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        if chromium is None:
            sys.exit("neither chromium nor google-chrome was found; install one of them")
        critique(HERE / "critique.webp", chromium)


if __name__ == "__main__":
    main(sys.argv[1:] or ["speed", "critique"])
