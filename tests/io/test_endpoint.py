"""Where a model is reached: URLs in all spellings, settings from three places, no key where it can be read."""

from __future__ import annotations

import copy

import pytest

from fcjax.core.errors import SettingsError
from fcjax.io.endpoint import OPENAI, Endpoint

KEY = "sk-very-secret"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://localhost:8000", "http://localhost:8000/v1"),
        ("http://localhost:8000/", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1/", "http://localhost:8000/v1"),
        (" http://LOCALHOST:8000/v1/chat/completions ", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1/chat/completions/", "http://localhost:8000/v1"),
        ("http://localhost:8000/chat/completions", "http://localhost:8000"),
        ("HTTPS://api.example.com:443/openai/v1", "https://api.example.com/openai/v1"),
        ("https://example.com/v1beta/openai/", "https://example.com/v1beta/openai"),
        ("http://[::1]:8080", "http://[::1]:8080/v1"),
        ("https://user:secret@example.com/v1", "https://example.com/v1"),
    ],
)
def test_urls(url, name):
    endpoint = Endpoint(url, "m")
    assert endpoint.name == name
    assert endpoint.completions == f"{name}/chat/completions"


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("deployment=a", "?deployment=a"),
        ("deployment=b&api-version=2024-10-21", "?api-version=2024-10-21&deployment=b"),  # sorted by name
        ("key=AIzaSyD-0123456789&deployment=a", "?deployment=a"),
        ("sig=abc&code=x&subscription-key=1&Token=t", ""),
        ("route=sk-0123456789abcdef", ""),  # by the look of the value
        ("flag&x=2&x=1", "?flag&x=2&x=1"),
        ("", ""),
    ],
)
def test_the_name_has_what_chooses_the_answer_in_the_query_and_no_secret(query, shown):
    endpoint = Endpoint(f"https://example.com/v1?{query}", "m")
    assert endpoint.name == f"https://example.com/v1{shown}"
    sent = f"?{query}" if query else ""
    assert endpoint.completions == f"https://example.com/v1/chat/completions{sent}"
    assert endpoint.models == f"https://example.com/v1/models{sent}"


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://h/v1", "http://", "http://h:port", "http://[::1", "v1"])
def test_urls_that_cannot_be_used(url):
    with pytest.raises(SettingsError, match="allowed: http://HOST:PORT/v1"):
        Endpoint(url, "m")


def test_password_in_a_bad_url_is_not_repeated():
    with pytest.raises(SettingsError) as caught:
        Endpoint("ftp://user:secret@h", "m")
    assert "secret" not in str(caught.value)


def test_credentials():
    assert Endpoint("http://h", "m").headers == {}
    assert Endpoint("http://h", "m", f" {KEY}\n").headers == {"Authorization": f"Bearer {KEY}"}
    assert Endpoint("http://ann:p%40ss@h", "m").headers == {"Authorization": "Basic YW5uOnBAc3M="}
    assert Endpoint("http://ann:pass@h", "m", KEY).headers == {"Authorization": f"Bearer {KEY}"}


@pytest.mark.parametrize("key", ["a b", "schlüssel", "a\nb"])
def test_keys_that_cannot_be_used_are_not_repeated(key):
    with pytest.raises(SettingsError, match="API key") as caught:
        Endpoint("http://h", "m", key)
    assert key not in str(caught.value)


def test_repr_and_messages_hold_no_secret():
    endpoint = Endpoint("http://ann:pass@h?token=abc", "m", KEY, {"user": "ann"})
    for words in (repr(endpoint), str(copy.copy(endpoint)), endpoint.scrubbed(f"wrong key {KEY}")):
        assert KEY not in words
        assert "pass" not in words
        assert "abc" not in words


def test_secrets_are_all_that_is_sent_to_be_let_in():
    endpoint = Endpoint("http://ann:p%40ssword@h?api-version=2024-10-21&code=a%2Fbcdefg&x=1", "m")
    said = "no p@ssword p%40ssword a/bcdefg a%2Fbcdefg, but 2024-10-21 and 1"
    assert endpoint.scrubbed(said) == "no *** *** *** ***, but 2024-10-21 and 1"


def test_environment():
    env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://h", "FCJAX_MODEL": "m"}
    endpoint = Endpoint.from_env(env=env)
    assert (endpoint.name, endpoint.model, endpoint.key) == ("http://h/v1", "m", KEY)
    assert Endpoint.from_env(model="m", env={"OPENAI_API_KEY": KEY}).name == OPENAI
    assert Endpoint.from_env("http://other", "n", env=env).name == "http://other/v1"


def test_config_file(tmp_path):
    config = tmp_path / "endpoint.toml"
    config.write_text('base_url = "http://f"\nmodel = "fm"\napi_key_env = "MY_KEY"\n[options]\nseed = 1\n')
    env = {"OPENAI_API_KEY": "other", "OPENAI_BASE_URL": "http://h", "MY_KEY": KEY}
    endpoint = Endpoint.from_env(config=config, env=env)
    assert (endpoint.name, endpoint.model, endpoint.key) == ("http://f/v1", "fm", KEY)
    assert endpoint.options == {"seed": 1}
    assert Endpoint.from_env("http://g", "gm", config, env=env).name == "http://g/v1"
    with pytest.raises(SettingsError, match="MY_KEY, which is not set"):
        Endpoint.from_env(config=config, env={})


@pytest.mark.parametrize(
    "options",
    [
        f'api_key = "{KEY}"',
        f'apikey = "{KEY}"',
        f'token = "{KEY}"',
        f'azure_ad_token = "{KEY}"',
        f'aws_secret_access_key = "{KEY}"',
        f'extra_headers = {{Authorization = "{KEY}"}}',
        f'list = [{{X-Api-Key = "{KEY}"}}]',
    ],
)
def test_secrets_among_the_options_are_refused_and_not_repeated(tmp_path, options):
    config = tmp_path / "endpoint.toml"
    config.write_text(f"[options]\n{options}\n")
    with pytest.raises(SettingsError, match=r"options\.\S+ looks like a secret.*api_key_env") as caught:
        Endpoint.from_env("http://h", "m", config, env={})
    assert KEY not in str(caught.value)


def test_options_that_only_sound_like_secrets_are_taken():
    options = {
        "max_completion_tokens": 5,
        "skip_special_tokens": True,
        "eos_token": "</s>",
        "prompt_cache_key": "fcjax",
        "response_format": {"properties": {"password": {"type": "string"}}},
    }
    assert Endpoint("http://h", "m", options=options).options == options


@pytest.mark.parametrize("option", ["model", "messages", "n", "stream", "logprobs", "top_logprobs"])
def test_options_that_would_change_what_is_asked_are_refused(tmp_path, option):
    config = tmp_path / "endpoint.toml"
    config.write_text(f"[options]\nseed = 1\n{option} = 2\n")
    with pytest.raises(SettingsError, match=rf"options\.{option} is set.*allowed: any field other than model, "):
        Endpoint.from_env("http://h", "m", config, env={})


def test_a_key_in_the_place_of_its_variable_is_not_repeated(tmp_path):
    config = tmp_path / "endpoint.toml"
    config.write_text(f'api_key_env = "{KEY}"\n')
    with pytest.raises(SettingsError, match="api_key_env names something that is not a variable name") as caught:
        Endpoint.from_env("http://h", "m", config, env={})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("api_key = 'sk-x'", "set api_key_env to the name of the variable that holds it"),
        ("url = 'http://h'", "'url' is unknown; allowed: base_url"),
        ("model = 3", "model is 3; allowed: a string"),
        ("options = 'x'", "allowed: a string, or a table for options"),
        ("model =", "is not valid TOML"),
    ],
)
def test_config_faults(tmp_path, text, words):
    config = tmp_path / "endpoint.toml"
    config.write_text(text)
    with pytest.raises(SettingsError, match=words) as caught:
        Endpoint.from_env("http://h", "m", config, env={})
    assert "endpoint.toml" in str(caught.value)


def test_config_that_is_missing(tmp_path):
    with pytest.raises(SettingsError, match=r"none\.toml: cannot be read \(No such file"):
        Endpoint.from_env(config=tmp_path / "none.toml", env={})


def test_what_is_missing_is_said():
    with pytest.raises(SettingsError, match="set OPENAI_BASE_URL or OPENAI_API_KEY"):
        Endpoint.from_env(model="m", env={})
    with pytest.raises(SettingsError, match="no model given; specify one with --model, or set FCJAX_MODEL"):
        Endpoint.from_env("http://h", env={})
