"""The settings as a form: values, sources, checks, and the file after a save."""

import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.errors import Conflict, RequestError
from server.config import Config
from server.settings.file import NO_FILE
from server.settings.schema import ON_PAGE, SettingField, field_docs, page_settings
from server.settings.service import SettingsService
from tests.server.settings.harness import Host, service

HYBRID = """\
[llm]
engine = "hybrid"
[llm.options.model.options]
base_url = "http://127.0.0.1:11434/v1"
api_key = "sk-hush"
"""
OPTIONS = "llm.options.model.options"


def fields_of(settings: SettingsService) -> dict[str, SettingField]:
    return {one.key: one for one in settings.report().fields}


def test_every_setting_of_the_page_is_described(tmp_path: Path) -> None:
    for field in service(tmp_path, HYBRID).report().fields:
        assert field.help, field.key
        assert field.label, field.key
        assert field.allowed, field.key


def test_each_section_of_the_page_exists() -> None:
    keys = [one.path for one in page_settings(msgspec.to_builtins(Config()))]
    for part in ON_PAGE:
        if part != ("llm", "options"):  # `auto` has none
            assert any(path[: len(part)] == part for path in keys), part


@pytest.mark.parametrize(
    "key",
    [
        "server.host",
        "server.port",
        "server.tls",
        "server.api_key",
        "server.require_key",
        "server.allowed_hosts",
        "paths.state_dir",
        "tools.modules",
        "tools.mcp",
        "trace.path",
        "log.transcripts",
        "home_assistant.token_file",
        f"{OPTIONS}.api_key_file",
        f"{OPTIONS}.extra_body",
    ],
)
def test_what_could_lock_out_or_run_programs_is_not_on_the_page(tmp_path: Path, key: str) -> None:
    settings = service(tmp_path, HYBRID)
    assert key not in fields_of(settings)
    problems = settings.preview({key: "x"}).problems
    assert problems[0].key == key
    assert "may not change" in problems[0].message


def test_values_have_their_source(tmp_path: Path) -> None:
    settings = service(
        tmp_path,
        "[assistant]\nspeed = 1.2\nvoice = 'heart'",
        environ={"EARSHOT_ASSISTANT__SPEED": "0.8"},
    )
    fields = fields_of(settings)
    speed, voice, echo = (fields[f"assistant.{name}"] for name in ("speed", "voice", "echo"))
    assert (speed.value, speed.source, speed.is_locked) == (0.8, "EARSHOT_ASSISTANT__SPEED", True)
    assert (voice.value, voice.source, voice.is_locked) == ("heart", "file", False)
    assert (echo.value, echo.source) == ("off", "default")
    assert settings.preview({"assistant.speed": 1}).problems[0].key == "assistant.speed"


def test_an_environment_variable_locks_the_options_that_it_sets(tmp_path: Path) -> None:
    environ = {"EARSHOT_LLM__OPTIONS__MODEL": "{ options = { base_url = 'http://h/v1' } }"}
    fields = fields_of(service(tmp_path, "[llm]\nengine = 'hybrid'", environ=environ))
    assert fields[f"{OPTIONS}.base_url"].is_locked
    assert not fields["llm.engine"].is_locked


def test_a_secret_is_never_told(tmp_path: Path) -> None:
    settings = service(tmp_path, HYBRID)
    key = fields_of(settings)[f"{OPTIONS}.api_key"]
    assert (key.type, key.is_set, key.value) == ("secret", True, None)
    change = settings.preview({f"{OPTIONS}.model": "qwen", f"{OPTIONS}.api_key": "sk-other"})
    for told in (settings.report(), change):
        assert b"sk-" not in msgspec.json.encode(told)


def test_a_secret_that_is_left_alone_keeps_its_value(tmp_path: Path) -> None:
    settings = service(tmp_path, HYBRID)
    settings.save({f"{OPTIONS}.model": "qwen"}, settings.report().etag)
    text = (tmp_path / "earshot.toml").read_text()
    assert text == HYBRID + 'model = "qwen"\n'


def test_a_secret_does_not_go_to_another_address(tmp_path: Path) -> None:
    settings = service(tmp_path, HYBRID)
    elsewhere = {f"{OPTIONS}.base_url": "http://elsewhere/v1"}
    assert settings.preview(elsewhere).problems[0].key == f"{OPTIONS}.api_key"
    assert not settings.preview({**elsewhere, f"{OPTIONS}.api_key": None}).problems
    assert not settings.preview({f"{OPTIONS}.base_url": "http://127.0.0.1:11434/v2"}).problems
    assert settings.stored_secret("http://127.0.0.1:11434/v1") == "sk-hush"
    assert settings.stored_secret("http://elsewhere/v1") == ""


def test_another_engine_takes_its_own_options(tmp_path: Path) -> None:
    settings = service(tmp_path, HYBRID)
    change: dict[str, Any] = {"llm.engine": "openai"}
    preview = settings.preview(change)
    assert [one.key for one in preview.problems] == ["llm.options.base_url"]
    assert "llm.options.base_url" in {one.key for one in preview.fields}
    change["llm.options.base_url"] = "http://127.0.0.1:8000/v1"
    settings.save(change, settings.report().etag)
    assert "sk-hush" not in (tmp_path / "earshot.toml").read_text()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("assistant.speed", 9, "expected number in [0.25, 1.5], got 9"),
        ("assistant.speed", "fast", "expected number"),
        ("assistant.voice", "nobody", "no voice 'nobody'"),
        ("llm.engine", "nobody", "expected one of auto, hybrid, openai"),
        ("turn.silence_ms", 1.5, "expected int in [100, 5000]"),
        (f"{OPTIONS}.base_url", "ftp://h", "is not an http:// or https:// address"),
        (f"{OPTIONS}.base_url", None, "a value is needed"),
        (f"{OPTIONS}.max_output_tokens", 0, ">= 1"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, key: str, value: Any, said: str) -> None:
    settings = service(tmp_path, HYBRID.replace('api_key = "sk-hush"\n', ""))
    problems = settings.preview({key: value}).problems
    assert [one.key for one in problems] == [key]
    assert said in problems[0].message
    with pytest.raises(RequestError) as caught:
        settings.save({key: value}, settings.report().etag)
    assert (caught.value.code, caught.value.param) == ("invalid_settings", key)


def test_a_save_is_live_for_new_sessions_and_says_what_waits(tmp_path: Path) -> None:
    host = Host()
    settings = service(tmp_path, host=host)
    report = settings.report()
    assert report.etag == NO_FILE
    saved = settings.save({"assistant.voice": "heart", "turn.silence_ms": 700}, report.etag)
    assert set(saved.applies.values()) == {"new_sessions"}
    assert not saved.needs_restart
    assert host.applied[-1].assistant.voice == "heart"
    assert stat.S_IMODE((tmp_path / "earshot.toml").stat().st_mode) == 0o600
    saved = settings.save({"models.strict": False}, saved.etag)
    assert saved.needs_restart
    assert fields_of(settings)["models.strict"].is_pending
    assert host.applied[-1].models.strict


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    settings = service(tmp_path, "language = 'en'\n")
    etag = settings.report().etag
    (tmp_path / "earshot.toml").write_text("language = 'de'\n")
    with pytest.raises(Conflict) as caught:
        settings.save({"assistant.speed": 1.1}, etag)
    assert caught.value.code == "settings_changed"
    assert (tmp_path / "earshot.toml").read_text() == "language = 'de'\n"


def test_a_broken_file_is_reported(tmp_path: Path) -> None:
    settings = service(tmp_path, "")
    (tmp_path / "earshot.toml").write_text("language = 3\n")
    with pytest.raises(Conflict) as caught:
        settings.report()
    assert caught.value.code == "settings_broken"


def test_a_link_stays_and_the_rights_of_its_file_too(tmp_path: Path) -> None:
    target = tmp_path / "real.toml"
    target.write_text("# mine\n")
    target.chmod(0o640)
    (tmp_path / "earshot.toml").symlink_to(target)
    settings = service(tmp_path)
    settings.save({"assistant.speed": 1.1}, settings.report().etag)
    assert (tmp_path / "earshot.toml").is_symlink()
    assert target.read_text() == "# mine\n\n[assistant]\nspeed = 1.1\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_another_voice_engine_needs_the_default_voice(tmp_path: Path) -> None:
    settings = service(tmp_path, "[assistant]\nvoice = 'heart'\n")
    assert settings.preview({"tts.engine": "espeak"}).problems[0].key == "assistant.voice"
    both = {"tts.engine": "espeak", "assistant.voice": "default"}
    assert not settings.preview(both).problems


def test_docstrings_of_fields_are_read() -> None:
    class Thing(msgspec.Struct):
        one: int = 1
        "How many."
        two: int = 2

    assert field_docs(Thing) == {"one": "How many."}
