"""Settings: precedence, sources, limits, and the documentation of each setting."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from logserver.config import SETTINGS, Address, Settings, load_settings
from logserver.errors import SettingsError


def test_defaults_need_nothing() -> None:
    settings = load_settings({}, {})
    assert settings == Settings(sources=settings.sources)
    assert set(settings.sources) == set(SETTINGS)
    assert set(settings.sources.values()) == {"default"}


def test_each_field_has_a_row_and_each_row_a_field() -> None:
    fields = {field.name for field in dataclasses.fields(Settings)} - {"sources"}
    assert fields == set(SETTINGS)


def test_a_flag_goes_before_the_environment_before_the_file(tmp_path: Path) -> None:
    toml = tmp_path / "settings.toml"
    toml.write_text('flush = "os"\nopen_files = 100\nmax_wait_ms = 1\n')
    environ = {"LOGSERVER_FLUSH": "async", "LOGSERVER_OPEN_FILES": "200", "LOGSERVER_ELSE": "x"}
    settings = load_settings({"flush": "sync", "open_files": None}, environ, toml)
    assert (settings.flush, settings.sources["flush"]) == ("sync", "flag")
    assert (settings.open_files, settings.sources["open_files"]) == (200, "environment")
    assert (settings.max_wait_ms, settings.sources["max_wait_ms"]) == (1, "file")


def test_store_options_are_merged_name_by_name(tmp_path: Path) -> None:
    toml = tmp_path / "settings.toml"
    toml.write_text('[set]\n"a" = 1\n"b" = true\n"c" = "x"\n')
    environ = {"LOGSERVER_SET": "b=from env;d=a=b"}
    settings = load_settings({"set": ("c=flag,with comma", "e=")}, environ, toml)
    assert settings.set == {
        "a": "1",
        "b": "from env",
        "c": "flag,with comma",
        "d": "a=b",
        "e": "",
    }
    sources = {name: settings.sources[f"set.{name}"] for name in settings.set}
    assert sources == {
        "a": "file",
        "b": "environment",
        "c": "flag",
        "d": "environment",
        "e": "flag",
    }


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("localhost:65535", Address("localhost", 65535)),
        ("[::1]:8082", Address("::1", 8082)),
    ],
)
def test_an_address_is_read_and_written(text: str, address: Address) -> None:
    settings = load_settings({"listen": text}, {})
    assert settings.listen == address
    assert str(address) == text
    assert address.is_loopback


@pytest.mark.parametrize(
    "text", ["", ":80", "host", "host:", "host:x", "host:-1", "host:65536", "host:1.5"]
)
def test_a_bad_address_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="HOST:PORT"):
        load_settings({"listen": text}, {})


@pytest.mark.parametrize("text", ["0.0.0.0:80", "[::]:80", "192.168.1.5:80", "example.org:80"])
def test_an_address_that_others_reach_must_be_allowed(text: str) -> None:
    with pytest.raises(SettingsError, match="insecure"):
        load_settings({"listen": text}, {})
    assert str(load_settings({"listen": text, "insecure": True}, {}).listen) == text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flush", "sometimes"),
        ("flush_interval_ms", "0"),
        ("flush_interval_ms", "1.5"),
        ("flush_interval_ms", True),
        ("open_files", "99999999999999999999999"),
        ("read_only", "maybe"),
        ("data", ""),
        ("data", "a\0b"),
        ("set", ("novalue",)),
        ("set", ("=x",)),
        ("set", {"a": []}),
        ("set", 5),
        ("log_level", "loud"),
        ("max_in_flight_bytes", "2000"),
    ],
)
def test_a_bad_value_names_setting_and_source(name: str, value: object) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({name: value}, {})
    assert caught.value.facts() == {"setting": name, "source": "flag"}
    assert name in caught.value.message


@pytest.mark.parametrize("given", [("a=1", "foo"), ["foo"], "a=1;foo"])
def test_a_bad_store_option_is_shown_by_itself(given: object) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"set": given}, {})
    assert caught.value.message == "setting set (flag) is 'foo': it must be NAME=VALUE"


@pytest.mark.parametrize("ephemeral", [{"ephemeral": True}, {}])
def test_a_directory_that_would_not_be_served_is_refused(ephemeral: dict[str, object]) -> None:
    """A container gives both by the environment: there the more special one wins."""
    environment = {"LOGSERVER_EPHEMERAL": "true", "LOGSERVER_DATA": "/data"}
    assert load_settings(ephemeral, environment).ephemeral
    with pytest.raises(SettingsError, match=r"setting data .flag. excludes ephemeral"):
        load_settings({"data": "x", **ephemeral}, environment)


def test_unknown_names_are_refused_where_they_are_ours(tmp_path: Path) -> None:
    toml = tmp_path / "settings.toml"
    toml.write_text("colour = 1\n")
    with pytest.raises(SettingsError, match=r"colour.*file"):
        load_settings({}, {}, toml)
    with pytest.raises(SettingsError, match=r"colour.*flag"):
        load_settings({"colour": "1"}, {})


@pytest.mark.parametrize("content", [b"flush = ", b"\xff", None])
def test_a_bad_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    toml = tmp_path / "settings.toml"
    if content is not None:
        toml.write_bytes(content)
    with pytest.raises(SettingsError, match=re.escape(str(toml))):
        load_settings({}, {}, toml)


@pytest.mark.parametrize("other", ["write", "accept_loss"])
def test_read_only_excludes_what_writes(other: str) -> None:
    with pytest.raises(SettingsError, match="read_only"):
        load_settings({"read_only": True, other: True}, {})


def test_booleans_in_the_environment() -> None:
    for text, value in (("1", True), ("TRUE", True), ("no", False), ("off", False)):
        assert load_settings({}, {"LOGSERVER_INSECURE": text}).insecure is value


def test_every_setting_is_documented_with_its_default(repo_root: Path) -> None:
    page = (repo_root / "docs/settings.md").read_text()
    of_server = page.partition("## Settings of the server")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|(.*?)\|(.*)\|$", of_server, re.MULTILINE)
    assert [name for name, _, _ in rows] == list(SETTINGS)
    defaults = Settings()
    for name, default, about in rows:
        value = getattr(defaults, name)
        shown = str(value).lower() if isinstance(value, int) else str(value or "")
        assert default.strip(" `") == shown, name
        assert about.strip().startswith(SETTINGS[name][1].rstrip(".)")), name
