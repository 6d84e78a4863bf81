"""Domains: which links they stand for, whatever the spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcjax.core.errors import SettingsError
from fcjax.io.retrievers.domains import Domains, host, read_priors

LABELS = st.text("abcxyz019", min_size=1, max_size=5)
NAMES = st.lists(LABELS, min_size=2, max_size=4).map(".".join)


@pytest.mark.parametrize(
    ("listed", "link", "stands"),
    [
        ("example.org", "https://example.org/page", True),
        ("example.org", "https://www.example.org:8080/page?q=1", True),
        ("example.org", "HTTP://WWW.EXAMPLE.ORG", True),
        ("example.org", "https://example.org./", True),
        ("example.org", "//a.b.example.org/x", True),
        ("example.org", "www.example.org/x", True),
        ("example.org", "https://badexample.org", False),
        ("example.org", "https://example.org.evil.com", False),
        ("example.org", "https://evil.com/example.org", False),
        ("example.org", "https://example.org@evil.com/", False),
        ("example.org", "https://evil.com/?u=https://example.org", False),
        ("www.example.org", "https://example.org", False),
        ("*.example.org", "https://example.org", True),
        (".EXAMPLE.org.", "https://a.example.org", True),
        ("bücher.example", "https://www.xn--bcher-kva.example/", True),
        ("xn--bcher-kva.example", "https://bücher.example/", True),
        ("BÜCHER.example", "https://bücher.example/", True),
        ("org", "https://example.org", True),
        ("10.0.0.1", "http://10.0.0.1/", True),
        ("0.1", "http://10.0.0.1/", False),
        ("example.org", None, False),
        ("example.org", "", False),
        ("example.org", "Encyclopaedia, volume 3", False),
        ("example.org", "file:///example.org", False),
        ("example.org", "http://[::1", False),
    ],
)
def test_what_a_domain_stands_for(listed, link, stands):
    assert Domains(allow=[listed]).admits(link) == stands
    assert Domains(deny=[listed]).admits(link) != stands
    assert Domains(priors={listed: 0.3}).prior(link) == (0.3 if stands else None)


def test_without_lists_everything_is_admitted():
    for link in ("https://example.org", None, "", "a book"):
        assert Domains().admits(link)
        assert Domains().prior(link) is None
    assert not Domains().restricted
    assert not Domains(allow=[]).admits("https://example.org")  # an empty list allows nothing


def test_deny_wins():
    domains = Domains(allow=["example.org"], deny=["forum.example.org"])
    links = ["https://example.org", "https://a.forum.example.org", "https://other.org"]
    assert [domains.admits(link) for link in links] == [True, False, False]


@given(NAMES, LABELS, st.floats(0, 1), st.floats(0, 1))
def test_the_longest_domain_wins(name, label, p, q):
    domains = Domains(priors={name: p, f"{label}.{name}": q})
    assert domains.prior(f"https://{name}/x") == p
    assert domains.prior(f"https://{label}.{name}/x") == q
    assert domains.prior(f"https://more.{label}.{name}/x") == q
    assert domains.prior(f"https://{label}{name}") is None or label + name == name


@given(NAMES, st.sampled_from(["https://{}", "HTTP://{}:80/a?b#c", "//{}/x", "{}/x", "https://a@{}./", " https://{} "]))
def test_the_host_of_a_link_in_any_form(name, form):
    found = f"{name}.example.org"
    assert host(form.format(found)) == host(form.format(found.upper())) == found


@given(st.text(max_size=40) | NAMES.map("https://{}/x".format) | LABELS.map("https://{}.example.org".format))
def test_any_text_may_be_a_link(link):
    found, domains = host(link), Domains(allow=["example.org"], priors={"example.org": 0.5})
    inside = found is not None and f".{found}".endswith(".example.org")
    assert found is None or (found and found == found.lower() and not set("/?#@ ") & set(found))
    assert domains.admits(link) == inside
    assert domains.prior(link) == (0.5 if inside else None)
    assert Domains(deny=["example.org"]).admits(link) != inside


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.toml", '"example.org" = 0.9\n"news.example.org" = 1\n'),
        ("p.toml", '[priors]\n"example.org" = 0.9\n"news.example.org" = 1\n'),
        ("p.json", '{"example.org": 0.9, "news.example.org": 1}'),
        ("p.json", '\ufeff{"priors": {"example.org": 0.9, "news.example.org": 1}}'),
        ("p.csv", "domain,prior\nexample.org,0.9\n\nnews.example.org, 1\n"),
        ("p.csv", "# ours\nexample.org,0.9\r\nnews.example.org,1\r\n"),
    ],
)
def test_priors_from_files(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert read_priors(tmp_path / name) == {"example.org": 0.9, "news.example.org": 1.0}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.toml", '"example.org" = 1.2', "the prior of 'example.org' is 1.2; allowed: a number from 0 to 1"),
        ("p.toml", '"example.org" = true', "is True; allowed: a number"),
        ("p.toml", "example.org = 0.5", "the prior of 'example' is"),
        ("p.toml", "= 1", "not a valid table of priors"),
        ("p.json", '{"example.org": "high"}', "is 'high'; allowed"),
        ("p.json", '{"example.org": NaN}', "is nan; allowed"),
        ("p.json", '{"a.org": 0.1, "a.org": 0.2}', "occurs twice in it"),
        ("p.json", '{"a.org": 0.1, "A.org.": 0.2}', "a.org has two priors, 0.1 and 0.2"),
        ("p.json", "[1]", "is a list; allowed: a table"),
        ("p.json", "3", "is a int; allowed: a table"),
        ("p.json", "{", "not a valid table of priors"),
        ("p.csv", "example.org,0.5,1", "has 3 columns"),
        ("p.csv", "example.org,high", "is 'high'; allowed"),
        ("p.csv", "https://example.org/,0.5", "has 'https://example.org/'; allowed: a domain such as"),
        ("p.csv", "\ud800".encode("utf-16", "surrogatepass"), "not a valid table of priors"),
        ("p.xlsx", "x", "read from .toml, .json and .csv"),
    ],
)
def test_what_is_no_table_of_priors_is_told(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SettingsError) as caught:
        read_priors(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(SettingsError, match="cannot be read"):
        read_priors(tmp_path / "none.toml")


@pytest.mark.parametrize(
    "given", ["", " ", "*", "a b.org", "https://example.org", "example.org/x", "a..b", "exa_mple!.org", 3, None, "@"]
)
def test_what_is_no_domain_is_told(given):
    for arguments in ({"allow": [given]}, {"deny": [given]}, {"priors": {given: 0.5}}):
        with pytest.raises(SettingsError, match="allowed: a domain such as example.org"):
            Domains(**arguments)
    with pytest.raises(SettingsError, match="allowed: a list of domains"):
        Domains(deny="example.org")


def test_a_name_stands_for_the_lists_whatever_their_order():
    one = Domains(allow=["a.org", "b.org"], deny=["c.org"], priors={"a.org": 0.1})
    assert one.name == Domains(allow=["B.org", "a.org"], deny=["*.c.org"]).name
    others = [Domains(), Domains(allow=[]), Domains(allow=["a.org", "b.org"]), Domains(deny=["a.org", "b.org"])]
    assert len({one.name, *(other.name for other in others)}) == 5
