"""Serper and Wikipedia as their documentation has them, from real servers on loopback in fair and foul weather."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from aiohttp import web
from served import served

from fcjax.core.errors import SettingsError
from fcjax.core.prompts import Failure
from fcjax.io.pacing import RateLimit, Retry
from fcjax.io.retrievers.domains import Domains
from fcjax.io.retrievers.pages import PageReader
from fcjax.io.retrievers.serper import Serper, passages
from fcjax.io.retrievers.wikipedia import Wikipedia

KEY = "0123456789abcdef0123456789abcdef01234567"
QUICK = Retry(attempts=3, first=0.01)
HERE = ("127.0.0.0/8",)


def respond(document, status=200, **headers):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return web.Response(body=body, status=status, headers={"Content-Type": "application/json", **headers})


def page(text, status=200):
    markup = f"<!doctype html><html><body><article><p>{text}</p></article></body></html>"
    return web.Response(text=markup, status=status, content_type="text/html")


def organic(*links, snippet="a snippet"):
    hits = [{"title": f"T{i}", "link": link, "snippet": snippet, "position": i} for i, link in enumerate(links, 1)]
    return {"searchParameters": {"q": "?", "type": "search"}, "organic": hits, "credits": 1}


def search(make, routes, query="Who?", k=3):
    """What a retriever finds, of which `make(server)` gives one, and the server that it asked."""

    async def main():
        async with served(routes) as server:
            retriever = make(server)
            try:
                return await retriever.search(query, k), server
            finally:
                await retriever.close()

    return asyncio.run(main())


def serper(routes, query="Who?", k=3, **how):
    return search(lambda server: Serper(KEY, base_url=server.url, **{"retry": QUICK} | how), routes, query, k)


# ---- Serper.


def test_serper_is_asked_as_it_wants_to_be():
    found, server = serper(lambda request: respond(organic("https://a.org/")), " Who was she? ", 3, country="de")
    (request,) = server.asked
    assert (request.method, request.path) == ("POST", "/search")
    assert request.headers["X-API-KEY"] == KEY
    assert request.content_type == "application/json"
    assert json.loads(server.bodies[0]) == {"q": "Who was she?", "num": 10, "gl": "de"}
    assert [(hit.title, hit.snippet, hit.link, hit.text) for hit in found] == [
        ("T1", "a snippet", "https://a.org/", None)
    ]


def test_serper_gives_the_first_k_that_are_not_denied():
    links = ["https://x.deny.org/", "https://a.org/", "https://a.org/", "https://b.org/", "https://c.org/"]
    found, server = serper(lambda request: respond(organic(*links)), k=2, domains=Domains(deny=["deny.org"]))
    assert [hit.link for hit in found] == ["https://a.org/", "https://b.org/"]
    found, server = serper(lambda request: respond(organic(*(f"https://a.org/{i}" for i in range(30)))), k=25)
    assert len(found) == 25
    assert json.loads(server.bodies[0])["num"] == 25


def test_more_than_a_service_gives_is_not_asked_for():
    _, server = serper(lambda request: respond(organic()), k=1000)
    assert json.loads(server.bodies[0])["num"] == 100
    _, server = wikipedia(wiki, k=1000)
    assert int(server.asked[0].query["gsrlimit"]) <= 50


def test_nothing_found_is_no_failure():
    for document in (organic(), {"searchParameters": {}}, {"organic": None}):
        assert serper(lambda request: respond(document))[0] == ()  # noqa: B023


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({}, "unreadable"),
        ({"error": "internal"}, "unreadable"),
        ({"organic": "none"}, "unreadable"),
        ({"message": "Not enough credits"}, "quota"),
        ({"message": "under maintenance"}, "unreadable"),
    ],
)
def test_an_answer_that_is_no_page_of_results_is_not_taken_for_no_evidence(document, kind):
    found = serper(lambda request: respond(document))[0]
    assert isinstance(found, Failure)
    assert found.kind == kind


def test_an_answer_box_comes_first_and_the_knowledge_graph_last():
    document = organic("https://a.org/", "https://b.org/") | {
        "answerBox": {"title": "Age", "answer": "66 years", "snippet": "She died in 1934.", "link": "https://b.org/"},
        "knowledgeGraph": {
            "title": "M. C.",
            "type": "Physicist",
            "description": "A physicist.",
            "descriptionLink": None,
        },
    }
    hits = passages(document)
    assert [(hit.title, hit.snippet, hit.link) for hit in hits] == [
        ("Age", "66 years. She died in 1934.", "https://b.org/"),
        ("T1", "a snippet", "https://a.org/"),
        ("M. C.", "A physicist.", None),
    ]


@pytest.mark.parametrize(
    "document",
    [
        {"organic": "none"},
        {"organic": [None, 3, "x", [], {}, {"link": 3}, {"title": "no link", "snippet": "s"}]},
        {"answerBox": []},
        {"answerBox": {"answer": 3}},
        {"knowledgeGraph": "x", "organic": {}},
    ],
)
def test_a_malformed_result_is_left_out(document):
    assert passages(document) == []


def test_pages_are_read_and_a_page_that_fails_keeps_its_snippet():
    story = "Marie Curie was born in Warsaw. " * 20

    async def main():
        async with served(
            {
                "/good": lambda request: page(story),
                "/login": lambda request: page("please log in", 403),
                "/image": lambda request: web.Response(body=b"\x89PNG" + bytes(99), content_type="image/png"),
            }
        ) as site:
            links = [f"{site.url}/good", f"{site.url}/login", f"{site.url}/image", "http://10.0.0.1/", "ftp://x.org/"]
            async with served(lambda request: respond(organic(*links))) as server:
                reader = PageReader(private=HERE, retry=QUICK)
                retriever = Serper(KEY, base_url=server.url, pages=reader)
                found = await retriever.search("Where was she born?", 5)
                await retriever.close()
                return found

    good, *others = asyncio.run(main())
    assert good.text == story.strip()
    assert (good.snippet, good.note) == ("a snippet", None)
    assert all(hit.text is None and hit.snippet == "a snippet" for hit in others)
    for hit, word in zip(others, ["HTTP 403", "image/png", "public internet", "http and https"], strict=True):
        assert word in hit.note


def test_a_hit_with_neither_text_nor_snippet_is_no_evidence():
    async def main():
        async with served(lambda request: page("x", 403)) as site:
            hits = organic(f"{site.url}/1", snippet="") | {"knowledgeGraph": {"title": "X", "description": "An X."}}
            async with served(lambda request: respond(hits)) as server:
                retriever = Serper(KEY, base_url=server.url, pages=PageReader(private=HERE))
                found = await retriever.search("q", 3)
                await retriever.close()
                return found

    assert [hit.title for hit in asyncio.run(main())] == ["X"]


@pytest.mark.parametrize(
    ("status", "document", "kind", "tries", "word"),
    [
        (403, {"message": "Unauthorized.", "statusCode": 403}, "unauthorized", 1, "SERPER_API_KEY"),
        (401, {"message": f"Bad key {KEY}"}, "unauthorized", 1, "SERPER_API_KEY"),
        (403, b"<html>Forbidden</html>", "forbidden", 1, "SERPER_API_KEY"),
        (400, {"message": "Not enough credits", "statusCode": 400}, "quota", 1, "no credit left"),
        (400, {"message": f"Missing query for {KEY}"}, "invalid_request", 1, "Missing query"),
        (404, {"message": "Not found"}, "not_found", 1, "base URL"),
        (302, b"", "not_found", 1, "moved"),
        (429, {"message": "Too many requests"}, "rate_limit", 3, "gave up after 3 attempts"),
        (503, b"", "overloaded", 3, "gave up after 3 attempts"),
        (500, f"key {KEY} {'x' * 500}".encode(), "server_error", 3, "HTTP 500"),
        (200, b"<html>captive portal</html>", "unreadable", 3, "captive portal"),
        (200, b"[]", "unreadable", 3, "JSON object"),
        (200, b"", "unreadable", 3, "an empty body"),
        (200, b"\xff\xfe\x00", "unreadable", 3, "instead of a JSON object"),
        (200, b" " * (17 << 20), "too_large", 1, "bytes"),
    ],
)
def test_a_search_that_fails_says_why_and_never_the_key(status, document, kind, tries, word):
    found, server = serper(lambda request: respond(document, status, Location="/elsewhere"))
    assert isinstance(found, Failure)
    assert (found.kind, found.attempts, len(server.asked)) == (kind, tries, tries)
    assert word in found.reason
    assert KEY not in found.reason
    assert KEY[:20] not in found.reason


def test_trouble_that_passes_is_waited_for():
    weather = [respond({}, 429, **{"Retry-After": "0"}), respond(b"", 502), respond(organic("https://a.org/"))]
    found, server = serper(lambda request: weather.pop(0))
    assert len(found) == 1
    assert len(server.asked) == 3


def test_a_server_that_is_told_to_be_waited_for_too_long_is_not():
    found, server = serper(
        lambda request: respond({}, 429, **{"Retry-After": "3600"}), retry=Retry(attempts=3, patience=60)
    )
    assert (found.kind, len(server.asked)) == ("rate_limit", 1)


def test_no_server():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))

        async def main():
            retriever = Serper(KEY, base_url=f"http://127.0.0.1:{taken.getsockname()[1]}", retry=QUICK)
            found = await retriever.search("q", 1)
            await retriever.close()
            return found

        found = asyncio.run(main())
    assert (found.kind, found.attempts) == ("connection", 3)


def test_what_every_search_would_meet_is_met_once():
    async def main():
        async with served(lambda request: respond({"message": "Unauthorized."}, 403)) as server:
            retriever = Serper(KEY, base_url=server.url, concurrency=1)
            found = await asyncio.gather(*(retriever.search(f"q{i}", 1) for i in range(10)))
            await retriever.close()
            return found, len(server.asked)

    found, asked = asyncio.run(main())
    assert asked == 1
    assert {failure.kind for failure in found} == {"unauthorized"}
    assert [failure.attempts for failure in found] == [1] + [0] * 9
    assert "no more are sent" in found[-1].reason


def test_so_many_searches_at_once_and_a_minute():
    async def slow(request):
        await asyncio.sleep(0.03)
        return respond(organic("https://a.org/"))

    async def main():
        async with served(slow) as server:
            retriever = Serper(KEY, base_url=server.url, concurrency=2)
            await asyncio.gather(*(retriever.search(f"q{i}", 1) for i in range(8)))
            await retriever.close()
            limited = Serper(KEY, base_url=server.url, rate=RateLimit(requests=600))
            began = asyncio.get_running_loop().time()
            await asyncio.gather(*(limited.search(f"r{i}", 1) for i in range(15)))  # ten at once, then ten a second
            seconds = asyncio.get_running_loop().time() - began
            await limited.close()
            return server.most_in_flight, seconds

    most, seconds = asyncio.run(main())
    assert 2 <= most <= 8
    assert seconds > 0.3


def test_the_key_is_demanded_checked_and_shown_nowhere(monkeypatch):
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    with pytest.raises(SettingsError, match="set SERPER_API_KEY"):
        Serper()
    with pytest.raises(SettingsError, match="SERPER_API_KEY again") as caught:
        Serper(f"{KEY} \n{KEY}")
    assert KEY not in str(caught.value)
    monkeypatch.setenv("SERPER_API_KEY", KEY)
    named = Serper()
    assert KEY not in named.name + repr(named) + repr(vars(named))
    assert named.name == Serper(replay=True).name == "serper/2"


def test_in_a_replay_nothing_is_sent(monkeypatch):
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    found, server = search(lambda server: Serper(replay=True, base_url=server.url), lambda request: respond({}))
    assert (found.kind, found.attempts, server.asked) == ("replay_miss", 0, [])


def test_names_have_all_that_changes_what_is_found():
    names = [
        Serper(KEY, **how).name
        for how in (
            {},
            {"country": "de"},
            {"language": "de"},
            {"pages": PageReader()},
            {"pages": PageReader(length=1000)},
            {"domains": Domains(deny=["a.org"])},
            {"base_url": "http://127.0.0.1:1/"},
        )
    ]
    assert len(set(names)) == len(names)
    assert Serper(KEY, domains=Domains(priors={"a.org": 0.1})).name == Serper("another", concurrency=1).name


@pytest.mark.parametrize(
    "how",
    [
        {"country": "Germany; DROP"},
        {"language": ""},
        {"base_url": "google.serper.dev"},
        {"base_url": "https://me:secret@google.serper.dev"},
        {"base_url": "https://google.serper.dev?key=secret"},
    ],
)
def test_arguments_outside_of_what_is_allowed(how):
    with pytest.raises(SettingsError, match="allowed") as caught:
        Serper(KEY, **how)
    assert "secret" not in str(caught.value)
    with pytest.raises(SettingsError, match="k is 0; allowed"):
        asyncio.run(Serper(KEY).search("q", 0))


def test_an_empty_query_is_not_sent():
    found, server = serper(lambda request: respond(organic()), "  \n")
    assert (found.kind, server.asked) == ("invalid_request", [])


# ---- Wikipedia.

ARTICLES = {
    7: ("Marie Curie", "Maria Salomea Skłodowska-Curie was a physicist.\n\n\nShe was born in Warsaw in 1867."),
    8: ("Curie (disambiguation)", "Curie may refer to:"),
    9: ("Pierre Curie", "Pierre Curie was a French physicist." + " He worked in Paris for years." * 400),
}


def wiki(request, articles=ARTICLES):
    """`action=query` of MediaWiki with `generator=search`, and with `prop=extracts` of one page."""
    asked = request.query
    assert (asked["action"], asked["format"], asked["formatversion"]) == ("query", "json", "2")
    if "pageids" in asked:
        number = int(asked["pageids"])
        assert (asked["prop"], asked["explaintext"]) == ("extracts", "1")
        title, text = articles[number]
        return respond({"query": {"pages": [{"pageid": number, "ns": 0, "title": title, "extract": text}]}})
    assert asked["generator"] == "search"
    pages = [
        {
            "pageid": number,
            "ns": 0,
            "title": title,
            "index": index,
            "fullurl": f"https://en.wikipedia.org/wiki/{number}",
        }
        | ({"pageprops": {"disambiguation": ""}} if "disambiguation" in title else {})
        for index, (number, (title, _)) in enumerate(articles.items(), 1)
    ][: int(asked["gsrlimit"])]
    return respond({"batchcomplete": True, "query": {"pages": pages[::-1]}} if pages else {"batchcomplete": True})


def wikipedia(routes, query="Where was Marie Curie born?", k=3, **how):
    return search(lambda server: Wikipedia(base_url=server.url, **{"retry": QUICK} | how), routes, query, k)


def test_wikipedia_finds_articles_and_their_fitting_parts():
    found, server = wikipedia(wiki, "Pierre Curie Paris")
    assert [hit.title for hit in found] == ["Marie Curie", "Pierre Curie"]  # and no list of meanings
    assert found[0].text == "Maria Salomea Skłodowska-Curie was a physicist.\n\nShe was born in Warsaw in 1867."
    assert found[0].link == "https://en.wikipedia.org/wiki/7"
    assert 3000 < len(found[1].text) <= 4000
    first = server.asked[0]
    assert first.path == "/api.php"
    assert (first.query["gsrsearch"], first.query["maxlag"]) == ("Pierre Curie Paris", "5")
    assert first.headers["User-Agent"].startswith("fcjax/")
    assert len(server.asked) == 3


def test_wikipedia_is_told_who_asks():
    _, server = wikipedia(wiki, user_agent="Checker/1.0 (checker@example.org)")
    assert server.asked[0].headers["User-Agent"].startswith("Checker/1.0 (checker@example.org) fcjax/")


def test_an_article_that_many_want_is_asked_for_once():
    async def main():
        async with served(wiki) as server:
            retriever = Wikipedia(base_url=server.url)
            await asyncio.gather(*(retriever.search(f"Curie {i}", 1) for i in range(5)))
            await retriever.search("Curie again", 1)
            await retriever.close()
            return [request.query.get("pageids") for request in server.asked]

    asked = asyncio.run(main())
    assert asked.count("7") == 1
    assert asked.count(None) == 6


@pytest.mark.parametrize(
    "document", [{"batchcomplete": True}, {"query": {"pages": []}}, {"query": None}, {"query": []}]
)
def test_wikipedia_has_nothing(document):
    assert wikipedia(lambda request: respond(document))[0] == ()


@pytest.mark.parametrize(
    "document", [{}, {"error": "x"}, {"errors": [{"code": "x"}]}, {"query": {"pages": {"7": {"pageid": 7}}}}]
)
def test_what_is_no_answer_to_a_query_is_not_taken_for_no_evidence(document):
    found = wikipedia(lambda request: respond(document))[0]
    assert isinstance(found, Failure)
    assert found.kind == "unreadable"


@pytest.mark.parametrize("pages", [[{"pageid": 7}], [{"pageid": 7, "extract": None}], []])
def test_an_article_without_its_text_is_no_missing_evidence(pages):
    """As a wiki answers that cannot extract texts."""

    def handle(request):
        return respond({"query": {"pages": pages}}) if "pageids" in request.query else wiki(request)

    found = wikipedia(handle)[0]
    assert isinstance(found, Failure)
    assert found.kind == "unreadable"


def test_an_article_that_is_gone_by_now_is_passed_over():
    def handle(request):
        gone = {"query": {"pages": [{"pageid": 7, "missing": True}]}}
        return respond(gone) if request.query.get("pageids") == "7" else wiki(request)

    assert [hit.title for hit in wikipedia(handle)[0]] == ["Pierre Curie"]


def test_a_long_query_is_cut_to_what_the_api_takes():
    _, server = wikipedia(wiki, "word " * 200)
    sent = server.asked[0].query["gsrsearch"]
    assert len(sent) <= 300
    assert sent.endswith("word")
    _, server = wikipedia(wiki, "居" * 400)
    assert server.asked[0].query["gsrsearch"] == "居" * 300


@pytest.mark.parametrize(
    ("code", "kind", "tries"),
    [
        ("maxlag", "overloaded", 3),
        ("ratelimited", "rate_limit", 3),
        ("cirrussearch-too-busy-error", "overloaded", 3),
        ("internal_api_error_DBQueryError", "overloaded", 3),
        ("badvalue", "invalid_request", 1),
    ],
)
def test_mediawiki_tells_errors_with_status_200(code, kind, tries):
    error = {"error": {"code": code, "info": "Waiting for db1: 7 seconds lagged."}}
    found, server = wikipedia(lambda request: respond(error, **{"Retry-After": "0"}))
    assert (found.kind, found.attempts, len(server.asked)) == (kind, tries, tries)
    assert code in found.reason


def test_lag_is_waited_out():
    weather = [{"error": {"code": "maxlag", "info": "Waiting"}}] * 2

    def handle(request):
        return respond(weather.pop()) if weather else wiki(request)

    assert len(wikipedia(handle)[0]) == 2


@pytest.mark.parametrize("status", [403, 404, 500])
def test_wikipedia_fails(status):
    found, _ = wikipedia(lambda request: respond(b"<html>no</html>", status))
    assert isinstance(found, Failure)
    assert f"HTTP {status}" in found.reason


def test_an_article_that_does_not_come_is_no_missing_evidence():
    """What is known to be there and cannot be had is a failure: less evidence would look like an answer."""
    found, _ = wikipedia(lambda request: respond(b"", 500) if "pageids" in request.query else wiki(request))
    assert isinstance(found, Failure)
    assert found.kind == "server_error"


NESTED = b"[" * 1000 + b"]" * 1000


@pytest.mark.parametrize("value", [5, True, "disambiguation", ["disambiguation"], 1.5])
def test_page_properties_of_an_odd_type_are_ignored(value):
    def routes(request):
        if "pageids" in request.query:
            return wiki(request)
        return respond({"query": {"pages": [{"pageid": 7, "title": "Marie Curie", "pageprops": value, "index": "x"}]}})

    found, _ = wikipedia(routes)
    assert [hit.title for hit in found] == ["Marie Curie"]


@pytest.mark.parametrize(
    "document",
    [
        b'{"error": {"code": %s}}' % NESTED,
        b'{"error": {"info": %s}}' % NESTED,
        b'{"message": %s, "organic": 1}' % NESTED,
        b'{"query": {"pages": {"7": %s}}}' % NESTED,
        b"[" * 100_000,
        b'{"organic": %s, "searchParameters": {}}' % NESTED,
        b'{"organic": 1e999}',
    ],
)
@pytest.mark.parametrize("ask", [serper, wikipedia])
def test_a_document_that_is_nested_too_deeply_is_a_failed_search(ask, document):
    found, _ = ask(lambda request: respond(document))
    assert isinstance(found, Failure) or found == ()


def test_names_and_arguments_of_wikipedia():
    names = {Wikipedia().name, Wikipedia("de").name, Wikipedia(length=500).name, Wikipedia(base_url="http://a.b").name}
    assert len(names) == 4
    for language in ("", "EN", "en.evil.com/", "../x", "e"):
        with pytest.raises(SettingsError, match="the code of a Wikipedia"):
            Wikipedia(language)
    for language in ("simple", "zh-min-nan", "be-tarask", "roa-rup"):
        Wikipedia(language)
    with pytest.raises(SettingsError, match="printable ASCII"):
        Wikipedia(user_agent="a\r\nX-Evil: 1")
