"""Every synchronous function that asks a model works where an event loop runs already, as it does in a notebook."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest
import scripted_model as model
import scripted_writer
from jsonl import rows_in, write
from relations import client_of
from scripted_server import ScriptedServer

import fcjax
from fcjax.core.errors import SettingsError
from fcjax.correction.factcorrector import Corrector
from fcjax.critic.critic import Critic
from fcjax.evaluation.config import read_plan
from fcjax.evaluation.falsify import falsify
from fcjax.evaluation.grid import run_grid
from fcjax.io.endpoint import Endpoint
from fcjax.io.own_loop import in_own_loop
from fcjax.io.store import Store
from fcjax.runs import preview, relate_file
from fcjax.runs.correct_file import correct_file
from fcjax.runs.critique_file import critique_file
from fcjax.runs.observer import RunObserver

pytestmark = pytest.mark.filterwarnings("error")

RESPONSE = model.case(1)["response"]


@pytest.fixture
def setting(tmp_path, monkeypatch):
    """A folder with a corpus, a file of responses and a file of cases; and the server to ask."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    passages = list(model.passages(3, 3))
    write(tmp_path / "corpus.jsonl", *({"title": p.title, "text": p.text, "link": p.link} for p in passages))
    write(tmp_path / "in.jsonl", *(model.case(town, 2, reference="Town 0 has 2 bridges.") for town in range(3)))
    atoms = [{"id": "a", "text": "Town 1 has 9 mills."}]
    contexts = [{"id": f"c{i}", "text": p.text} for i, p in enumerate(passages)]
    write(tmp_path / "cases.jsonl", {"id": "one", "atoms": atoms, "contexts": contexts})
    with ScriptedServer(scripted_writer.answer) as server:
        yield server, tmp_path


def critic_of(server, store=None):
    return Critic(client_of(server, store=store), retrieve=model.Shelf(model.passages(3, 3)))


def at(server, folder):
    return {"retrieve": folder / "corpus.jsonl", "where": Endpoint(server.url, "scripted"), "store": folder / "store"}


def score_cases(server, folder):
    fcjax.relate_file(folder / "cases.jsonl", folder / "related.jsonl", client_of(server))
    fcjax.score(folder / "related.jsonl", folder / "out.jsonl")
    return rows_in(folder / "out.jsonl")


def relate(server, folder):
    with Store.open(folder / "store") as store:
        fcjax.relate_file(folder / "cases.jsonl", folder / "out.jsonl", client_of(server, store=store))
    return rows_in(folder / "out.jsonl")


def critique_a_file(server, folder):
    with Store.open(folder / "store") as store:
        critique_file(folder / "in.jsonl", folder / "out.jsonl", critic_of(server, store))
    return rows_in(folder / "out.jsonl")


def correct_a_file(server, folder):
    correct_file(folder / "in.jsonl", folder / "out.jsonl", Corrector(critic_of(server)))
    return rows_in(folder / "out.jsonl")


def grid(server, folder):
    text = (
        "data: [{path: in.jsonl, corpus: corpus.jsonl}]\n"
        f'models: [{{name: small, model: s, base_url: "{server.url}"}}]\ncorrectors: [llm1]\n'
    )
    (folder / "grid.yaml").write_text(text)
    run_grid(read_plan(folder / "grid.yaml"), folder / "out", replay=False)
    return rows_in(folder / "out/cells/in/small/llm1/after.jsonl")


CALLS = {
    "score": score_cases,
    "relate_file": relate,
    "critique": lambda server, folder: fcjax.critique(RESPONSE, **at(server, folder)).row,
    "correct": lambda server, folder: fcjax.correct(RESPONSE, **at(server, folder)).row,
    "critique_file": critique_a_file,
    "correct_file": correct_a_file,
    "preview.estimate_file": lambda server, folder: preview.estimate_file(folder / "in.jsonl", critic_of(server)),
    "relate_file.estimate_file": lambda server, folder: relate_file.estimate_file(
        folder / "cases.jsonl", client_of(server)
    ),
    "run_grid": grid,
    "falsify": lambda server, folder: falsify(
        [fcjax.Case(id="x", response="Town 0 has 2 bridges.")], client_of(server)
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_synchronous_function_gives_the_same_result_in_a_running_loop(setting, name):
    server, folder = setting
    first, second = folder, folder / "again"
    second.mkdir()
    for given in ("corpus.jsonl", "in.jsonl", "cases.jsonl"):
        (second / given).write_bytes((folder / given).read_bytes())
    expected = CALLS[name](server, first)

    async def notebook():
        return CALLS[name](server, second)

    assert asyncio.run(notebook()) == expected
    assert expected


def test_an_interrupt_in_a_running_loop_ends_a_run_over_a_file_which_is_then_resumed(setting):
    server, folder = setting
    stages, begun = [], threading.Event()

    class Observer(RunObserver):
        def stage(self, stage, case, kept):
            stages.append(kept)
            begun.set()

    def slowly(messages):
        if begun.is_set():
            time.sleep(0.3)
        return scripted_writer.answer(messages)

    server.answer = slowly
    out = folder / "out.jsonl"

    def interrupt():
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    loop = asyncio.new_event_loop()  # as in a notebook: Ctrl-C is raised where the cell runs
    sender = threading.Thread(target=interrupt)
    sender.start()

    async def notebook():
        critique_file(folder / "in.jsonl", out, critic_of(server), observer=Observer())

    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(notebook())
    loop.close()
    sender.join()
    assert (out.exists(), (folder / "out.jsonl.stages").exists()) == (False, True)
    begun.clear()
    server.answer = scripted_writer.answer
    assert critique_file(folder / "in.jsonl", out, critic_of(server)).resumed > 0
    critique_file(folder / "in.jsonl", folder / "whole.jsonl", critic_of(server))
    assert out.read_bytes() == (folder / "whole.jsonl").read_bytes()


def test_an_error_is_raised_without_the_search_for_a_loop_before_it():
    async def fails():
        raise SettingsError("no model given")

    with pytest.raises(SettingsError) as caught:
        in_own_loop(fails())
    assert caught.value.__context__ is None
