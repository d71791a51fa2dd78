"""Writes the answer to a tool's result in one language: by our templates, else Home Assistant's."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, time
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from engines.llm.intents import spoken_numbers
from engines.llm.intents.grammar import IntentMatch
from engines.llm.intents.language import LanguageData, home_assistant_data, language_data

MAX_NAMES = 3  # of devices in a reply; if there are more, the reply says only their number
MAX_REPLY_CHARS = 600  # half a minute of speech; a full shopping list is shorter

HOME_ASSISTANT_ERRORS: Mapping[str, str] = {
    "not_understood": "no_intent",
    "no_such_device": "no_entity",
    "no_such_area": "no_area",
    "not_supported": "feature_not_supported",
    "ambiguous": "duplicate_targets",
    "timer_not_found": "timer_not_found",
    "multiple_timers_matched": "multiple_timers_matched",
}
"Our error code -> Home Assistant's; other codes become `handle_error`."


class ReplyTemplates:
    """Reply templates of one language: ours, and Home Assistant's for intents without ours."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._words: LanguageData = language_data(language)
        responses = home_assistant_data(language)["responses"]
        self._home_assistant_replies: Mapping[str, Mapping[str, str]] = responses["intents"]
        self._home_assistant_errors: Mapping[str, str] = responses.get("errors", {})
        # Templates come from the package and from us. Users' words are only values in them.
        self._lenient = SandboxedEnvironment(autoescape=False)
        self._strict = SandboxedEnvironment(autoescape=False, undefined=StrictUndefined)
        for jinja in (self._lenient, self._strict):
            jinja.globals.update(self._functions())

    def not_understood(self, earlier: Iterable[str], *, may_help: bool) -> str:
        """Returns the answer to a sentence that is not understood.

        may_help: True adds a help text, unless one of the `earlier` answers has it. It says what
        users can say, and how a language model is added.
        """
        short = self._error("not_understood", {}, {})
        help_text = self._words.help_once
        # An interrupted answer has only the beginning of the help text: the user did not want it.
        beginning = help_text[: len(help_text) // 3]
        if not beginning or not may_help or any(beginning in text for text in earlier):
            return short
        return f"{short} {help_text}"

    def answer(self, command: IntentMatch, result: Mapping[str, object]) -> str:
        """Returns the sentence for a command and the result of its tool."""
        error = result.get("error")
        if error:
            return self._error(str(error), command.slots, result)
        try:
            return self._rendered_reply(command, result) or self._words.done
        except (TemplateError, LookupError, TypeError, ValueError):
            # The result of another provider's tool may have any shape, but it reports no error.
            return self._words.done

    def _rendered_reply(self, command: IntentMatch, result: Mapping[str, object]) -> str:
        templates = self._words.replies.get(command.intent)
        if templates:
            values = self._values(command, result)
            return self._render(templates[_key(command, result, templates)], values, self._strict)
        fallbacks = self._home_assistant_replies.get(command.intent, {})
        template = fallbacks.get(command.response) or fallbacks.get("default", "")
        return self._render(template, self._home_assistant_values(command, result))

    def _error(self, code: str, slots: Mapping[str, Any], result: Mapping[str, Any]) -> str:
        if self._words.errors:
            template = self._words.errors.get(code, self._words.errors["failed"])
        else:
            key = HOME_ASSISTANT_ERRORS.get(code, "handle_error")
            template = self._home_assistant_errors.get(key) or self._home_assistant_errors.get(
                "handle_error", ""
            )
        # A name means one device ("front door"). A domain alone means all devices of a kind ("the
        # lights in the attic").
        details = {**result, **slots}
        kind = details.get("device_class") or details.get("domain") or ""
        values = {
            **slots,
            "data": result,
            "entity": slots.get("name") or kind,
            "device_name": slots.get("name", ""),
            "thing": self._words.things.get(kind, kind),
            "name": result.get("name") or slots.get("name", ""),
        }
        return self._render(template, values)

    def _values(self, command: IntentMatch, result: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {**result, "slots": command.slots}
        states = self._words.states
        matched, unmatched = result.get("matched", []), result.get("unmatched", [])
        if "targets" in result:
            values["names"] = self._names(result["targets"])
        values["matched"], values["unmatched"] = self._names(matched), self._names(unmatched)
        values["count"], values["colors"] = len(matched), self._words.colors
        values["matched_word"] = states.get(matched[0]["state"], "") if matched else ""
        values["state_word"] = states.get(command.slots.get("state", ""), "")
        values["other_word"] = states.get(unmatched[0]["state"], "") if unmatched else ""
        if "hour" in result:
            now = time(int(result["hour"]), int(result["minute"]))
            values["spoken_time"] = spoken_numbers.clock_time(now, self._language)
            values["hour"] = now.hour
        if "date" in result:
            today = date.fromisoformat(result["date"])
            values["spoken_date"] = spoken_numbers.calendar_date(today, self._language)
        if command.intent == "Arithmetic":
            values["answer"] = calculate(command.slots)
        return values

    def _home_assistant_values(
        self, command: IntentMatch, result: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the variables for Home Assistant's templates."""
        matched, unmatched = (
            [_state(entity, self._words.states) for entity in result.get(key, ())]
            for key in ("matched", "unmatched")
        )
        targets = [_state(entity, self._words.states) for entity in result.get("targets", ())]
        first = next(iter([*targets, *matched, *unmatched]), None)
        slots: dict[str, Any] = {key: str(value) for key, value in command.slots.items()}
        slots |= {key: result[key] for key in ("canceled", "item") if key in result}
        slots.setdefault("name", first.name if first else "")
        if not slots["name"]:
            del slots["name"]
        if "timers" in result:
            slots["timers"] = [_timer(timer) for timer in result["timers"]]
        if "hour" in result:
            slots["time"] = time(int(result["hour"]), int(result["minute"]))
        if "date" in result:
            slots["date"] = date.fromisoformat(result["date"])
        return {
            "slots": slots,
            "state": first,
            "query": SimpleNamespace(matched=matched, unmatched=unmatched),
            "state_attr": lambda _, name: first.attributes.get(name) if first else None,
        }

    def _render(
        self, template: str, values: Mapping[str, object], jinja: SandboxedEnvironment | None = None
    ) -> str:
        text = " ".join((jinja or self._lenient).from_string(template).render(values).split())
        text = text.replace(" .", ".").replace(" ,", ",")[:MAX_REPLY_CHARS]
        if not text:
            return ""
        text = text[0].upper() + text[1:]
        return text if text[-1] in ".!?。！？" else f"{text}."

    def _names(self, entities: Sequence[Mapping[str, Any]]) -> list[str]:
        if len(entities) <= MAX_NAMES:
            return [entity["name"] for entity in entities]
        are_lights = all(entity["kind"] == "light" for entity in entities)
        many = self._words.many["light" if are_lights else "other"]
        return [many.format(len(entities))]

    def _functions(self) -> dict[str, Callable[..., str]]:
        words = self._words
        return {
            "join": lambda items: spoken_numbers.join_list(list(items), words),
            "the": lambda names: spoken_numbers.join_list(
                [_with_article(name) for name in names], words
            ),
            "The": lambda names: _capital(
                spoken_numbers.join_list([_with_article(name) for name in names], words)
            ),
            "is": lambda names: "are" if len(names) > 1 or names[-1:][0].endswith("s") else "is",
            "duration": lambda seconds: spoken_numbers.duration(seconds, words),
            "number": lambda value: spoken_numbers.number(float(value), words.decimal),
        }


@lru_cache(maxsize=16)  # languages in use at once
def replies(language: str) -> ReplyTemplates:
    """Returns the reply templates of a language, cached."""
    return ReplyTemplates(language)


def calculate(slots: Mapping[str, Any]) -> float | None:
    """Returns the result of `{"a": 2, "operation": "plus", "b": 3}`; None when dividing by 0."""
    a, b = slots["a"], slots["b"]
    match slots["operation"]:
        case "plus":
            return float(a + b)
        case "minus":
            return float(a - b)
        case "times":
            return float(a * b)
        case _:
            return float(a / b) if b else None


def _key(command: IntentMatch, result: Mapping[str, Any], templates: Mapping[str, str]) -> str:
    if command.intent == "HassGetState":
        return _state_key(command, result)
    targets = result.get("targets")
    kind = targets[0]["kind"] if targets else ""
    return kind if kind in templates else "default"


def _state_key(command: IntentMatch, result: Mapping[str, Any]) -> str:
    matched, unmatched = result.get("matched", []), result.get("unmatched", [])
    if "state" not in command.slots:
        return "state"
    if command.response == "how_many":
        return "how_many"
    if command.response == "which":
        return "which" if matched else "nothing"
    if command.response == "all":
        return "not_all" if unmatched else "yes"
    if matched:
        return "yes"
    return "no" if len(unmatched) == 1 else "nothing"


def _state(entity: Mapping[str, Any], words: Mapping[str, str]) -> SimpleNamespace:
    """Returns an object with the attributes of Home Assistant's state that templates use."""
    state = entity["state"]
    return SimpleNamespace(
        entity_id=entity["id"],
        name=entity["name"],
        domain=entity["kind"],
        state=state,
        state_with_unit=words.get(state, state),
        attributes={
            **entity["attributes"],
            "temperature": entity["attributes"].get("target_temperature"),
        },
    )


def _timer(timer: Mapping[str, Any]) -> SimpleNamespace:
    """Returns an object with the attributes of Home Assistant's timers that templates use."""
    left, start = int(timer["remaining_s"]), int(timer["duration_s"])
    return SimpleNamespace(
        is_active=not timer["is_paused"],
        name=timer["name"],
        area="",
        total_seconds_left=left,
        rounded_hours_left=left // 3600,
        rounded_minutes_left=left % 3600 // 60,
        rounded_seconds_left=left % 60,
        start_hours=start // 3600,
        start_minutes=start % 3600 // 60,
        start_seconds=start % 60,
    )


def _with_article(name: str) -> str:
    return name if name[:1].isdigit() else f"the {name}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
