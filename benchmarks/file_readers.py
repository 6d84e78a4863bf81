"""The readers of files that others made, as functions of bytes, each with valid inputs."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import orjson
from dataset_rows import BIO, CHECKED, CLAIMS, CORRECTED, EXPORT, QUESTION, TABLE, THREAD
from reply_readers import CHAT, Read, Reader, dumped
from store_readers import (
    FOLDER,
    FOUND,
    REPLY,
    batch_folder,
    batch_output,
    exported_row,
    imported,
    index_files,
    index_reader,
    made_store,
    packed,
    store,
)

from fcjax.core.errors import InputError, OutputError, SettingsError
from fcjax.evaluation.config import read_plan
from fcjax.io import datasets
from fcjax.io.datasets.corrections import read_corrections
from fcjax.io.datasets.label_studio import read_annotations
from fcjax.io.endpoint import Endpoint
from fcjax.io.entries import (
    pack_answer,
)
from fcjax.io.files import detect, read_cases, read_evidence, read_finished, read_graphs, read_results, read_uai
from fcjax.io.files.cases import case_to_dict
from fcjax.io.files.journal import Journal
from fcjax.io.files.validate import validate
from fcjax.io.retrievers import corpus, local
from fcjax.io.retrievers.domains import read_priors
from fcjax.io.rows import RowError
from fcjax.stages.atomize import ATOMIZE

ROOT: Final = Path(__file__).resolve().parents[1]
ENV: Final = {"OPENAI_API_KEY": "sk-secret-12345", "FCJAX_MODEL": "m", "KEY": "abcdefgh1"}

CASES: Final = tuple((ROOT / "examples" / "cases.jsonl").read_bytes().splitlines(keepends=True))
RESPONSES: Final = tuple((ROOT / "examples" / "responses.jsonl").read_bytes().splitlines(keepends=True))
GRAPH: Final = dumped(
    {
        "id": "g",
        "nodes": [
            {"id": "a0", "type": "atom", "probability": 0.5},
            {"id": "c0", "type": "context", "probability": 0.9},
        ],
        "edges": [{"source": "c0", "target": "a0", "type": "entailment", "probability": 0.9, "link": "context_atom"}],
    }
)
RESULT: Final = dumped(
    {
        "id": "1",
        "status": "ok",
        "atoms": [{"id": "a0", "p": 0.5, "lower": 0.4, "upper": 0.6, "label": "supported", "status": "ok"}],
        "measures": {"precision": 1.0},
        "diagnostics": {"method": "exact"},
        "fingerprint": "f",
    }
)
UAI: Final = (
    b"MARKOV\n2\n2 2\n3\n1 0\n1 1\n2 0 1\n\n2\n0.5 0.5\n2\n0.1 0.9\n4\n0.9 0.1 0.1 0.9\n",
    b"c a comment\nMARKOV 1 2 1 1 0 2 1e-300 1.5\n",
)
TOML: Final = (
    b'base_url = "http://127.0.0.1:9/v1"\nmodel = "m"\napi_key_env = "KEY"\n\n[options]\ntop_p = 0.5\nseed = 7\n'
    b'stop = ["a", "b"]\nx.y.z = {a = 1979-05-27T07:32:00Z, b = 0x1F, c = inf}\n',
    b'# nothing\nmodel = """m"""\nbase_url = \'http://127.0.0.1:9/v1\'\n[options.response_format]\ntype = "json"\n',
)
PRIORS: Final = {
    "toml": (b'"example.org" = 0.9\n"a.b" = 1\n', b'[priors]\n"example.org" = 0.9\n'),
    "json": (b'{"example.org": 0.9, "a.b": 1}', b'{"priors": {"example.org": 0.9}}'),
    "csv": (b"domain,prior\nexample.org,0.9\n# no\na.b,1\n", b'"example.org",0.5\n'),
}
ROWS: Final = (
    *(ROOT / "examples" / "replies.jsonl").read_bytes().splitlines(keepends=True)[:6],
    dumped(
        {
            "kind": "search",
            "asked": {"retriever": "wikipedia/2:en:4000", "query": "Rome", "k": 3},
            "answer": {"found": [{"title": "Rome", "text": "Old.", "link": "https://a.example/Rome", "note": None}]},
        }
    ),
    dumped(
        {
            "source": "http://127.0.0.1/v1",
            "model": "m",
            "prompt": {"messages": [["user", "?"]], "template": "t/1", "options": {"seed": 1}},
            "answer": {"failed": "timeout", "reason": "x", "attempts": 2},
            "cost": 0.5,
            "created": 1.5,
        }
    ),
)
PLANS: Final = (
    (ROOT / "examples" / "grid.yaml").read_bytes(),
    b"data: [{name: d, path: claims.jsonl}]\nmodels: [m]\ncorrectors: [{method: rac, max_tokens: 500}]\n"
    b"critic: &c {version: FR1}\n"
    b"scores: {judge: m, assessors: [factscore]}\nseed: 5\nstore: s.sqlite\n",
)


def in_file(name: str, read: Callable[[Path], object]) -> Read:
    """A reader of a file as one of bytes."""
    path = FOLDER / name

    def of(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    return of


def drained(rows: Iterable[Any]) -> int:
    return sum(1 for _ in rows)


def cases(path: Path) -> None:
    """Cases; what was read can be written as JSON again."""
    for row in read_cases(path):
        if row.case is not None:
            orjson.dumps(case_to_dict(row.case))
        for fault in row.faults:
            str(fault)


def checked(path: Path) -> None:
    """All formats as `fcjax validate` reads them."""
    for fault in validate(path):
        str(fault)
    detect(path)


def results(path: Path) -> None:
    drained(read_finished(path))
    drained(read_results(path))


def graphs(path: Path) -> None:
    for row in read_graphs(path):
        if row.value is not None:
            orjson.dumps(row.value)


def journal(path: Path) -> None:
    with Journal(path, "f") as found:
        for case in range(4):
            for entry in found.entries(case):
                entry.applied({"id": "1"})


def template(data: bytes) -> None:
    from fcjax.io.files.small import read_small

    path = FOLDER / "template.txt"
    path.write_bytes(data)
    try:
        text = read_small(path)
    except (OSError, UnicodeDecodeError):
        return
    ATOMIZE.reworded(text, "mine").fill(question="q", before="b", text="t", after="a")


BUILDERS: Final = tuple(getattr(datasets, name) for name in dir(datasets) if name.startswith("read_"))


def data_sets(path: Path) -> None:
    """All builders on one file."""
    refused = 0
    for build in BUILDERS:
        try:
            for row in build(path):
                for case in row.value.cases if row.value else ():
                    orjson.dumps(case_to_dict(case))
        except InputError:
            refused += 1
    if refused == len(BUILDERS):
        raise InputError("no data set")


NOTE: Final = dumped(
    {
        "corpus": "/a",
        "name": "0123456789abcdef" * 2,
        "began": 1,
        "files": [["a.txt", 5, [1, 2]]],
        "faults": [{"message": "x", "file": "a", "line": None, "case": None, "field": None}],
        "fault_count": 1,
    }
)


def note(path: Path) -> None:
    """The note beside the indexes: its name is a name of ours, or it is nothing."""
    if said := local._read_note(path):
        assert set(said["name"]) <= set("0123456789abcdef"), said["name"]
        assert len(said["name"]) == 32, said["name"]


def documents(path: Path) -> None:
    """A corpus of one file, cut into passages."""
    faults = corpus.Faults()
    for passage in corpus.passages(corpus.entries(path, faults), 1000, faults):
        orjson.dumps([passage.title, passage.text, passage.link])
    for fault in faults.kept:
        str(fault)


def evidence(path: Path) -> None:
    read_evidence(path, 2)


def readers() -> list[Reader]:
    """All readers of files."""
    bad = (InputError,)
    for name in ("responses.jsonl", "corpus.jsonl", "claims.jsonl"):  # which the plans name
        shutil.copy(ROOT / "examples" / name, FOLDER / name)
    files = index_files()
    arrays = [name.encode() + b"\n" + content for name, content in files]
    rows = [dumped(one) + b"\n" for one in (BIO, CLAIMS, CHECKED, THREAD, QUESTION)]
    reply, found = (zlib.decompress(pack_answer(one)) for one in (REPLY, FOUND))
    seed = made_store()
    texts = [
        b"# Rome\n\nRome is old. It is a city.\n" * 5,
        "Rom ist alt. öäü\n".encode("latin-1"),
        "Рим".encode("utf-16"),
    ]
    lines = [
        dumped({"id": 1, "title": "Rome", "text": "Old.", "url": "http://a.example"}) + b"\n",
        dumped([{"text": "x"}]),
    ]
    return [
        Reader("cases", in_file("a.jsonl", cases), (*CASES, *RESPONSES, b"".join(CASES)), bad, share=2.0),
        Reader("cases as one JSON text", in_file("a.json", cases), tuple(b"[" + one + b"]" for one in CASES), bad),
        Reader("fact graphs", in_file("g.json", graphs), (GRAPH, b"[" + GRAPH + b"]", GRAPH + b"\n" + GRAPH), bad),
        Reader("results", in_file("r.jsonl", results), (RESULT + b"\n", RESULT + b"\n" + RESULT), bad),
        Reader("validate", in_file("v.json", checked), (*CASES, GRAPH, RESULT, UAI[0], b"1 0 1"), bad),
        Reader("UAI models", in_file("m.uai", read_uai), UAI, bad),
        Reader("UAI evidence", in_file("m.evid", evidence), (b"2 0 1 1 0\n", b"1 2 0 1 1 0", b"0"), bad),
        Reader("journals", in_file("j.stages", journal), _journals(), (OutputError,)),
        Reader("plans (YAML)", in_file("p.yaml", read_plan), PLANS, (SettingsError,), share=2.0),
        Reader("configuration (TOML)", in_file("c.toml", _endpoint), TOML, (SettingsError,)),
        *(
            Reader(f"priors ({kind})", in_file(f"p.{kind}", read_priors), given, (SettingsError,))
            for kind, given in PRIORS.items()
        ),
        Reader("templates", template, (ATOMIZE.text.encode(),), (SettingsError,)),
        Reader("store rows", packed, (reply, found, zlib.compress(reply), dumped(CHAT))),
        Reader("lines of an export", exported_row, ROWS, (RowError,)),
        Reader("imports of exported rows", imported, ROWS, (InputError, OutputError)),
        Reader("outputs of batches", in_file("o.jsonl", batch_output), _outputs(), (InputError, OutputError)),
        Reader("store files", in_file("s.sqlite", store), (seed,), (InputError, OutputError)),
        Reader("index files", index_reader(files), arrays),
        Reader("index notes", in_file("note.json", note), (NOTE,)),
        Reader("corpus of text", in_file("t.md", documents), texts, bad),
        Reader("corpus of rows", in_file("t.jsonl", documents), lines, bad),
        Reader("data sets (JSON)", in_file("d.json", data_sets), rows, bad),
        Reader("data sets (tables)", in_file("d.csv", data_sets), (TABLE.encode(),), bad),
        Reader(
            "corrections", in_file("k.jsonl", lambda path: drained(read_corrections(path))), (dumped(CORRECTED),), bad
        ),
        Reader("Label Studio", in_file("l.json", lambda path: drained(read_annotations(path))), (dumped(EXPORT),), bad),
    ]


def _outputs() -> tuple[bytes, ...]:
    """Lines of outputs of batches, by OpenAI and by vLLM."""
    _, name = batch_folder()
    error = {"message": "The server had an error", "type": "server_error", "code": 500}
    responses: list[tuple[Any, Any]] = [
        ({"status_code": 200, "request_id": "r", "body": CHAT}, None),
        ({"status_code": 500, "request_id": "r", "body": {"error": error}}, None),
        ({"status_code": 400, "request_id": "r", "body": None}, {"error": error}),
        (None, {"code": "batch_expired", "message": "too late"}),
    ]
    rows = [{"id": "b", "custom_id": name, "response": response, "error": error} for response, error in responses]
    lines = [dumped(row) + b"\n" for row in rows]
    return (*lines, b"".join(lines))


def _endpoint(path: Path) -> Endpoint:
    return Endpoint.from_env(config=path, env=ENV)


def _journals() -> tuple[bytes, ...]:
    header = orjson.dumps({"journal": 1, "fingerprint": "f"}) + b"\n"
    lines = [{"case": i % 3, "stage": "atomize", "set": {"atoms": []}, "gone": ["reason"]} for i in range(4)]
    return (header + b"".join(orjson.dumps(line) + b"\n" for line in lines), header)


def clean_up() -> None:
    """Remove the files of the readers."""
    shutil.rmtree(FOLDER, ignore_errors=True)
