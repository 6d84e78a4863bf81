"""Proxies that the environment names: which requests go through them, and what is said of one that cannot be used."""

from __future__ import annotations

import asyncio

import pytest

from fcjax.core.errors import SettingsError
from fcjax.core.prompts import Failure, Prompt
from fcjax.io.endpoint import Endpoint
from fcjax.io.http import HttpTransport, behind_proxy
from fcjax.io.models import list_models
from fcjax.io.outcome import Refused

VARIABLES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY")


@pytest.fixture
def environ(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY"])
@pytest.mark.parametrize("value", ["127.0.0.1:8080", "proxy", "proxy:8080", "socks5://h:1080", "http://", "http://h:x"])
def test_a_proxy_that_is_no_url_is_named_by_its_variable(environ, variable, value):
    environ.setenv(variable, value)
    with pytest.raises(SettingsError, match=f"the environment variable {variable} .*expected: http://HOST:PORT"):
        behind_proxy("http://model.example/v1")
    assert not behind_proxy("https://model.example/v1")


def test_a_bad_proxy_is_the_reason_of_a_failure(environ):
    environ.setenv("http_proxy", "ann:secret@127.0.0.1:8080")
    endpoint = Endpoint("http://model.example/v1", "m")

    async def main():
        transport = HttpTransport(endpoint)
        try:
            prompt = Prompt(messages=(("user", "?"),), template="test/1")
            return await transport.send(prompt), await list_models(endpoint)
        finally:
            await transport.close()

    sent, listed = asyncio.run(main())
    assert isinstance(sent, Refused)
    assert isinstance(listed, Failure)
    for reason in (sent.reason, listed.reason):
        assert "http_proxy" in reason
        assert "base URL" not in reason
        assert "secret" not in reason


@pytest.mark.parametrize(
    ("direct", "host"),
    [
        ("10.99.0.0/16", "10.99.3.4"),
        ("a.example, 10.99.0.0/16", "10.99.3.4"),
        ("10.99.3.4/16", "10.99.200.1"),  # with bits of a host
        ("fd00::/8", "[fd12::1]"),
        ("10.99.3.4", "10.99.3.4"),
        ("example.org", "model.example.org"),
        ("*", "model.example"),
    ],
)
def test_hosts_in_no_proxy_are_reached_directly(environ, direct, host):
    environ.setenv("http_proxy", "http://127.0.0.1:8080")
    environ.setenv("no_proxy", direct)
    assert not behind_proxy(f"http://{host}/v1")


@pytest.mark.parametrize(
    ("direct", "host"),
    [
        ("10.99.0.0/16", "10.98.3.4"),
        ("10.99.0.0/16", "model.example"),
        ("10.99.0.0/99", "10.99.3.4"),
        ("fd00::/8", "10.99.3.4"),
        ("", "10.99.3.4"),
    ],
)
def test_the_rest_goes_through_the_proxy(environ, direct, host):
    environ.setenv("http_proxy", "http://127.0.0.1:8080")
    environ.setenv("no_proxy", direct)
    assert behind_proxy(f"http://{host}/v1")


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]"])
def test_this_machine_needs_no_proxy(environ, host):
    environ.setenv("http_proxy", "http://10.0.0.1:8080")
    assert not behind_proxy(f"http://{host}/v1")
