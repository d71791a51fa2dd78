"""Edits of the settings file: only what was changed changes, and no secret is shown."""

from typing import Any

import pytest

from core.errors import ConfigError
from server.settings.document import difference, edited

TEXT = """\
# Of the house.
language = "en"   # ours

[assistant]
voice = "heart"  # she
# speed = 0.9
wake_word = ""

[llm]
engine = "hybrid"
options = { model = { options = { base_url = "http://h/v1", api_key = "sk-one" } } } # sk-old

[tools.mcp.calendar]
command = "cal"
env = { CAL_LOGIN = "hush" }
"""


@pytest.mark.parametrize(
    ("changes", "old", "new"),
    [
        ({("assistant", "voice"): "en-gb"}, 'voice = "heart"  # she', 'voice = "en-gb"  # she'),
        ({("language",): None}, 'language = "en"   # ours\n', ""),
        ({("assistant", "speed"): 1.2}, 'wake_word = ""\n', 'wake_word = ""\nspeed = 1.2\n'),
        (
            {("llm", "options", "model", "options", "base_url"): "http://i/v1"},
            "http://h/v1",
            "http://i/v1",
        ),
    ],
)
def test_only_the_changed_lines_differ(changes: dict[Any, Any], old: str, new: str) -> None:
    assert edited(TEXT, changes) == TEXT.replace(old, new)


def test_a_new_section_comes_at_the_end_and_a_new_key_before_the_sections() -> None:
    result = edited(TEXT, {("turn", "silence_ms"): 700})
    assert result.startswith(TEXT)
    assert result.endswith("[turn]\nsilence_ms = 700\n")
    assert edited("[turn]\nsilence_ms = 1\n", {("language",): "de"}).startswith('language = "de"')


def test_an_empty_file_gets_nested_tables() -> None:
    result = edited("", {("llm", "options", "model", "options", "base_url"): "http://h/v1"})
    assert 'base_url = "http://h/v1"' in result
    assert "[llm.options.model.options]" in result


def test_what_is_removed_and_not_there_changes_nothing() -> None:
    assert edited(TEXT, {("turn", "silence_ms"): None, ("models", "strict"): None}) == TEXT


def test_a_value_in_place_of_a_table_is_named() -> None:
    with pytest.raises(ConfigError, match=r"assistant\.voice.*no table"):
        edited("assistant = 3\n", {("assistant", "voice"): "heart"})


def test_the_difference_has_changed_lines_only() -> None:
    shown = difference(TEXT, edited(TEXT, {("assistant", "voice"): "en-gb"}))
    assert shown.splitlines()[3:] == ['-voice = "heart"  # she', '+voice = "en-gb"  # she']
    assert difference(TEXT, TEXT) == ""


def test_no_secret_is_in_the_difference() -> None:
    at = ("llm", "options", "model", "options", "api_key")
    shown = difference(TEXT, edited(TEXT, {at: "sk-two", ("tools", "mcp", "calendar", "env"): {}}))
    assert "sk-" not in shown
    assert "hush" not in shown
    assert "(new)" in shown


def test_a_password_in_an_address_is_masked() -> None:
    before = '[devices]\ndatabase = "postgresql://me:hush@db/one"\n'
    after = edited(before, {("devices", "database"): "postgresql://me:other@db/two"})
    shown = difference(before, after)
    assert "hush" not in shown
    assert "other" not in shown
    assert "db/two" in shown
