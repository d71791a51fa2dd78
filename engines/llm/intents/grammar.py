"""Matches a sentence to an intent and its slots, with hassil and the templates of one language."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from hassil.expression import (
    Expression,
    Group,
    ListReference,
    RuleReference,
    Sequence,
    TextChunk,
)
from hassil.intents import Intents, SlotList, TextSlotList, WildcardSlotList
from hassil.recognize import RecognizeResult, recognize_best

from engines.llm.intents.home_names import HomeNames
from engines.llm.intents.language import LanguageData, language_data
from engines.llm.intents.phonetic_match import PhoneticMatcher
from engines.llm.intents.sentences import (
    INTENTS_WITHOUT_TOOL,
    SAME_ACTION,
    SAME_TARGETS,
    sentences,
    target_sentences,
)
from engines.llm.intents.spoken_numbers import in_words

MAX_WORDS = 40  # of a sentence; commands are shorter, and matching time grows with the length
MAX_CHARS = 400  # of a sentence with MAX_WORDS words
MAX_COMMANDS = 4  # in one sentence, where each target counts; people do not say more
MAX_TRIES = 8  # matches per sentence, of 1 to 3 ms each: enough for MAX_COMMANDS
MAX_JOIN_TRIES = 10  # matches for several targets of one verb, in addition to MAX_TRIES
MAX_FOLLOW_UP_WORDS = 10  # "and what about the fan in the living room too"
MAX_TARGET_WORDS = 4  # of a target with its article: "the living room lamp"
MAX_NAME_WORDS = 5  # of a timer's name; a longer one begins with a command that was not understood
MAX_JOINED_WORDS = 3  # of a timer's name with a conjunction: "rice and beans"
# A name after this many words ("cancel timer for") does not contain the beginning of a command.
MIN_WORDS_BEFORE_NAME = 3
MIN_FOREIGN_LETTERS = 4  # of a word that no command has; shorter ones may be misheard
MAX_GRAMMARS = 16  # languages times homes in use at once; one grammar takes a few MB

REPAIRED_INTENTS = (
    *("HassTurnOn", "HassTurnOff", "HassLightSet", "HassFanSetSpeed"),
    *("HassClimateSetTemperature", "HassVacuumStart", "HassVacuumReturnToBase"),
)
"Commands in which a misheard name is corrected."
GUARDED_DOMAINS = ("lock", "alarm_control_panel", "cover", "valve", "siren")
"Kinds of device that a wrong guess would open, close or set off. Their names are not corrected."
LIST_INTENTS = "HassShoppingList"
"Beginning of the names of commands about a list."
IGNORED_LIST = "anything"
"Name of a list in our templates for free text whose content does not matter."
_WORD = re.compile(r"[\w'’-]+")
_NO_WORD = re.compile(r"(?!)")
"Matches nothing."


@dataclass(frozen=True, slots=True)
class IntentMatch:
    """The meaning of a sentence. Equal matches lead to equal actions."""

    intent: str
    "Name of the tool to call (`Hass...`), or of an answer that needs no tool."
    slots: Mapping[str, Any] = field(default_factory=dict)
    response: str = field(default="default", compare=False)
    "Key of the reply that Home Assistant's data suggests."
    then: tuple["IntentMatch", ...] = ()
    "Further commands of the same sentence."
    text: str = field(default="", compare=False)
    "The words of this command, after correction."
    is_follow_up: bool = field(default=False, compare=False)
    "True: the devices or the action come from another command, and are not in `text`."

    @property
    def steps(self) -> tuple["IntentMatch", ...]:
        """This command and the further ones of the same sentence."""
        return (self, *self.then)


class Grammar:
    """The sentence templates of one language with the names of one home. Immutable once warm."""

    def __init__(self, language: str, names: HomeNames) -> None:
        self.language, self.names = language, names
        self._data = language_data(language)
        self._intents = Intents.from_dict(sentences(language, names))
        self._targets = Intents.from_dict(target_sentences(language))
        self._lists = _slot_lists(names, self._data)
        self._without_locks = _slot_lists(_without_locks(names), self._data)
        self._cover_names = {name.casefold() for domain, name in names.devices if domain == "cover"}
        self._corrections = [(_pattern(wrong), right) for wrong, right in self._data.misspellings]
        self._phonetic_matcher = PhoneticMatcher(
            [*names.areas, *(own for kind, own in names.devices if kind not in GUARDED_DOMAINS)],
            guarded=[own for kind, own in names.devices if kind in GUARDED_DOMAINS],
            protected_words=self._data.protected_words,
        )
        words = [_pattern(rf"[,.;]? {re.escape(word)} ") for word in self._data.command_separators]
        # Recognisers write punctuation between two sentences and in lists. It is tried first,
        # because hassil ignores it: "the kitchen lights, the office lights" would be one target.
        conjunction = re.escape(self._data.conjunction)
        self._splits = [_pattern(rf"[,.;!?] (?!{conjunction} )"), *words]
        self._between_targets = _pattern(rf",? {conjunction} |, ")
        self._target_word = _words_of(self._targets, self._lists)
        self._command_word = _words_of(self._intents, self._lists, _number_words(language))
        skipped = "|".join(map(re.escape, sorted(self._intents.skip_words, key=len, reverse=True)))
        self._skipped = _pattern(rf"(?:(?:{skipped})\b\s*)+") if skipped else _NO_WORD
        self._free_text_beginning = _free_text_beginning(self._intents, self._lists)
        self._negations = [_pattern(rf"(?<!\w){word}(?!\w)") for word in self._data.negations]

    def understand(self, text: str) -> IntentMatch | None:
        """Returns the meaning of a sentence; None if no template matches.

        A second try corrects the usual misspellings of recognisers.
        """
        if len(text) > MAX_CHARS:
            return None
        text = " ".join(text.split())
        if not text or len(text.split()) > MAX_WORDS:
            return None
        tries = iter(range(MAX_TRIES))
        command = self._sentence(text, tries)
        if command is None and (corrected := self._correct(text)) != text:
            command = self._sentence(corrected, tries)
        return None if command is None or self._is_refused(command, text) else command

    def understand_loosely(self, text: str) -> IntentMatch | None:
        """Returns the meaning of a sentence with several targets of one verb, or a misheard name.

        None: no such meaning is found. Takes up to 80 ms, so it is called in a thread.
        """
        if len(text) > MAX_CHARS or len(text.split()) > MAX_WORDS or self._is_negated(text):
            return None
        return self._joined_targets(self._correct(text)) or self.understand_misheard(text)

    def may_become_command(self, text: str) -> bool:
        """Returns False if no further words can make the text a command.

        Then it has a word that is in no template and in no name. A word that sounds like a name
        does not count, because it may be that name.
        """
        plain = _plain(self._correct(text))
        if (skipped := self._skipped.match(plain)) is not None:
            plain = plain[skipped.end() :]
        words = _WORD.findall(plain)
        if words and self._free_text_beginning.match(words[0]):
            return True  # commands with free text, such as a shopping item, may have any words
        return all(map(self._may_be_of_command, words))

    def _may_be_of_command(self, word: str) -> bool:
        return (
            len(word) < MIN_FOREIGN_LETTERS
            or any(letter.isdigit() for letter in word)
            or self._command_word.fullmatch(word) is not None
            or self._phonetic_matcher.is_like_name(word)
        )

    def ends_negated(self, text: str) -> bool:
        """Returns True if the last word of the text is a negation: "don't"."""
        words = text.rstrip(" .,;:!?…")
        return any(
            match.end() == len(words)
            for pattern in self._negations
            for match in pattern.finditer(words)
        )

    def _is_refused(self, command: IntentMatch, text: str) -> bool:
        """Returns True for an action in a sentence with a negation: "don't turn on the light"."""
        return any(_is_action(step) for step in command.steps) and self._is_negated(text)

    def _is_negated(self, text: str) -> bool:
        return any(negation.search(text) for negation in self._negations)

    def understand_misheard(self, text: str) -> IntentMatch | None:
        """Returns the command that `text` becomes when one misheard name is corrected, or None.

        Questions are not corrected, because many sentences for a language model sound like a
        question about the home. Takes up to 50 ms, so it is called in a thread.
        """
        for corrected in self._phonetic_matcher.corrections(self._correct(text)):
            command = self._sentence(corrected, iter(range(MAX_COMMANDS)))
            if command is not None and all(_may_be_guessed(step) for step in command.steps):
                return command
        return None

    def _correct(self, text: str) -> str:
        """Replaces the usual misspellings of recognisers."""
        for wrong, right in self._corrections:
            text = wrong.sub(right, text)
        return text.strip()

    def _sentence(self, text: str, tries: Iterator[int]) -> IntentMatch | None:
        """Returns one command, or several if every part between conjunctions is a command.

        tries: one item is taken for each match, and without items the search ends.
        """
        command = self._command(text, tries)
        # Free text, such as the name of a timer, may contain a second command.
        if command is None or (_free_text(command) and self._has_conjunction(text)):
            several = self._command_chain(text, tries)
            if several is not None:
                return several
        return None if command is None else self._checked_free_text(command)

    def _command_chain(self, text: str, tries: Iterator[int]) -> IntentMatch | None:
        """Returns several consecutive commands; None if a part is not a command."""
        for split in self._splits:
            for match in split.finditer(text):
                command = self._command(text[: match.start()], tries)
                first = None if command is None else self._checked_free_text(command)
                if first is None or not _is_action(first):
                    continue
                rest = self._sentence(text[match.end() :], tries)
                if rest is not None and _is_action(rest) and len(rest.steps) < MAX_COMMANDS:
                    return _chained(first, rest)
        return None

    def _joined_targets(self, text: str) -> IntentMatch | None:
        """Returns the commands of a sentence whose targets share the words before and after them.

        "Turn on the kitchen, bedroom and office lights" becomes "turn on the kitchen lights", "turn
        on the bedroom lights" and "turn on the office lights".
        """
        parts = [part.split() for part in self._between_targets.split(text)]
        if not 2 <= len(parts) <= MAX_COMMANDS or f" {self._data.conjunction} " not in text.lower():
            return None
        left, *middle, right = parts
        tries = iter(range(MAX_JOIN_TRIES))
        for shared in range(1, min(MAX_TARGET_WORDS + 1, len(right))):
            first = self._command(" ".join([*left, *right[shared:]]), tries)
            if first is None or not _is_action(first) or _free_text(first):
                continue
            for end in range(len(left) - 1, max(0, len(left) - 1 - MAX_TARGET_WORDS), -1):
                commands = [first]
                for words in (
                    [*left[:end], *right],
                    *_with_words(left[:end], middle, right[shared:]),
                ):
                    other = self._command(" ".join(words), tries)
                    if other is None or other.intent != first.intent or other in commands:
                        break
                    commands.append(other)
                else:
                    last, *between = commands[1:]
                    return _chained(first, *between, last)
        return None

    def _command(self, text: str, tries: Iterator[int]) -> IntentMatch | None:
        if next(tries, None) is None:
            return None
        command = self._match(text, self._lists)
        if command is None:
            words = _WORD.findall(_plain(text))
            if len(words) > MAX_FOLLOW_UP_WORDS or not all(map(self._target_word.fullmatch, words)):
                return None
            return self._match(text, self._without_locks, self._targets)
        if _is_lock(command) and command.slots["name"] in self._cover_names:
            # A door and its lock may have the same name. "Open" must not unlock, so a sentence
            # that is possible for the door means the door.
            other = self._match(text, self._without_locks)
            if other is not None and other.slots.get("domain") == "cover":
                command = other
        return command

    def _has_conjunction(self, text: str) -> bool:
        return any(split.search(text) for split in self._splits)

    def _checked_free_text(self, command: IntentMatch) -> IntentMatch | None:
        """Returns the command; None if its free text is too long to be a name.

        Such a text contains another command that was not understood, and then no part of the
        sentence may be carried out.
        """
        name = _free_text(command)
        may_contain_command = (
            self._has_conjunction(name)
            and _words_before(name, command.text) < MIN_WORDS_BEFORE_NAME
        )
        max_words = MAX_JOINED_WORDS if may_contain_command else MAX_NAME_WORDS
        if "item" not in command.slots and len(name.split()) > max_words:
            return None
        return self._split_items(command)

    def _match(
        self, text: str, lists: dict[str, SlotList], intents: Intents | None = None
    ) -> IntentMatch | None:
        result = recognize_best(
            text,
            intents or self._intents,
            slot_lists=lists,
            language=self._intents.language,
            best_metadata_key="prefer",  # some of our sentences have precedence by this key
            best_slot_name="name",
        )
        return None if result is None else _intent_match(result, text, self._data.own_words)

    def _split_items(self, command: IntentMatch) -> IntentMatch:
        """Returns one command for each thing, if a command has several for the shopping list."""
        item = command.slots.get("item")
        word = f" {self._data.conjunction} "
        if not isinstance(item, str) or word not in item:
            return command
        parts = [part.strip() for part in item.split(word) if part.strip()][:MAX_COMMANDS]
        first, *rest = (replace(command, slots={**command.slots, "item": part}) for part in parts)
        return _chained(first, *rest)


@lru_cache(maxsize=MAX_GRAMMARS)
def grammar(language: str, names: HomeNames) -> Grammar:
    """Returns the grammar of a language (ISO 639-1) and a home, warmed up and cached.

    Takes 0.1 to 0.7 s the first time, so it is called in a thread.
    """
    built = Grammar(language, names)
    for sentence in language_data(language).warm_up_sentences:
        built.understand(sentence)
    return built


def _with_words(
    before: list[str], targets: list[list[str]], after: list[str]
) -> Iterator[list[str]]:
    return ([*before, *target, *after] for target in targets)


def _words_of(
    intents: Intents, lists: Mapping[str, SlotList], more: Iterable[str] = ()
) -> re.Pattern[str]:
    """Returns a pattern for all words that the templates can match, except free text and numbers.

    more: further words for the pattern. A sentence with any other word matches no template.
    """
    texts = {*intents.skip_words, *more}
    seen: set[str] = set()

    def add(part: object) -> None:
        if isinstance(part, TextChunk):
            texts.add(part.text)
        elif isinstance(part, RuleReference) and part.rule_name not in seen:
            seen.add(part.rule_name)
            add(intents.expansion_rules[part.rule_name].expression)
        elif isinstance(part, ListReference) and part.list_name not in seen:
            seen.add(part.list_name)
            values = lists.get(part.list_name) or intents.slot_lists.get(part.list_name)
            if isinstance(values, TextSlotList):
                for value in values.values:
                    add(value.text_in)
        elif isinstance(part, Group):
            for item in part.items:
                add(item)

    for intent in intents.intents.values():
        for data in intent.data:
            for sentence in data.sentences:
                add(sentence.expression)
    pieces = {piece for text in texts for piece in _WORD.findall(_plain(text))}
    longest_first = sorted(pieces, key=lambda piece: (-len(piece), piece))
    # Templates write "fan[s]": a word consists of one piece or of several.
    return re.compile(f"(?:{'|'.join(map(re.escape, longest_first))})+") if pieces else _NO_WORD


def _free_text_beginning(intents: Intents, lists: Mapping[str, SlotList]) -> re.Pattern[str]:
    """Returns a pattern for the first word of commands with free text, except commands that may
    begin with the free text or with a word that can be left out: "a cake timer" begins like half of
    all sentences."""
    pieces: set[str] = set()
    for intent in intents.intents.values():
        for sentence in (one for data in intent.data for one in data.sentences):
            names = {part.list_name for part in _list_references(sentence.expression, intents)}
            values = (lists.get(name) or intents.slot_lists.get(name) for name in names)
            if any(isinstance(value, WildcardSlotList) for value in values):
                pieces |= _first_words(sentence.expression, intents)[0]
    # Templates write "schalt[e]": a long piece may be the beginning of a word.
    choices = (re.escape(one) + ("" if len(one) >= MIN_FOREIGN_LETTERS else "$") for one in pieces)
    return re.compile("|".join(choices)) if pieces else _NO_WORD


def _list_references(part: Expression, intents: Intents) -> Iterator[ListReference]:
    group = part if isinstance(part, Group) else Group([part])
    return group.list_references(intents.expansion_rules)


def _first_words(part: Expression, intents: Intents) -> tuple[set[str], bool]:
    """Returns all first words that a part of a template can have where nothing optional stands
    before them, and True if the part can be empty."""
    if isinstance(part, TextChunk):
        words = _WORD.findall(_plain(part.text))
        return set(words[:1]), not words
    if isinstance(part, RuleReference):
        return _first_words(intents.expansion_rules[part.rule_name].expression, intents)
    if not isinstance(part, Group):  # a list: a name or a number comes first
        return set(), False
    first_words: set[str] = set()
    if not isinstance(part, Sequence):
        found = [_first_words(item, intents) for item in part.items]
        return first_words.union(*(words for words, _ in found)), any(empty for _, empty in found)
    for item in part.items:
        first_words, may_be_empty = _first_words(item, intents)
        if not may_be_empty:
            return first_words, False
    return set(), True


@lru_cache(maxsize=MAX_GRAMMARS)
def _number_words(language: str) -> frozenset[str]:
    """Returns the numbers from 0 to 100 in words; empty for a language without rules for them."""
    try:
        return frozenset(in_words(number, language) for number in range(101))
    except ValueError:
        return frozenset()


def _plain(text: str) -> str:
    return text.casefold().replace("’", "'")


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


def _is_action(command: IntentMatch) -> bool:
    """Returns True for commands that do something, so that "hello and good night" is no chain."""
    if command.intent in {SAME_ACTION, SAME_TARGETS}:
        return True
    return command.intent.startswith("Hass") and command.intent not in INTENTS_WITHOUT_TOOL


def _free_text(command: IntentMatch) -> str:
    """Returns the free text of a command: a thing for the list, or a timer's name; or empty."""
    name = command.slots.get("name", "") if "Timer" in command.intent else ""
    return str(command.slots.get("item", name))


def _words_before(name: str, text: str) -> int:
    """Returns how many words of `text` precede `name`; 0 also if the name is not found."""
    whole, own = (" ".join(_WORD.findall(phrase.casefold())) for phrase in (text, name))
    return len(whole[: max(0, whole.find(own))].split())


def _may_be_guessed(step: IntentMatch) -> bool:
    return step.intent in REPAIRED_INTENTS and step.slots.get("domain") not in GUARDED_DOMAINS


def _is_lock(command: IntentMatch) -> bool:
    return command.slots.get("domain") == "lock" and "name" in command.slots


def _without_locks(names: HomeNames) -> HomeNames:
    others = tuple(device for device in names.devices if device[0] != "lock")
    return HomeNames(names.tools, names.areas, others)


def _chained(first: IntentMatch, *rest: IntentMatch) -> IntentMatch:
    then = (*first.then, *(step for command in rest for step in command.steps))
    return replace(first, then=then)


def _intent_match(result: RecognizeResult, text: str, own_words: Collection[str]) -> IntentMatch:
    slots: dict[str, object] = {}
    for entity in result.entities_list:
        if entity.name != IGNORED_LIST:
            slots[entity.name] = _value(entity.value)
    device = slots.pop("device", None)
    if isinstance(device, str):
        domain, _, device_class = device.partition("/")
        slots["domain"] = domain
        if device_class:
            slots["device_class"] = device_class
    slots.pop("fixed_device", None)
    if "name" in slots and "domain" not in slots and result.context.get("domain"):
        slots["domain"] = result.context["domain"]
    if result.intent.name.startswith(LIST_INTENTS) and _is_own(slots, text, own_words):
        slots["whose"] = "mine"
    return IntentMatch(result.intent.name, slots, result.response or "default", text=text)


def _is_own(slots: Mapping[str, object], text: str, own_words: Collection[str]) -> bool:
    """Returns whether a sentence says "my list", apart from what it says about the item."""
    around_item = text.casefold().replace(str(slots.get("item", "")), " ", 1)
    return not set(own_words).isdisjoint(around_item.split())


def _value(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.strip().lower() if isinstance(value, str) else value


def _slot_lists(names: HomeNames, added: LanguageData) -> dict[str, SlotList]:
    generic = {
        f"{area} {word}".casefold() for area in names.areas for word in added.device_kind_words
    }
    devices = [
        (name, name, {"domain": domain} if domain else {})
        for domain, name in names.devices
        if name.casefold() not in generic
    ]
    return {
        "area": TextSlotList.from_strings(names.areas, name="area", allow_template=False),
        "name": TextSlotList.from_tuples(devices, name="name", allow_template=False),
    }
