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
    """Returns a number in words: `21` -> "twenty one". Hyphens become spaces or are removed."""
    from hassil.numbers import get_rbnf_engine

    spelled = get_rbnf_engine(language).format_number(number)
    words = spelled.text_by_ruleset.get(ruleset, spelled.text)
    return words.replace("\u00ad", "").replace("-", " ")


def number(value: float, decimal: str = ".") -> str:
    """Returns a number in digits: `21.0` -> "21", `20.5` -> "20.5" or "20,5".

    "minus" is a word, because a voice may skip the sign.
    """
    text = f"{abs(value):.2f}".rstrip("0").rstrip(".").replace(".", decimal)
    return f"minus {text}" if value < 0 and text != "0" else text


def joined(items: Sequence[str], words: LanguageData) -> str:
    """Returns a list as it is spoken: "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {words.conjunction} {items[-1]}"


def duration(seconds: float, words: LanguageData) -> str:
    """Returns a duration in words, rounded: `3700` -> "1 hour and 2 minutes".

    From one hour on it is rounded to minutes.
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
    return joined(parts or [f"0 {words.units['second'][1]}"], words)


def clock_time(now: time, language: str) -> str:
    """Returns the time in words, in languages without our own data as digits.

    "seven forty three pm", "19 Uhr 43", "19 heures 43", "las siete y tres de la tarde".
    """
    formatters = {"en": _english_time, "de": _german_time, "fr": _french_time, "es": _spanish_time}
    speak = formatters.get(language)
    return speak(now) if speak else f"{now.hour}:{now.minute:02d}"


def calendar_date(today: date, language: str) -> str:
    """Returns the date in words ("Saturday, November 21"), else as YYYY-MM-DD."""
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
