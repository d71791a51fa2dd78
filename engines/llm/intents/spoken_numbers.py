"""Writes numbers, durations, times and dates as people say them."""

from collections.abc import Sequence
from datetime import date, time

from engines.llm.intents.language import LanguageData

WEEKDAYS = {
    "en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "de": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "es": "lunes martes miércoles jueves viernes sábado domingo",
}
MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre "
    "diciembre",
}
DATES = {
    "en": "{weekday}, {month} {day}",
    "de": "{weekday}, der {day}. {month}",
    "fr": "{weekday} {day} {month}",
    "es": "{weekday}, {day} de {month}",
}


def in_words(number: int, language: str, ruleset: str = "spellout-cardinal") -> str:
    """Returns a number in words: `21` -> "twenty one".

    language: ISO 639-1 code. ruleset: name of a set of rules in CLDR, for another form such as
    ordinals. Raises ValueError for a language without rules.
    """
    from hassil.numbers import get_rbnf_engine

    spelled = get_rbnf_engine(language).format_number(number)
    words = spelled.text_by_ruleset.get(ruleset, spelled.text)
    return words.replace("\u00ad", "").replace("-", " ")  # soft hyphens, then hyphens


def number(value: float, decimal: str = ".") -> str:
    """Returns a number in digits: `21.0` -> "21", `20.5` -> "20.5" or "20,5"."""
    text = f"{abs(value):.2f}".rstrip("0").rstrip(".").replace(".", decimal)
    # A voice may skip the sign, so it is written as a word.
    return f"minus {text}" if value < 0 and text != "0" else text


def join_list(items: Sequence[str], words: LanguageData) -> str:
    """Returns the items as a spoken list: "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {words.conjunction} {items[-1]}"


def duration(seconds: float, words: LanguageData) -> str:
    """Returns a duration as it is spoken: `3700` -> "1 hour and 2 minutes".

    It is rounded to seconds, and to minutes from one hour on.
    """
    total = max(0, round(seconds))
    if total >= 3600:
        total = round(total / 60) * 60
    hours, rest = divmod(total, 3600)
    minutes, secs = divmod(rest, 60)
    parts = [
        f"{count} {words.units[unit][count != 1]}"
        for unit, count in (("hour", hours), ("minute", minutes), ("second", secs))
        if count
    ]
    return join_list(parts or [f"0 {words.units['second'][1]}"], words)


def clock_time(now: time, language: str) -> str:
    """Returns the time as it is spoken; in digits for a language without rules here.

    "seven forty three pm", "19 Uhr 43", "19 heures 43", "las siete y tres de la tarde".
    """
    formatters = {"en": _english_time, "de": _german_time, "fr": _french_time, "es": _spanish_time}
    speak = formatters.get(language)
    return speak(now) if speak else f"{now.hour}:{now.minute:02d}"


def calendar_date(today: date, language: str) -> str:
    """Returns the date as it is spoken ("Saturday, November 21").

    The date is YYYY-MM-DD for a language that DATES does not have.
    """
    if language not in DATES:
        return today.isoformat()
    day: object = "1er" if language == "fr" and today.day == 1 else today.day
    return DATES[language].format(
        weekday=WEEKDAYS[language].split()[today.weekday()],
        month=MONTHS[language].split()[today.month - 1],
        day=day,
    )


def _english_time(now: time) -> str:
    if now.minute == 0 and now.hour in {0, 12}:
        return "midnight" if now.hour == 0 else "noon"
    hour = in_words((now.hour - 1) % 12 + 1, "en")
    half = "am" if now.hour < 12 else "pm"
    if now.minute == 0:
        return f"{hour} {half}"
    minute = in_words(now.minute, "en")
    return f"{hour} {'oh ' if now.minute < 10 else ''}{minute} {half}"


def _german_time(now: time) -> str:
    hour = "ein" if now.hour == 1 else str(now.hour)
    return f"{hour} Uhr {now.minute}" if now.minute else f"{hour} Uhr"


def _french_time(now: time) -> str:
    if now.minute == 0 and now.hour in {0, 12}:
        return "minuit" if now.hour == 0 else "midi"
    unit = "heure" if now.hour in {0, 1} else "heures"
    return f"{now.hour} {unit} {now.minute}" if now.minute else f"{now.hour} {unit}"


def _spanish_time(now: time) -> str:
    hour = (now.hour - 1) % 12 + 1
    hour_words = "la una" if hour == 1 else f"las {in_words(hour, 'es')}"
    part = "de la mañana" if now.hour < 12 else "de la tarde" if now.hour < 20 else "de la noche"
    if now.hour < 6:
        part = "de la madrugada"
    minute = f" y {in_words(now.minute, 'es')}" if now.minute else ""
    return f"{hour_words}{minute} {part}"
