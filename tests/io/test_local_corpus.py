"""The local corpus: words of any script, passages of any text, an index that is never stale and never half there."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import math
import os
import subprocess
import sys
import time
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcjax.core.errors import InputError, OutputError, SettingsError
from fcjax.core.passages import Passage, Retriever
from fcjax.io.retrievers import index as indexes
from fcjax.io.retrievers.corpus import Faults, cut, entries, passages
from fcjax.io.retrievers.local import LocalCorpus, default_folder
from fcjax.io.retrievers.words import stem, words

SHIPS = {
    "titanic.txt": "The Titanic sank in the North Atlantic on 15 April 1912 after it had struck an iceberg.",
    "vasa.md": "# Vasa\n\nThe warship Vasa sank in Stockholm on her maiden voyage in 1628.",
    "deep/bismarck.txt": "The Bismarck was scuttled in May 1941; the battleship had sunk HMS Hood.",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "corpus", SHIPS)


def written(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def opened(path: Path, **settings) -> LocalCorpus:
    settings.setdefault("index", path.parent / "indexes")
    return LocalCorpus.open(path, **settings)


def rows(path: Path, *values: object) -> Path:
    path.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values), encoding="utf-8")
    return path


def links(found) -> list[str]:
    return [passage.link for passage in found]


# Words


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Die Straße heißt Élysée", "STRASSE elysee"),
        ("हिन्दी भारत की भाषा है", "हिन्दी"),
        ("東京タワーは333メートルです", "東京"),
        ("ประเทศไทยเป็นประเทศ", "ไทย"),
        ("서울은 대한민국의 수도이다", "서울에서"),
        ("العَرَبِيّة لغة سامية", "العربية"),
        ("Столица — Москва", "москва"),
        ("ｆｕｌｌ　ｗｉｄｔｈ", "full width"),
        ("in the year ١٩٩٠", "1990"),
        ("a population of 1,234,567", "1234567"),
        ("many cities and judges", "city judge"),
        ("snake_case", "case"),
    ],
)
def test_a_text_is_found_however_its_words_are_written(text, query, tmp_path):
    corpus = opened(rows(tmp_path / "c.jsonl", {"text": text}, {"text": "nothing of it ∅"}))
    assert [passage.text for passage in corpus.find(query, 5)] == [text]


@pytest.mark.parametrize("mark", ["\u00ad", "\u200b", "\ufeff", "\u2060", "\u200e", "\u202a"])
@pytest.mark.parametrize("suffix", [".txt", ".md", ".html", ".jsonl", ".json"])
def test_a_character_without_a_shape_does_not_hide_a_word(mark, suffix, tmp_path):
    text = f"Die Donau{mark}dampf{mark}schiff{mark}fahrt begann im Jahr 18{mark}29."
    page = f"<html><head><title>x</title></head><body><p>{text}</p></body></html>"
    row = json.dumps({"text": text, "title": f"Do{mark}nau"})
    content = {".html": page, ".jsonl": f"{row}\n", ".json": f"[{row}]"}.get(suffix, text)
    corpus = opened(written(tmp_path / "corpus", {f"a{suffix}": content, "b.txt": "Die Elbe war 1837 an der Reihe."}))
    for query in ("Donaudampfschifffahrt", f"Donau{mark}dampfschifffahrt", "1829", f"1{mark}829"):
        (found,) = corpus.find(query, 5)
        assert found.text == "Die Donaudampfschifffahrt begann im Jahr 1829."
        assert mark not in (found.title or "")


def test_joiners_stay_in_a_passage_and_are_no_part_of_its_words(tmp_path):
    corpus = opened(rows(tmp_path / "c.jsonl", {"text": "او می‌خواهد برود"}, {"text": "چیز دیگر"}))
    assert [passage.text for passage in corpus.find("میخواهد", 5)] == ["او می‌خواهد برود"]


def test_words_of_a_whole_text_are_those_of_its_parts():
    assert words("Iceberg, 東京 naïve") == words("Iceberg") + words("東京") + words("naïve")
    assert words("x" * 5000) == ["x" * 40]
    assert words(" \n…—¿") == []
    assert [stem(word) for word in ("cities", "judges", "glass", "virus", "paris", "gas", "été", "1990s")] == [
        *("city", "judge", "glass", "virus", "paris", "gas", "été", "1990s")
    ]


# Passages


@given(st.text(alphabet=st.sampled_from("ab .\n。é\u0301"), max_size=400), st.integers(1, 50))
def test_passages_lose_nothing_and_keep_their_size(text, size):
    pieces = list(cut(text, size))
    assert all(0 < len(piece) <= size and piece == piece.strip() for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


@pytest.mark.parametrize("letter", ["a", "東", "é\u0301", "word "])
def test_a_line_of_ten_megabytes_is_cut_in_linear_time(letter):
    began = time.process_time()
    pieces = list(cut(letter * (10_000_000 // len(letter)), 1000))
    assert time.process_time() - began < 10
    assert 10_000 <= len(pieces) <= 18_000
    assert not any(unicodedata.combining(piece[0]) for piece in pieces)


def test_passages_end_where_paragraphs_lines_sentences_or_words_do():
    paragraph = "One sentence stands here. Another one follows it"
    assert list(cut(f"{paragraph}\n\n{paragraph}\n\n{paragraph}", 60)) == [paragraph] * 3
    assert list(cut("Eins ist eins. Zwei ist zwei.", 20)) == ["Eins ist eins.", "Zwei ist zwei."]
    assert list(cut("一是一。二是二。三是三。", 4)) == ["一是一。", "二是二。", "三是三。"]
    assert all(piece.split()[0] == "word" for piece in cut("word " * 500, 97))
    assert list(cut(" \n ", 10)) == []


def test_all_kinds_of_files_are_read(tmp_path):
    page = "<html><head><title>Apollo 11</title></head><body><nav>Menu</nav><article>" + (
        "<p>Apollo 11 landed on the Moon in July 1969, and Neil Armstrong stepped out of it.</p>"
        "<p>Michael Collins stayed in orbit, alone behind the Moon while the others walked about on it.</p>"
        "<p>They came down in the Pacific eight days after they had left, and were kept apart from all for weeks.</p>"
    )
    corpus = opened(
        written(
            tmp_path / "corpus",
            {
                "William_Douglas.txt": "He left the court in 1975.",
                "notes.md.gz": gzip.compress(b"# Of Rivers\n\nThe Danube is long."),
                "apollo.html": page + "</article></body></html>",
                "rows.jsonl": '{"title": "Nile", "text": "It flows north.", "url": "https://example.org/nile"}\n'
                '{"id": 7, "contents": "Volga water"}\n{"snippet": "Rhine water"}\n',
                "list.json": '[{"text": "Loire water", "link": "x"}]',
                ".hidden.txt": "hidden water",
                ".git/a.txt": "hidden water",
            },
        )
    )
    assert corpus.fault_count == 0
    (douglas,) = corpus.find("Douglas", 3)  # his name stands in the title alone
    assert douglas == Passage(title="William Douglas", text="He left the court in 1975.", link="William_Douglas.txt")
    assert corpus.find("danube", 3)[0].title == "Of Rivers"
    (apollo,) = corpus.find("Armstrong", 3)
    assert apollo.title == "Apollo 11"
    assert "landed on the Moon" in apollo.text
    assert "Menu" not in apollo.text
    assert links(corpus.find("Nile", 3)) == ["https://example.org/nile"]
    assert links(corpus.find("water", 9)) == ["x", "rows.jsonl#7", "rows.jsonl#3"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_one_file_is_a_corpus_too(suffix, tmp_path):
    path = tmp_path / f"rows.jsonl{suffix}"
    line = json.dumps({"text": "The Vasa sank."}).encode()
    path.write_bytes(gzip.compress(line) if suffix else line)
    assert links(opened(path).find("vasa", 1)) == [f"rows.jsonl{suffix}#1"]


# Search


def test_search_is_bm25_with_idf_squared(folder):
    """By the formula, from the texts, in float64."""
    corpus = opened(folder)
    query = "In which year sank the Vasa, and where sank the Titanic?"
    texts = [(p.title, p.text) for p in corpus.find("the in sank and 1941 titanic vasa", 9)]
    bags = [Counter(stem(word) for word in words(f"{title}\n{text}")) for title, text in texts]
    mean = sum(bag.total() for bag in bags) / len(bags)

    def score(bag):
        total = 0.0
        for word in map(stem, words(query)):
            having = sum(word in other for other in bags)
            idf = math.log(1 + (len(bags) - having + 0.5) / (having + 0.5))
            total += idf**2 * bag[word] / (bag[word] + 0.9 * (1 - 0.4 + 0.4 * bag.total() / mean))
        return total

    assert len(texts) == 3
    order = sorted(range(3), key=lambda i: -score(bags[i]))
    assert [p.text for p in corpus.find(query, 9)] == [texts[i][1] for i in order if score(bags[i]) > 0]


def test_what_shares_no_word_is_not_evidence(folder):
    corpus = opened(folder)
    assert corpus.find("xylophone quux", 5) == ()
    assert corpus.find("", 5) == ()
    assert corpus.find("?!", 5) == ()
    assert len(corpus.find("iceberg", 5)) == 1
    with pytest.raises(SettingsError, match="k is 0"):
        corpus.find("iceberg", 0)


def test_equal_passages_come_once_and_equal_scores_by_place(tmp_path):
    twins = [{"text": f"The same words {i}", "link": str(i)} for i in (3, 1, 2)]
    same = {"text": "The same words 3", "link": "elsewhere"}
    corpus = opened(rows(tmp_path / "c.jsonl", *twins, same, {"text": "other"}))
    assert corpus.size == 4
    assert links(corpus.find("same words", 9)) == ["3", "1", "2"]
    assert links(corpus.find("same words", 2)) == ["3", "1"]


def test_searches_leave_the_event_loop_free(folder, monkeypatch):
    async def searched():
        corpus = opened(folder)
        source: Retriever = corpus
        ticks = 0
        task = asyncio.create_task(source.search("vasa", 1))
        while not task.done():
            await asyncio.sleep(0.005)
            ticks += 1
        await source.close()
        await source.close()
        return task.result(), ticks

    best = indexes.Index.best

    def slow(index, query, k):
        time.sleep(0.2)
        return best(index, query, k)

    monkeypatch.setattr(indexes.Index, "best", slow)

    found, ticks = asyncio.run(searched())
    assert links(found) == ["vasa.md"]
    assert ticks > 5


# What cannot be read


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "no such folder"),
        ({"a.docx": b"PK"}, r"no documents[\s\S]*\.docx \(1\)"),
        ({"a.pdf": b"%PDF-1.7"}, "PDF cannot be read"),
        ({"a.txt": b""}, "no text"),
        ({"a.txt": " \n "}, "no text"),
        ({"a.txt": b"\x89PNG\0\0\0"}, "binary"),
        ({"a.jsonl": "{nonsense"}, "JSON"),
        ({"a.jsonl": '{"title": "only"}\n[1]\n"text"\n{"text": 3.5}\n'}, "'title'"),
    ],
)
def test_a_corpus_with_nothing_in_it_is_refused(files, says, tmp_path):
    with pytest.raises(InputError, match=says):
        opened(written(tmp_path / "corpus", files))
    assert not list(tmp_path.rglob("*.part"))


def test_what_cannot_be_read_is_told_and_the_rest_is_read(tmp_path):
    corpus = opened(
        written(
            tmp_path / "corpus",
            {
                "good.txt": "The Vasa sank.",
                "image.txt": bytes(range(256)) * 10,
                "damaged.txt.gz": gzip.compress(os.urandom(99))[:60],
                "old.txt": "Über die Brücke führt der Weg nach Köln, größer als Düsseldorf.".encode("latin-1"),
                "wide.txt": "Wide letters".encode("utf-16"),
                "rows.jsonl": '{"text": "Row one"}\n{broken\n17\n{"text": ""}\n{"text": "Row five"}\n',
                "long.jsonl": json.dumps({"text": "endless " * 1_250_000}),
                "slides.pptx": b"PK",
            },
        )
    )
    told = "\n".join(map(str, corpus.faults))
    assert corpus.fault_count == len(corpus.faults) == 7
    for name in ("image.txt", "damaged.txt.gz", "old.txt", "rows.jsonl:2", "rows.jsonl:3", "rows.jsonl:4", ".pptx (1)"):
        assert name in told
    for query, link in {"vasa": "good.txt", "Köln": "old.txt", "wide": "wide.txt", "five": "rows.jsonl#5"}.items():
        assert links(corpus.find(query, 1)) == [link]
    assert opened(tmp_path / "corpus").faults == corpus.faults


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_not_waited_for(folder):
    os.mkfifo(folder / "pipe.txt")
    (folder / "broken.txt").symlink_to(folder / "nowhere")
    (folder / "loop").symlink_to(folder)
    corpus = opened(folder)
    assert sorted(Path(fault.file).name for fault in corpus.faults) == ["broken.txt", "pipe.txt"]
    assert corpus.size == 3


def test_many_faults_are_counted_and_few_kept(tmp_path):
    corpus = opened(rows(tmp_path / "c.jsonl", {"text": "good"}, *[{"no": i} for i in range(500)]))
    assert (corpus.fault_count, len(corpus.faults)) == (500, 100)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the system's administrator may read everything")
def test_a_file_without_permission_is_told(folder):
    (folder / "vasa.md").chmod(0)
    corpus = opened(folder)
    assert "vasa.md" in str(corpus.faults[0])
    assert corpus.find("iceberg", 1)


# The index


def test_an_index_is_used_again_and_made_anew_when_files_change(folder, monkeypatch):
    first = opened(folder)
    made = []
    finish = indexes.Draft.finish
    monkeypatch.setattr(indexes.Draft, "finish", lambda draft, name: (made.append(name), finish(draft, name)))
    assert opened(folder).name == first.name
    assert not made
    (folder / "vasa.md").write_text("# Vasa\n\nThe warship Vasa sank in Stockholm on her maiden voyage in 1629.")
    second = opened(folder)
    assert second.name != first.name
    assert second.find("1629", 1)
    assert not second.find("1628", 1)
    assert first.find("1628", 1)  # an open one stays what it was
    (folder / "new.txt").write_text("The Kursk")
    third = opened(folder)
    assert third.find("Kursk", 1)
    (folder / "new.txt").unlink()
    assert opened(folder).name == second.name
    assert len(made) == 3  # the one that was outgrown had been removed
    kept = [path for path in (folder.parent / "indexes").iterdir() if path.is_dir()]
    assert [path.name for path in kept] == [second.name.removeprefix("local:")]


def test_files_that_have_been_there_are_not_read_again(folder, monkeypatch):
    monkeypatch.setattr("fcjax.io.retrievers.local._FRESH", -10_000_000_000)  # as if they had been there for long
    name = opened(folder).name
    monkeypatch.setattr("fcjax.io.retrievers.local.passages", None)
    assert opened(folder).name == name


def test_a_change_in_the_same_moment_is_seen(folder):
    opened(folder)
    path = folder / "titanic.txt"
    before = path.stat()
    path.write_text(path.read_text().replace("1912", "1913"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert opened(folder).find("1913", 1)


def test_the_name_is_that_of_the_contents(folder, tmp_path):
    copy = written(tmp_path / "another" / "place", SHIPS)
    assert opened(copy).name == opened(folder).name
    assert opened(folder, chunk=50).name != opened(folder).name
    moved = written(tmp_path / "moved", {name.replace("deep", "sea"): text for name, text in SHIPS.items()})
    assert opened(moved).name != opened(folder).name


@pytest.mark.parametrize("part", ["worth.npy", "passages.jsonl", "words.json", "about.json", "note"])
def test_a_damaged_index_is_made_anew(part, folder, monkeypatch):
    monkeypatch.setattr("fcjax.io.retrievers.local._FRESH", -10_000_000_000)
    corpus = opened(folder)
    (place,) = (path for path in (folder.parent / "indexes").iterdir() if path.is_dir())
    path = next((folder.parent / "indexes").glob("*.json")) if part == "note" else place / part
    path.write_bytes(path.read_bytes()[:-7])
    again = opened(folder)
    assert again.name == corpus.name
    assert links(again.find("vasa", 1)) == ["vasa.md"]


@pytest.mark.parametrize("name", ["../victim", "/victim", "..", ".", "", "victim", 5, None, ["a"], "../../victim"])
def test_a_note_in_the_index_folder_names_nothing_outside_of_it(name, folder, tmp_path):
    victim = written(tmp_path / "victim", {"precious.txt": "kept"})
    inner = written(tmp_path / "indexes" / "victim", {"precious.txt": "kept"})
    opened(folder)
    (note,) = (tmp_path / "indexes").glob("*.json")
    said = json.loads(note.read_text())
    given = str(victim) if name == "/victim" else name
    note.write_text(json.dumps(said | {"name": given}))
    (folder / "new.txt").write_text("The Kursk")  # the index that the note names is outgrown
    assert opened(folder).find("Kursk", 1)
    assert (victim / "precious.txt").exists()
    assert (inner / "precious.txt").exists()


@pytest.mark.parametrize(
    "odd",
    [
        {"files": 5}, {"files": [5]}, {"files": [["a", 1, 5]]}, {"files": [["a", 1, []]]}, {"began": "soon"},
        {"faults": [5]}, {"faults": [{"no": "such"}]}, {"faults": {}}, {"fault_count": "x"}, {"began": None},
        {"fault_count": -1, "faults": [{"message": 1, "file": 2, "line": 3, "case": 4, "field": 5}]},
    ],
)  # fmt: skip
def test_a_note_of_odd_types_is_made_anew(odd, folder, monkeypatch):
    monkeypatch.setattr("fcjax.io.retrievers.local._FRESH", -10_000_000_000)
    name = opened(folder).name
    (note,) = (folder.parent / "indexes").glob("*.json")
    said = note.read_text()
    note.write_text(json.dumps(json.loads(said) | odd))
    assert opened(folder).name == name
    assert json.loads(note.read_text()).keys() == json.loads(said).keys()
    assert json.loads(note.read_text())["faults"] == []


@pytest.mark.parametrize("part", ["worth", "having", "starts", "places", "passages", "words"])
@pytest.mark.parametrize("hides", [False, True])
def test_an_index_changed_at_equal_length_is_made_anew(part, hides, folder, monkeypatch):
    monkeypatch.setattr("fcjax.io.retrievers.local._FRESH", -10_000_000_000)
    corpus = opened(folder)
    (place,) = (path for path in (folder.parent / "indexes").iterdir() if path.is_dir())
    path = next(place.glob(f"{part}.*"))
    content = path.read_bytes()
    path.write_bytes(content.replace(b"1628", b"1492") if part == "passages" else content[:-8] + b"\xff" * 8)
    if hides:  # the note inside agrees with the change
        about = json.loads((place / "about.json").read_text())
        about["digests"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        (place / "about.json").write_text(json.dumps(about))
    again = opened(folder)
    assert again.name == corpus.name
    (found,) = again.find("warship", 1)
    assert found.link == "vasa.md"
    assert "1628" in (found.text or "")


@pytest.mark.parametrize("line", ["5", '["a", "b"]', '["a", 5, "c"]', '{"a": 1}', "not JSON", '["\\ud800", "b", "c"]'])
def test_an_index_whose_passages_are_none_is_no_index(line, tmp_path):
    """Its name and digests are right: whoever writes into the folder can compute them."""
    draft = indexes.Draft(tmp_path)
    draft.finish(draft.write([Passage(title="Rome", text="Rome is old.", link="a")]))
    (place,) = tmp_path.glob("*[!t]")
    assert indexes.Index.load(place)
    (place / "passages.jsonl").write_text(line + "\n")
    np.save(place / "places.npy", np.array([0, len(line) + 1]))
    about = json.loads((place / "about.json").read_text())
    for name in ("passages.jsonl", "places.npy"):
        about["bytes"][name] = (place / name).stat().st_size
        about["digests"][name] = hashlib.sha256((place / name).read_bytes()).hexdigest()
    (place / "about.json").write_text(json.dumps(about))
    digest = hashlib.sha256(f"{indexes.FORMAT} {indexes.K1} {indexes.B}".encode() + f"{line}\n".encode()).hexdigest()
    assert indexes.Index.load(place.rename(tmp_path / digest[:32])) is None


def test_an_array_whose_header_is_not_python_is_made_anew(folder, monkeypatch):
    """NumPy reads headers of its first version as Python, and raises what the tokenizer does."""
    monkeypatch.setattr("fcjax.io.retrievers.local._FRESH", -10_000_000_000)
    name = opened(folder).name
    (place,) = (path for path in (folder.parent / "indexes").iterdir() if path.is_dir())
    content = bytearray((place / "worth.npy").read_bytes())
    content[20:40] = b"(" * 20
    (place / "worth.npy").write_bytes(content)
    about = json.loads((place / "about.json").read_text())
    about["digests"]["worth.npy"] = hashlib.sha256(content).hexdigest()
    (place / "about.json").write_text(json.dumps(about))
    assert opened(folder).name == name


def test_an_index_is_for_this_user_alone(folder):
    before = os.umask(0o022)
    try:
        opened(folder)
    finally:
        os.umask(before)
    made = [folder.parent / "indexes", *(folder.parent / "indexes").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in made if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in made if path.is_file()} == {0o600}


def test_many_processes_may_open_one_corpus_at_once(folder):
    code = """
import sys
from fcjax.io.retrievers.local import LocalCorpus
corpus = LocalCorpus.open(sys.argv[1], index=sys.argv[2])
print(corpus.name, corpus.find("vasa", 1)[0].link, "jax" in sys.modules)
"""
    command = [sys.executable, "-P", "-c", code, str(folder), str(folder.parent / "indexes")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate()[0].split() for process in processes]
    assert said == [[opened(folder).name, "vasa.md", "False"]] * 3
    assert not list((folder.parent / "indexes").glob(".*"))


def test_a_corpus_that_changes_while_it_is_read_is_read_again(folder, monkeypatch):
    write, writes = indexes.Draft.write, []

    def disturbed(self, passages):
        name = write(self, passages)
        writes.append(name)
        if len(writes) <= 1:
            (folder / "late.txt").write_text("The Lusitania")
        return name

    monkeypatch.setattr(indexes.Draft, "write", disturbed)
    assert opened(folder).find("lusitania", 1)
    assert len(writes) == 2


def test_the_index_is_kept_in_the_users_cache(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    LocalCorpus.open(folder)
    assert default_folder() == tmp_path / "cache" / "fcjax" / "indexes"
    assert list(default_folder().glob("*.json"))


def test_places_where_no_index_can_be_are_refused(folder):
    with pytest.raises(SettingsError, match="inside the corpus"):
        opened(folder, index=folder / "index")
    titanic = written(folder.parent, {"titanic": "a file"}) / "titanic"
    with pytest.raises(OutputError, match="cannot keep an index"):
        opened(folder, index=titanic / "index")
    with pytest.raises(SettingsError, match="chunk is 10"):
        opened(folder, chunk=10)
    assert opened(folder, index=folder / ".index").size == 3
    assert opened(folder).size == 3


def test_a_link_out_of_the_corpus_is_skipped_and_reported(folder, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("The password of the Lusitania")
    (folder / "link.txt").symlink_to(secret)
    (folder / "inner.txt").symlink_to(folder / "vasa.md")
    corpus = opened(folder)
    assert [(Path(fault.file or "").name, "out of the corpus" in fault.message) for fault in corpus.faults] == [
        ("link.txt", True)
    ]
    assert not corpus.find("Lusitania", 1)
    assert corpus.find("vasa", 1)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(folder):
    found = entries(folder, Faults())
    (folder / "titanic.txt").unlink()
    os.mkfifo(folder / "titanic.txt")
    faults = Faults()
    start = time.perf_counter()
    assert len(list(passages(found, 1000, faults))) == 2
    assert time.perf_counter() - start < 5
    assert "not a regular file" in faults.kept[0].message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.jsonl.gz", "page.html"])
def test_a_pipe_that_takes_the_place_of_rows_or_a_page_is_not_waited_for(name, folder):
    (folder / name).write_text('{"text": "x"}\n')
    found = entries(folder, Faults())
    (folder / name).unlink()
    os.mkfifo(folder / name)
    faults = Faults()
    start = time.perf_counter()
    assert len(list(passages(found, 1000, faults))) == 3
    assert time.perf_counter() - start < 5
    assert "not a regular file" in faults.kept[0].message


@pytest.mark.parametrize("name", ["vasa.md", "deep/bismarck.txt", "rows.jsonl"])
def test_a_link_that_takes_the_place_of_a_file_or_its_folder_is_not_followed(name, folder, tmp_path):
    (folder / "rows.jsonl").write_text('{"text": "a row"}\n')
    found = entries(folder, Faults())
    secret = written(tmp_path / "outside", {Path(name).name: '{"text": "The password of the Lusitania"}'})
    place = folder / name
    if place.parent == folder:
        place.rename(tmp_path / "moved")
        place.symlink_to(secret / place.name)
    else:
        place.parent.rename(tmp_path / "moved")
        place.parent.symlink_to(secret)
    faults = Faults()
    read = list(passages(found, 1000, faults))
    assert len(read) == 3
    assert not any("Lusitania" in passage.text for passage in read)
    assert [Path(fault.file or "").name for fault in faults.kept] == [place.name]
    assert "changed" in faults.kept[0].message


@pytest.mark.parametrize(("name", "most"), [("a.jsonl.gz", 17 << 20), ("a.json.gz", 0), ("a.txt.gz", 0)])
def test_gzip_that_unpacks_to_a_thousand_times_its_size_is_not_read_to_its_end(name, most, tmp_path):
    """100 kB that are 100 MB."""
    letters = b"".join(b"%d " % i + b"a" * 50_000 + b" " for i in range(2000))
    text = b"".join(b'{"text": "%d %s"}\n' % (i, b"a" * 50_000) for i in range(2000)) if "jsonl" in name else letters
    packed = gzip.compress(text if "json" not in name or "jsonl" in name else b'[{"text": "%s"}]' % text, 9)
    assert 500 * len(packed) < len(text)
    folder = written(tmp_path / "corpus", {name: packed, "good.txt": "The Vasa sank."})
    found, faults = entries(folder, Faults()), Faults()
    start = time.perf_counter()
    texts = [passage.text for passage in passages(found, 1000, faults)]
    assert time.perf_counter() - start < 10
    assert "The Vasa sank." in texts
    assert sum(map(len, texts)) <= most + 100
    assert "once unpacked" in faults.kept[0].message


def test_text_that_is_well_compressed_is_read_whole(tmp_path):
    """A log of 20 MB that unpacks to 50 times its size."""
    text = "".join(f"{i:07} {'the same sentence over and over again, ' * 6}\n" for i in range(80_000))
    packed = gzip.compress(text.encode())
    assert 40 * len(packed) < len(text) > 16 << 20
    folder = written(tmp_path / "corpus", {"log.txt.gz": packed})
    faults = Faults()
    read = sum(len(passage.text) for passage in passages(entries(folder, faults), 4000, faults))
    assert not faults.count
    assert read > 0.99 * len(text)


def test_names_of_files_in_faults_are_shown_and_not_obeyed(folder):
    (folder / "a\x1b[2J\nfcjax: error: forged.txt").write_bytes(b"\x89PNG\0\0\0")
    (fault,) = opened(folder).faults
    assert len(str(fault).splitlines()) == 1
    assert "\x1b" not in str(fault)
