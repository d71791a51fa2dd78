"""The sources of settings, their order, and the errors for wrong ones."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError
from server.config import Config
from server.config.load import load, setting_paths
from server.config.show import show
from server.config.types import MASK

HOME = """
[[home.areas]]
id = "lab"
names = {{ en = ["lab"] }}
[[home.entities]]
id = "lamp"
area = "{area}"
kind = "light"
names = {{ en = ["lamp"] }}
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "earshot.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_defaults_need_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    effective = load({})
    assert effective.config == Config()
    assert effective.origins == {}
    assert effective.config.server.host == "127.0.0.1"


def test_later_sources_win(tmp_path: Path) -> None:
    file = write(tmp_path, "[server]\nport = 1\nhost = '127.0.0.2'\n[turn]\nsilence_ms = 700")
    effective = load(
        {"EARSHOT_PORT": "2", "EARSHOT_TURN__SILENCE_MS": "800"},
        file=file,
        flags={"--port": "3"},
    )
    config = effective.config
    assert (config.server.host, config.server.port, config.turn.silence_ms) == ("127.0.0.2", 3, 800)
    assert effective.origins[("server", "port")] == "flag:--port"
    assert effective.origins[("server", "host")] == f"file:{file}"
    assert effective.origins[("turn", "silence_ms")] == "env:EARSHOT_TURN__SILENCE_MS"


@pytest.mark.parametrize(
    ("environ", "path", "value"),
    [
        ({"EARSHOT_SERVER__PORT": "9"}, ("server", "port"), 9),
        ({"EARSHOT_MODELS_DIR": "/m"}, ("paths", "models_dir"), "/m"),
        ({"EARSHOT_LANGUAGE": "de"}, ("language",), "de"),
        ({"EARSHOT_LOG__JSON": "true"}, ("log", "json"), True),
        ({"EARSHOT_ALLOWED_HOSTS": "a.b, c.d"}, ("server", "allowed_hosts"), ("a.b", "c.d")),
        ({"EARSHOT_TURN__THRESHOLD": "0.25"}, ("turn", "threshold"), 0.25),
        ({"EARSHOT_ASR__OPTIONS__BEAM": "5"}, ("asr", "options"), {"beam": 5}),
        ({"EARSHOT_ASR__OPTIONS__MODEL": "a/b"}, ("asr", "options"), {"model": "a/b"}),
        ({"EARSHOT_ASR__OPTIONS": "{beam = 5}"}, ("asr", "options"), {"beam": 5}),
        ({"XDG_STATE_HOME": "/x"}, ("paths", "state_dir"), "/x/earshot"),
        ({"XDG_STATE_HOME": "/x", "EARSHOT_STATE_DIR": "/y"}, ("paths", "state_dir"), "/y"),
        ({"EARSHOT_CI_STRICT": "1"}, ("language",), "en"),
    ],
)
def test_environment_variables_set_values(
    environ: dict[str, str],
    path: tuple[str, ...],
    value: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    found: Any = load(environ).config
    for name in path:
        found = getattr(found, name)
    assert found == value


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"EARSHOT_PORT": "x"}, "EARSHOT_PORT: expected int in [0, 65535], got 'x'"),
        ({"EARSHOT_PORT": "70000"}, "EARSHOT_PORT: expected int in [0, 65535], got '70000'"),
        (
            {"EARSHOT_TURN__SILENCE_MSEC": "5"},
            "EARSHOT_TURN__SILENCE_MSEC: unknown setting (did you mean EARSHOT_TURN__SILENCE_MS?)",
        ),
        ({"EARSHOT_PROT": "5"}, "EARSHOT_PROT: unknown setting (did you mean EARSHOT_PORT?)"),
        ({"EARSHOT_TURN": "5"}, "EARSHOT_TURN: unknown setting"),
        ({"EARSHOT_PORT__X": "5"}, "EARSHOT_PORT__X: unknown setting"),
        (
            {"EARSHOT_LOG__LEVEL": "loud"},
            "EARSHOT_LOG__LEVEL: expected one of 'debug', 'error', 'info', 'warning', got 'loud'",
        ),
        (
            {"EARSHOT_LANGUAGE": "german"},
            "EARSHOT_LANGUAGE: expected a language code like 'en', got 'german'",
        ),
        (
            {"EARSHOT_API_KEY": "tooshort"},
            "EARSHOT_API_KEY: expected 16 to 256 of A-Z a-z 0-9 . _ ~ -, got something else",
        ),
        ({"EARSHOT_HOST": "\udcff"}, "EARSHOT_HOST: not UTF-8"),
        ({"EARSHOT_ASR__OPTIONS__MODEL": "/a\udcff"}, "EARSHOT_ASR__OPTIONS__MODEL: not UTF-8"),
        ({"XDG_STATE_HOME": "/\udcff"}, "XDG_STATE_HOME: not UTF-8"),
    ],
)
def test_a_wrong_variable_is_named(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[turn]\nsilence_msec = 1",
            "config.turn: unknown key 'silence_msec' (did you mean silence_ms?)",
        ),
        ("[servr]\nport = 1", "config: unknown key 'servr' (did you mean server?)"),
        ("server = 3", "config.server: expected a table, got 3"),
        ("[server]\nport = '80'", "config.server.port: expected int in [0, 65535], got '80'"),
        ("[server]\nport = -1", "config.server.port: expected int in [0, 65535], got -1"),
        ("[turn]\nsilence_ms = 9", "config.turn.silence_ms: expected int in [100, 5000], got 9"),
        ("[log]\njson = 1", "config.log.json: expected true or false, got 1"),
        ("[server]\nallowed_hosts = [1]", "config.server.allowed_hosts[0]: expected 'str'"),
        (
            "[server]\ntls = 'on'",
            "config.server.tls: expected off, auto or CERT.pem:KEY.pem, got 'on'",
        ),
        ("[home_assistant]\nurl = 'http://[x'", "config.home_assistant.url: not a valid URL: "),
        ("[home_assistant]\nurl = 'http://x:y'", "config.home_assistant.url: not a valid URL: "),
        ("[tools.mcp.a]\nurl = 'http://[x'", "config.tools.mcp: url cannot be read: "),
        ("[tools.mcp.a]\nurl = 'http://x:66666'", "config.tools.mcp: url cannot be read: "),
        ("[[home.areas]]\nid = 'x'\nnmes = 1", "config.home.areas[0]: unknown key 'nmes'"),
        (HOME.format(area="attic"), "config.home.entities: 'lamp' is in unknown area 'attic'"),
    ],
)
def test_a_wrong_key_of_a_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load({}, file=write(tmp_path, text))
    assert str(caught.value).startswith(message)


def test_a_wrong_flag_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^--port: expected int in \[0, 65535\], got 'x'$"):
        load({}, flags={"--port": "x"})


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load({"EARSHOT_PORT": "x"}, file=write(tmp_path, "prot = 1\n[turn]\nsilence_ms = 1"))
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("text", ["[turn", "\xff".encode("latin-1"), None])
def test_an_unreadable_file_is_named(text: str | bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=r"broken\.toml: "):
        load({"EARSHOT_CONFIG": str(file)})


def test_a_home_of_the_users_own_is_loaded(tmp_path: Path) -> None:
    home = load({}, file=write(tmp_path, HOME.format(area="lab"))).config.home
    assert home is not None
    assert [entity.id for entity in home.entities] == ["lamp"]


def test_the_shown_configuration_reads_back_unchanged(tmp_path: Path) -> None:
    text = 'language = "de"\n[asr.options]\nmodel = "a\\u0001\\"b\\u007f"\nbeam = 2\n'
    first = load({"EARSHOT_PORT": "1"}, file=write(tmp_path, text + HOME.format(area="lab")))
    again = load({}, file=write(tmp_path, show(first)))
    assert again.config == first.config


def test_secrets_are_masked_and_sources_are_shown(tmp_path: Path) -> None:
    effective = load(
        {"EARSHOT_API_KEY": "k" * 20, "EARSHOT_LLM__OPTIONS__API_KEY": "s" * 20},
        file=write(tmp_path, "[server]\nport = 5"),
    )
    shown = show(effective)
    assert "k" * 20 not in shown
    assert "s" * 20 not in shown
    assert shown.count(MASK) == 2
    assert "env:EARSHOT_API_KEY" in shown
    assert f"file:{tmp_path}/earshot.toml" in shown
    assert "k" * 20 not in repr(effective.config)


def test_every_setting_is_shown_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = show(load({}))
    tomllib.loads(shown)
    settings = list(setting_paths())
    sentences = [line for line in shown.splitlines() if line.endswith("; default)")]
    assert len(sentences) == len(settings) > 25
    assert "(off, auto or CERT.pem:KEY.pem; default)" in shown
    assert all(line[2].isupper() or line[2].islower() for line in sentences)
    assert not [line for line in sentences if line.startswith("#  (")]
