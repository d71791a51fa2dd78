"""Shows the settings file as a form, previews changes and writes them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Struct, structs

from core.errors import ConfigError, Conflict, EarshotError, RequestError
from server.config import Config
from server.config.load import EffectiveConfig, SettingPath
from server.settings.checks import (
    SettingProblem,
    SettingValue,
    check_language_model,
    located_problems,
    model_options,
    origin_of,
    stale_secrets,
    tables_of,
)
from server.settings.document import difference, edited
from server.settings.file import SettingsFile
from server.settings.schema import (
    Applies,
    SettingField,
    SettingOption,
    applies_of,
    override_of,
    page_settings,
    setting_fields,
    value_at,
)

VOICE = "assistant.voice"

MAX_LISTED = 12
"Largest number of allowed values in an error message; there may be dozens of models."


class SettingsReport(Struct, frozen=True):
    """The settings that the page may change."""

    file: str
    "Settings file on the server."
    etag: str
    "Version of the file. A save names the version that its changes were made for."
    fields: tuple[SettingField, ...]
    read_only: str = ""
    "Reason why the file cannot be written; empty: it can."


class SettingsPreview(Struct, frozen=True):
    """Effect that a change would have on the settings file."""

    etag: str
    diff: str
    "Difference as a unified diff, secrets masked. Empty: nothing changes."
    problems: tuple[SettingProblem, ...]
    applies: Mapping[str, Applies]
    "Changed setting -> when it takes effect."
    fields: tuple[SettingField, ...]
    "The form with these changes: another engine has other options."


class SettingsSaved(Struct, frozen=True):
    """Result of a save."""

    etag: str
    "Version of the file now."
    applies: Mapping[str, Applies]
    needs_restart: bool
    "True if a change waits for a restart of the server."
    fields: tuple[SettingField, ...]


class SettingsHost(Protocol):
    """The running server, or the part of it that exists while no server runs."""

    def choices(self) -> Mapping[str, Sequence[SettingOption]]:
        """Returns the allowed values of settings that depend on what is installed, by key."""
        ...

    def check(self, config: Config) -> None:
        """Checks values that depend on the loaded engines. Raises ConfigError."""
        ...

    def apply(self, config: Config) -> None:
        """Makes new sessions begin with the settings of `config`."""
        ...


@dataclass(frozen=True, slots=True)
class _Draft:
    """Changes, checked as far as possible."""

    text: str
    "The file with the changes."
    effective: EffectiveConfig | None
    "None: it does not load."
    problems: tuple[SettingProblem, ...]
    keys: tuple[str, ...]


class SettingsService:
    """The settings of one server. Its methods block: they read and write a file."""

    def __init__(self, file: SettingsFile, running: Config | None, host: SettingsHost) -> None:
        self._file, self._running, self._host = file, running, host
        self.on_saved: Callable[[], None] = lambda: None
        "Called when the file was written."

    @property
    def file(self) -> SettingsFile:
        return self._file

    def report(self) -> SettingsReport:
        """Returns the form. Raises Conflict settings_broken."""
        text, etag = self._read()
        fields = self._fields(self._loaded(text))
        return SettingsReport(str(self._file.file), etag, fields, self._file.why_read_only())

    def preview(
        self, changes: Mapping[str, SettingValue], *, is_owner: bool = False
    ) -> SettingsPreview:
        """Returns what would change. `is_owner`: the caller sits at the machine and may change any
        setting. Raises Conflict settings_broken."""
        text, etag = self._read()
        draft = self._draft(text, changes, is_owner=is_owner)
        diff = difference(text, draft.text)
        fields = self._fields(draft.effective or self._loaded(text))
        return SettingsPreview(etag, diff, draft.problems, _applies(draft.keys), fields)

    def save(
        self, changes: Mapping[str, SettingValue], etag: str, *, is_owner: bool = False
    ) -> SettingsSaved:
        """Writes the changes, and lets new sessions begin with them where that is possible.

        `etag`: version of the file that the changes were made for. Raises Conflict settings_changed
        or settings_broken; RequestError invalid_settings, settings_read_only.
        """
        text, present = self._read()
        if present != etag:
            raise Conflict(
                "the settings file has changed meanwhile; load it again", code="settings_changed"
            )
        draft = self._draft(text, changes, is_owner=is_owner)
        if draft.problems or draft.effective is None:
            first = draft.problems[0]
            lines = "\n".join(str(problem) for problem in draft.problems)
            raise RequestError(lines, code="invalid_settings", param=first.key or None)
        if draft.text != text:
            try:
                self._file.write(draft.text)
            except ConfigError as error:
                raise RequestError(str(error), code="settings_read_only") from error
        self._take_over(draft.effective.config)
        self.on_saved()
        fields = self._fields(draft.effective)
        _, etag = self._file.read()
        needs_restart = any(field.is_pending for field in fields)
        return SettingsSaved(etag, _applies(draft.keys), needs_restart, fields)

    def take_over_file(self) -> None:
        """Lets new sessions begin with the settings that another gateway has saved. Raises Conflict
        settings_broken."""
        self._take_over(self._loaded(self._read()[0]).config)

    def stored_secret(self, address: str) -> str:
        """Returns the key of the language model at `address` in the file; empty for any other
        address."""
        options = model_options(self._loaded(self._read()[0]).config)
        if options is None or origin_of(str(options.get("base_url", ""))) != origin_of(address):
            return ""
        return str(options.get("api_key", ""))

    def _read(self) -> tuple[str, str]:
        try:
            return self._file.read()
        except ConfigError as error:
            raise Conflict(str(error), code="settings_broken") from error

    def _loaded(self, text: str) -> EffectiveConfig:
        try:
            return self._file.load(text)
        except ConfigError as error:
            why = f"{self._file.file} does not load; repair it by hand: {error}"
            raise Conflict(why, code="settings_broken") from error

    def _fields(self, effective: EffectiveConfig) -> tuple[SettingField, ...]:
        return setting_fields(effective, self._host.choices(), self._running)

    def _draft(self, text: str, changes: Mapping[str, SettingValue], *, is_owner: bool) -> _Draft:
        before = self._loaded(text)
        edits, problems = self._edits(before, changes, is_owner=is_owner)
        after_text, effective = text, None
        try:
            after_text = edited(text, edits)
            effective = self._file.load(after_text)
            problems += [] if problems else self._problems_of(before.config, effective, changes)
        except ConfigError as error:
            problems += located_problems(str(error))
        return _Draft(after_text, effective, tuple(problems), tuple(changes))

    def _edits(
        self, before: EffectiveConfig, changes: Mapping[str, SettingValue], *, is_owner: bool
    ) -> tuple[dict[SettingPath, Any], list[SettingProblem]]:
        """Returns the edits of the file, and the changes that are refused. Another engine has other
        options, so the options of the present one are removed with it."""
        edits: dict[SettingPath, object] = {}
        paths = {key: tuple(key.split(".")) for key in changes}
        for key, path in paths.items():
            if path[-1] == "engine" and value_at(tables_of(before.config), path) != changes[key]:
                edits[(*path[:-1], "options")] = None
        edits |= {path: changes[key] for key, path in paths.items()}
        problems = []
        known = () if is_owner else self._known(before, edits)
        choices = self._host.choices()
        for key, path in paths.items():
            # Besides the listed ids, a voice has other names: the host checks it, in `check`.
            listed = () if key == VOICE else choices.get(key, ())
            allowed = {option.value for option in listed}
            value = changes[key]
            if not is_owner and key not in known:
                why = "there is no such setting, or the page may not change it"
                problems.append(SettingProblem(key, why))
            elif override := override_of(path, before):
                problems.append(SettingProblem(key, f"{override} overrides the file"))
            elif allowed and value is not None and value not in allowed and not is_owner:
                shown = ", ".join([option.value for option in listed][:MAX_LISTED])
                more = ", ..." if len(allowed) > MAX_LISTED else ""
                problems.append(SettingProblem(key, f"expected one of {shown}{more}"))
        return edits, problems

    def _known(self, before: EffectiveConfig, edits: Mapping[SettingPath, Any]) -> frozenset[str]:
        """Returns the settings of the page once the changed engines have their own options."""
        tables = tables_of(before.config)
        for path, value in edits.items():
            if path[-1] not in ("engine", "options"):
                continue
            table = tables
            for name in path[:-1]:
                table = table.setdefault(name, {})
            table[path[-1]] = {} if value is None else value
        return frozenset(node.key for node in page_settings(tables))

    def _problems_of(
        self, before: Config, effective: EffectiveConfig, changes: Mapping[str, SettingValue]
    ) -> list[SettingProblem]:
        """Checks what types cannot say: secrets, options of engines, and what is installed."""
        problems = stale_secrets(before, effective.config, changes)
        checks: list[Callable[[], None]] = [
            lambda: check_language_model(effective.config),
            lambda: self._check_host(before, effective.config, changes),
        ]
        for check in checks:
            try:
                check()
            except EarshotError as error:
                problems += located_problems(str(error))
        return problems

    def _check_host(
        self, before: Config, config: Config, changes: Mapping[str, SettingValue]
    ) -> None:
        # The voices of another engine are known only once it has loaded, and a server with an
        # unknown voice does not start.
        if config.tts.engine == before.tts.engine:
            if {VOICE, "assistant.wake_word", "language"} & changes.keys():
                self._host.check(config)
        elif config.assistant.voice != "default":
            raise ConfigError(
                "assistant.voice: choose default: the voices of another engine are known only after"
                " the restart"
            )

    def _take_over(self, config: Config) -> None:
        """Lets new sessions begin with the sections that need no restart."""
        if self._running is None:
            return
        assistant, turn = self._running.assistant, self._running.turn
        live = structs.replace(
            self._running,
            assistant=structs.replace(
                config.assistant, default_instructions=assistant.default_instructions
            ),
            turn=structs.replace(config.turn, max_drafts=turn.max_drafts),
        )
        self._running = live
        self._host.apply(live)


def _applies(keys: Sequence[str]) -> Mapping[str, Applies]:
    return {key: applies_of(key) for key in keys}
