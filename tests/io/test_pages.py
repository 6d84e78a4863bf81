"""Pages of the web, from real servers on loopback: what is read of them, and what they cannot do to us."""

from __future__ import annotations

import asyncio
import encodings
import gzip
import io
import pkgutil
import socket
import time
from ipaddress import ip_address, ip_network

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from pdfs import pdf
from pypdf import PdfWriter
from served import served

from fcjax.core.errors import SettingsError
from fcjax.core.passages import Passage
from fcjax.core.prompts import Failure
from fcjax.io.pacing import Retry
from fcjax.io.retrievers.domains import Domains
from fcjax.io.retrievers.excerpts import excerpt
from fcjax.io.retrievers.extraction import decode
from fcjax.io.retrievers.pages import Page, PageLimits, PageReader
from fcjax.io.retrievers.serper import with_page
from fcjax.io.retrievers.ssrf_guard import Guard, LinkError, is_public

HERE = ("127.0.0.0/8",)
NOW = Retry(attempts=2, first=0.01)
STORY = "Marie Curie was born in Warsaw in 1867 and won two Nobel Prizes."


def html(body, head=""):
    return f"<!doctype html><html><head><title>t</title>{head}</head><body>{body}</body></html>"


MORE = "She shared the first of them with her husband Pierre and with Henri Becquerel. " * 6


def article(text):
    parts = f"<p>{text}</p><p>{MORE}</p>"
    return html(f"<nav>Home Login Subscribe</nav><article>{parts}</article><script>var spam = 1;</script>")


def answer(body, content_type="text/html; charset=utf-8", status=200, **headers):
    body = body.encode() if isinstance(body, str) else body
    return web.Response(body=body, status=status, headers={"Content-Type": content_type, **headers})


def read(routes, path="/", query="Curie", **how):
    """What a reader that may reach this machine makes of a page."""

    async def main():
        async with served(routes) as server:
            reader = PageReader(**{"private": HERE, "retry": NOW} | how)
            try:
                return await reader.read(server.url + path, query)
            finally:
                await reader.close()

    return asyncio.run(main())


# ---- The guard.


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.0.1"),
        *("169.254.169.254", "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.1", "192.0.2.1", "198.18.0.1"),
        *("203.0.113.7", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "100::1", "2001:db8::1", "3fff::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::7f00:1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1"),
        *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:4136:e378:8000:63bf:80ff:fffe", "fe80::1%eth0"),
    ],
)
def test_addresses_behind_the_wall_are_not_public(address):
    assert not is_public(ip_address(address))
    assert not Guard().admits(ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_addresses_of_the_internet_are_public(address):
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "network",
    [
        # IANA's registries of special-purpose addresses: what is not globally reachable.
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
        *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("240.0.0.0/4", "::1/128", "::/128", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64"),
        *("2001:1::/32", "2001:2::/48", "2001:10::/28", "2001:20::/28", "2001:db8::/32", "3fff::/20", "5f00::/16"),
        *("fc00::/7", "fe80::/10", "224.0.0.0/4", "ff00::/8"),
        # What stands for an IPv4 address of them.
        *("::ffff:192.0.0.0/120", "64:ff9b::c000:0/120", "2002:c000::/40", "2002:a00::/24", "::a00:0/104"),
    ],
)
def test_special_networks_are_not_public_from_end_to_end(network):
    first, last = ip_network(network)[0], ip_network(network)[-1]
    middle = first + (int(last) - int(first)) // 2
    assert [is_public(address) for address in (first, middle, last)] == [False] * 3


def test_both_addresses_in_a_teredo_address_must_be_public():
    server, client, private = "0808:0808", "f7f7:f7f7", "f5ff:fffe"  # the client's is inverted
    assert is_public(ip_address(f"2001:0:{server}:0:0:{client}"))
    assert not is_public(ip_address(f"2001:0:{server}:0:0:{private}"))
    assert not is_public(ip_address(f"2001:0:0a00:1:0:0:{client}"))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_as_public_in_any_ipv6_form(address):
    for form in (f"::ffff:{address}", f"64:ff9b::{address}"):
        assert is_public(ip_address(form)) == is_public(address)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "0x7f000001", "0x7f.1", "2130706433", "0177.0.0.1", "017700000001", "127.0.0.1."),
        *("[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]", "[fe80::1%25eth0]"),
        *("169.254.169.254", "0", "localhost", "LOCALHOST", "localhost.", "a.localhost", "metadata.google.internal"),
        *("①②⑦.0.0.1", "127。0。0。1", "printer.local"),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_any_spelling_of_a_private_host_is_refused_by_its_letters(host, scheme):
    with pytest.raises(LinkError) as caught:
        Guard().check(f"{scheme}://{host}:8080/latest/meta-data")
    assert caught.value.kind == "private"


@pytest.mark.parametrize(
    "link",
    [
        *("file:///etc/passwd", "ftp://example.org/", "javascript:alert(1)", "data:text/html,hi", "gopher://a.org"),
        *(
            "//example.org/",
            "example.org",
            "",
            "http://",
            "http:///x",
            "https://user:secret@example.org/",
            "http://a b/",
        ),
        *("http://example.org:99999/", "http://example.org:0/", "http://user@example.org/", "http://[::1/"),
        *("http://127.0.0.1\\@example.org/", "http://%31%32%37.0.0.1/"),
    ],
)
def test_what_is_no_link_to_a_public_page_is_not_followed(link):
    with pytest.raises(LinkError) as caught:
        Guard().check(link)
    assert caught.value.kind == "bad_link"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0x7f000001", "2130706433", "127.1", "[::ffff:127.0.0.1]"])
def test_the_default_reaches_nothing_on_this_machine(host):
    async def main():
        async with served(lambda request: answer(article(STORY))) as server:
            reader = PageReader(retry=NOW)
            found = await reader.read(f"http://{host}:{server.port}/", "Curie")
            await reader.close()
            return found, server.asked

    found, asked = asyncio.run(main())
    assert isinstance(found, Failure)
    assert found.kind == "private"
    assert not asked


def test_a_name_is_judged_by_the_address_that_is_connected_to(monkeypatch):
    """A name whose DNS leads here: its letters say nothing, so the socket must refuse."""
    genuine = socket.getaddrinfo

    def lookup(host, *args, **more):
        return genuine("127.0.0.1" if host == "rebinding.example.org" else host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)

    async def main():
        async with served(lambda request: answer(article(STORY))) as server:
            found = []
            for private in ((), HERE):
                reader = PageReader(retry=NOW, private=private)
                found.append(await reader.read(f"http://rebinding.example.org:{server.port}/", "Curie"))
                await reader.close()
            return found, len(server.asked)

    (refused, let), asked = asyncio.run(main())
    assert (refused.kind, asked) == ("private", 1)
    assert STORY in let.text


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("http://10.0.0.1/", "private"),
        ("http://169.254.169.254/latest/meta-data/", "private"),
        ("http://[::1]:1/", "private"),
        ("http://0xA9FEA9FE/", "private"),
        ("file:///etc/passwd", "bad_link"),
        ("http://me:secret@127.0.0.1/", "bad_link"),
        ("//[", "bad_link"),
    ],
)
def test_a_redirect_leads_nowhere_that_a_link_would_not(target, kind):
    found = read(lambda request: answer(b"", status=302, Location=target))
    assert isinstance(found, Failure)
    assert found.kind == kind
    assert "secret" not in found.reason


def test_domains_are_looked_at_in_each_redirect(monkeypatch):
    genuine = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **more: genuine("127.0.0.1" if ".test" in host else host, *rest, **more),
    )

    async def main():
        def hop(request):
            port = request.url.port
            following = {"a.test": "b.denied.test", "b.denied.test": "c.test"}.get(request.url.host)
            return (
                answer(b"", status=302, Location=f"http://{following}:{port}/") if following else answer(article(STORY))
            )

        async with served(hop) as server:
            reader, found = PageReader(private=HERE), []
            lists = (None, Domains(), Domains(deny=["denied.test"]), Domains(allow=["a.test"]), Domains(allow=["test"]))
            for domains in lists:
                before = len(server.asked)
                page = await reader.read(f"http://a.test:{server.port}/", "Curie", domains)
                found.append((getattr(page, "kind", "read"), len(server.asked) - before))
            hit = Passage(title="t", snippet="s", link=f"http://a.test:{server.port}/")
            found.append((await with_page(reader, hit, "Curie", lists[2])).text)
            await reader.close()
            return found

    # The second is the first's; the others each ask again, and a denied host never.
    assert asyncio.run(main()) == [("read", 3), ("read", 0), ("denied", 1), ("denied", 1), ("read", 3), None]


def test_redirects_are_followed_and_have_an_end():
    def hop(request):
        number = int(request.path[1:])
        return answer(article(STORY)) if number == 0 else answer(b"", status=301, Location=f"{number - 1}")

    found = read(hop, "/5")
    assert STORY in found.text
    assert found.link.endswith("/0")
    assert read(hop, "/6").kind == "redirects"
    assert STORY in read(hop, "/6", limits=PageLimits(redirects=6)).text


def test_a_proxy_of_the_environment_is_not_used_and_a_named_one_is(monkeypatch):
    async def main():
        async with served(lambda request: answer("by the proxy", "text/plain")) as proxy:
            monkeypatch.setenv("http_proxy", proxy.url)
            async with served(lambda request: answer("directly", "text/plain")) as server:
                found = []
                for given in (None, proxy.url):
                    reader = PageReader(private=HERE, proxy=given)
                    found.append((await reader.read(server.url + "/", "q")).text)
                    await reader.close()
                guarded = PageReader(proxy=proxy.url)
                found.append((await guarded.read(server.url + "/", "q")).kind)
                await guarded.close()
                return found

    assert asyncio.run(main()) == ["directly", "by the proxy", "private"]


# ---- What is read.


def test_the_main_text_of_a_page():
    found = read(lambda request: answer(article(STORY)))
    assert isinstance(found, Page)
    assert STORY in found.text
    assert "spam" not in found.text
    assert "Login" not in found.text
    assert found.note is None


def test_markup_without_main_text_gives_all_its_text():
    found = read(lambda request: answer(html("<table><tr><td>Poland<td>38 million</table><div>x<br>y</div>")))
    assert "Poland" in found.text
    assert "38 million" in found.text


def test_plain_text_and_markup_that_has_no_type():
    assert read(lambda request: answer(STORY, "text/plain")).text == STORY
    assert STORY in read(lambda request: answer(article(STORY), "application/octet-stream")).text
    assert STORY in read(lambda request: answer(article(STORY), "text/plain")).text


@pytest.mark.parametrize(
    ("content_type", "body", "kind"),
    [
        ("image/png", b"\x89PNG\r\n" + bytes(100), "unsupported"),
        ("text/html", b"\x89PNG\r\n" + bytes(100), "unsupported"),
        ("application/pdf", b"<html>no PDF</html>", "unsupported"),
        ("application/json", b'{"a": 1}', "unsupported"),
        ("text/css", b"a { b: c }", "unsupported"),
        ("video/mp4", b"", "unsupported"),
        ("text/html", b"", "unreadable"),
        ("text/html", b"   <html></html>  ", "unreadable"),
        ("text/html", b"<html><body><script>app()</script></body></html>", "unreadable"),
        ("application/pdf", b"%PDF-1.7 and then rubbish", "unreadable"),
        ("text/html", b"<" * 50_000, "unreadable"),
        ("text/html", b"<div>" * 30_000 + b"deep", "unreadable"),
    ],
)
def test_what_holds_no_text_is_that_pages_failure(content_type, body, kind):
    found = read(lambda request: answer(body, content_type))
    assert isinstance(found, Failure)
    assert found.kind == kind
    assert found.reason


def test_a_page_of_bytes_in_no_encoding_has_replacement_characters():
    found = read(lambda request: answer(b"<!doctype html><html><p>" + b"\xff\xfe\x80" * 3000, "text/html"))
    assert not isinstance(found, Failure)
    assert set(found.text) == {"\ufffd"}


@pytest.mark.parametrize(
    ("encoding", "header", "meta"),
    [
        ("utf-8", "text/html", ""),
        ("utf-8", "text/html; charset=iso-8859-1", ""),  # a server that claims it of all its pages
        ("iso-8859-2", "text/html; charset=iso-8859-2", ""),
        ("iso-8859-2", "text/html", '<meta charset="iso-8859-2">'),
        ("cp1250", "text/html", '<meta http-equiv="Content-Type" content="text/html; charset=windows-1250">'),
        ("utf-16", "text/html", ""),
        ("utf-8-sig", "text/html; charset=nonsense", ""),
        ("utf-8", "text/html; charset=base64", '<meta charset="zlib">'),
        ("iso-8859-2", "text/html; charset=idna", '<meta charset="iso-8859-2">'),
        ("iso-8859-2", "text/html; charset=undefined", '<meta charset="iso-8859-2">'),
        ("iso-8859-2", "text/html; charset=Punycode", '<meta charset="iso-8859-2">'),
        ("iso-8859-2", "text/html; charset=rot13", '<meta charset="iso-8859-2">'),
    ],
)
def test_encodings(encoding, header, meta):
    text = "Żółta łódź płynęła po Wiśle z Krakowa do Gdańska przez cały tydzień."
    body = html(f"<article><p>{text}</p></article>", meta).encode(encoding)
    assert text in read(lambda request: answer(body, header)).text


def test_an_encoding_that_nobody_names_is_guessed():
    text = "Исследователи обнаружили новый вид бабочек в горах Кавказа прошлым летом. " * 5
    assert text.strip() in read(lambda request: answer(text.encode("cp1251"), "text/plain")).text


CHARSETS = sorted(module.name for module in pkgutil.iter_modules(encodings.__path__))


@given(st.binary(max_size=60), st.sampled_from(CHARSETS) | st.none() | st.text(max_size=8), st.booleans())
def test_any_bytes_decode(body, charset, meta):
    found = decode(body, charset, meta=meta)
    found.encode("utf-16", "surrogatepass")
    assert len(found) <= len(body)
    if body.isascii() and charset in (None, "ascii", "utf-8", "latin-1") and not meta:
        assert found == body.decode()


@given(st.text(max_size=60), st.sampled_from(CHARSETS) | st.none(), st.booleans())
def test_any_utf_8_decodes_to_its_text_whatever_the_header_says(text, charset, meta):
    body = text.encode()
    found = decode(body, charset, meta=meta)
    assert body.isascii() or found == text.removeprefix("\ufeff")


def test_a_pdf_is_read_by_what_it_is():
    for content_type in ("application/pdf", "application/octet-stream", "text/html"):
        assert STORY in read(lambda request: answer(pdf(STORY), content_type)).text  # noqa: B023


def test_a_long_pdf_is_read_to_a_limit():
    found = read(lambda request: answer(pdf(*(f"This is page {i}." for i in range(120))), "application/pdf"))
    assert "This is page 99." in found.text
    assert "This is page 100." not in found.text
    assert "first 100 pages" in found.note


def test_a_pdf_that_is_too_large_is_left():
    body = pdf(STORY) + bytes(50_000)
    found = read(lambda request: answer(body, "application/pdf"), limits=PageLimits(pdf_size=20_000))
    assert found.kind == "too_large"


def test_an_encrypted_pdf_is_told():
    writer = PdfWriter(clone_from=io.BytesIO(pdf(STORY)))
    writer.encrypt("password", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    assert "encrypted" in read(lambda request: answer(out.getvalue(), "application/pdf")).reason


@pytest.mark.parametrize("status", [401, 402, 403, 451])
def test_a_closed_door(status):
    found = read(lambda request: answer(article("log in"), status=status))
    assert (found.kind, found.attempts) == ("shut", 1)
    assert f"HTTP {status}" in found.reason


def test_a_page_that_says_it_is_paid_for():
    head = '<script type="application/ld+json">{"@type": "NewsArticle", "isAccessibleForFree": "False"}</script>'
    found = read(lambda request: answer(html(f"<article><p>{STORY}</p></article>", head)))
    assert STORY in found.text
    assert "paywall" in found.note


@pytest.mark.parametrize(("status", "kind"), [(404, "not_found"), (410, "not_found"), (500, "server_error")])
def test_other_statuses(status, kind):
    assert read(lambda request: answer(article("sorry"), status=status)).kind == kind


def test_trouble_that_passes_is_waited_for():
    responses = [answer(b"", status=503, **{"Retry-After": "0"}), answer(article(STORY))]
    assert STORY in read(lambda request: responses.pop(0)).text


def test_ten_megabytes_are_read_to_the_limit():
    sent = 0

    async def endless(request):
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": "text/html"})
        await response.prepare(request)
        await response.write(f"<html><body><article><p>{STORY}</p>".encode())
        for sent in range(1000):  # noqa: B007
            await response.write(b"<p>" + b"and so on " * 1000 + b"</p>")
        return response

    found = read(endless, limits=PageLimits(size=200_000))
    assert STORY in found.text
    assert "only the first 200,000 bytes" in found.note
    assert len(found.text) <= 4000
    assert sent < 999


def test_a_compressed_bomb_counts_as_what_it_becomes():
    bomb = gzip.compress(html("<p>" + "boom " * 4_000_000).encode())
    assert len(bomb) < 100_000
    found = read(lambda request: answer(bomb, **{"Content-Encoding": "gzip"}), limits=PageLimits(size=100_000))
    assert isinstance(found, Page)
    assert "only the first 100,000 bytes" in found.note


def test_a_server_that_never_ends_is_left():
    async def drip(request):
        response = web.StreamResponse(headers={"Content-Type": "text/html"})
        await response.prepare(request)
        while True:
            await response.write(b"<p>")
            await asyncio.sleep(0.01)

    begin = time.monotonic()
    found = read(drip, limits=PageLimits(total=0.3))
    assert found.kind == "timeout"
    assert time.monotonic() - begin < 5


def test_no_server_and_no_name():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))

        async def main():
            reader = PageReader(private=HERE, retry=NOW)
            found = [
                await reader.read(f"http://127.0.0.1:{taken.getsockname()[1]}/", "q"),
                await reader.read("http://no-such-host.invalid/", "q"),
            ]
            await reader.close()
            return [failure.kind for failure in found]

        assert asyncio.run(main()) == ["connection", "dns"]


def test_a_page_that_many_want_is_fetched_once():
    async def main():
        async with served(lambda request: answer(article(f"{'Filler text here. ' * 400} {STORY}"))) as server:
            reader = PageReader(private=HERE)
            queries = ["Marie Curie Warsaw", "filler", "Nobel Prizes"]
            found = await asyncio.gather(*(reader.read(server.url + "/", query) for query in queries))
            found.append(await reader.read(server.url + "/", "Warsaw 1867"))
            await reader.close()
            return found, len(server.asked)

    found, asked = asyncio.run(main())
    assert asked == 1
    assert [STORY in page.text for page in found] == [True, False, True, True]
    assert all(len(page.text) <= 4000 for page in found)


def test_so_many_pages_at_once_and_no_more():
    async def slow(request):
        await asyncio.sleep(0.05)
        return answer(article(STORY))

    async def main():
        async with served(slow) as server:
            reader = PageReader(private=HERE, concurrency=3)
            await asyncio.gather(*(reader.read(f"{server.url}/{i}", "q") for i in range(12)))
            await reader.close()
            return server.most_in_flight

    assert asyncio.run(main()) == 3


def test_cookies_are_not_kept_and_we_say_who_we_are():
    async def main():
        async with served(lambda request: answer(article(STORY), **{"Set-Cookie": "id=1"})) as server:
            reader = PageReader(private=HERE)
            for i in range(2):
                await reader.read(f"{server.url}/{i}", "q")
            await reader.close()
            return [request.headers for request in server.asked]

    for headers in asyncio.run(main()):
        assert "fcjax" in headers["User-Agent"]
        assert "Cookie" not in headers


@pytest.mark.parametrize(
    "arguments",
    [
        {"private": ["10.0.0.0/99"]},
        {"private": ["intranet"]},
        {"proxy": "socks5://127.0.0.1"},
        {"length": 5000},
        {"concurrency": 0},
    ],
)
def test_arguments_outside_of_what_is_allowed(arguments):
    with pytest.raises(SettingsError, match="allowed"):
        PageReader(**arguments)
    with pytest.raises(SettingsError, match="allowed"):
        PageLimits(total=0)


def test_a_name_has_all_that_changes_a_text():
    readers = [
        PageReader(),
        PageReader(length=1000),
        PageReader(limits=PageLimits(size=9000)),
        PageReader(limits=PageLimits(redirects=1)),
        PageReader(private=HERE),
    ]
    assert len({reader.name for reader in readers}) == 5
    assert PageReader(limits=PageLimits(total=9)).name == PageReader().name


# ---- Excerpts.


@given(st.text(max_size=300), st.text(max_size=20), st.integers(1, 80))
def test_an_excerpt_is_a_part_of_the_text_and_short_enough(text, query, length):
    found = excerpt(text, query, length)
    assert found in text
    assert len(found) <= length
    if len(text.strip()) <= length:
        assert found == text.strip()


@pytest.mark.parametrize(
    ("fact", "query"),
    [
        (STORY, "When was Marie Curie born?"),
        ("玛丽居里出生于华沙。", "居里 出生 在 哪里 华沙"),
        ("マリー・キュリーはワルシャワで生まれた。", "キュリーはどこで生まれたか"),
        ("وُلدت ماري كوري في وارسو عام 1867.", "ماري كوري وارسو"),
    ],
)
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_an_excerpt_has_the_place_that_the_query_asks_for(fact, query, place):
    filler = ["The committee met on a rainy day, and nothing of note was said by anyone there. "] * 200
    filler.insert(int(place * len(filler)), f"\n{fact}\n")
    found = excerpt("".join(filler), query)
    assert fact in found
    assert len(found) > 3000


def test_of_equals_the_first_is_taken():
    text = "\n".join(f"line {chr(97 + i % 26)}{i}" for i in range(2000))
    assert excerpt(text, "nothing of this", 200).startswith("line a0\n")
    assert excerpt(text, "", 200).startswith("line a0\n")
