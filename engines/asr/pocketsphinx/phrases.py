"""Weighted templates of English sentences that people say to a home assistant.

They are the built-in training text of the language model for commands; sentences of the real home
are added to them if there are any. The templates are many on purpose: the more ways of asking the
model has seen, the less a user must know our wording.
"""

from collections.abc import Mapping, Sequence
from random import Random

from engines.asr.pocketsphinx.templates import sample

SENTENCE_COUNT = 24_000  # with more, only the counts of the rarest number-and-room pairs change


def _listed(text: str, separator: str | None = None) -> list[str]:
    return text.split(separator)


_ONES = _listed("one two three four five six seven eight nine")
_TEENS = _listed("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen")
_TENS = _listed("twenty thirty forty fifty sixty seventy eighty ninety")
_BELOW_100 = (
    *_ONES,
    *_TEENS,
    *_TENS,
    *(f"{ten} {one}" for ten in _TENS for one in _ONES),
)

RULES: Mapping[str, Sequence[str]] = {
    "number": _BELOW_100,
    "percent": (*_BELOW_100, *_TENS, "one hundred", "a hundred", "zero"),
    "hour": (*_ONES, "ten", "eleven", "twelve"),
    "count": ("a", "one", "two", "three", "four", "five", "six", "ten", "twelve", "a dozen"),
    "room": (
        *_listed("kitchen bedroom bathroom office garage hallway attic garden basement"),
        *_listed("living room|dining room|living room|dining room", "|"),
        *_listed("study hall lounge cellar yard patio nursery"),
        *_listed("guest room|laundry room|kids room", "|"),
    ),
    "light": ("lights", "lights", "light", "lamp", "lamps", "ceiling light"),
    "device": (
        *_listed("lights|light|lamp|fan|heater|radio|television|speaker|coffee machine|alarm", "|"),
        *_listed("heating|thermostat|air conditioning|coffee maker|t v|sprinkler|pump|switch", "|"),
        *_listed("plug|outlet|blinds|curtains|door|music|lock|speakers|oven|dishwasher", "|"),
        *_listed("washing machine|vacuum|humidifier|floor lamp|desk lamp|bedside lamp", "|"),
    ),
    "cover": (
        *_listed("door|window|blinds|curtains|door|window|blinds|curtains", "|"),
        *_listed("blind|curtain|shutters|shades|gate|garage door|front door|back door", "|"),
    ),
    "lockable": ("door", "front door", "back door", "garage door", "gate", "<room> door"),
    "color": (
        *_listed("red green blue white yellow orange purple pink"),
        *_listed("warm white|cold white|turquoise|violet|cyan|brown|black|gold", "|"),
    ),
    "unit": ("second", "seconds", "minute", "minutes", "hour", "hours"),
    "units": ("seconds", "minutes", "minutes", "hours"),
    "often": ("five", "ten", "ten", "fifteen", "twenty", "thirty", "forty five", "sixty"),
    "duration": (
        "<number> <units>",
        "<number> <units>",
        "<often> <units>",
        "<often> (seconds|minutes)",
        "<often> (seconds|minutes)",
        "one <unit>",
        "(a|an) <unit>",
        "(half an hour|a quarter of an hour|an hour and a half|a minute and a half)",
        "<number> (minutes|hours) [and] <number> (seconds|minutes)",
    ),
    "timer_name": (
        *_listed("pasta pizza tea laundry eggs egg homework break rice coffee bread oven"),
        *_listed("chicken cake workout nap cooking kitchen first second dinner potato"),
    ),
    "timer": ("timer", "timer", "timer", "<timer_name> timer", "<timer_name> timer"),
    "city": (
        *_listed("london paris berlin tokyo boston dallas rome madrid"),
        *_listed("chicago seattle sydney vienna dublin amsterdam moscow"),
        *_listed("new york|los angeles|san francisco|hong kong", "|"),
    ),
    "item": (
        *_listed("milk bread butter apples coffee cheese rice soap paper bananas"),
        *_listed("eggs sugar flour tea water juice potatoes tomatoes onions carrots"),
        *_listed("chicken beef fish pasta chocolate cookies salt pepper oil yogurt"),
        *_listed("shampoo batteries wine beer lettuce garlic oranges grapes ham"),
        *_listed("toilet paper|paper towels|olive oil|orange juice|ice cream|dog food", "|"),
    ),
    "weekday": _listed("monday tuesday wednesday thursday friday saturday sunday"),
    "day": ("<weekday>", "<weekday>", "<weekday>", "today", "tomorrow", "tonight"),
    "list": ("my shopping list", "the shopping list", "my list", "the list", "shopping list"),
    "task": (
        "buy <item>",
        "buy <item>",
        "call (mom|dad|my mother|the doctor|the office)",
        "(take out the trash|water the plants|feed the (cat|dog)|pay the bills)",
        "do the (laundry|dishes|homework)",
        "take my medicine",
    ),
    "switch": ("turn", "turn", "turn", "switch"),
    "onoff": ("on", "off"),
    "time_of_day": ("in the morning", "in the evening", "in the afternoon", "at night"),
    "clock": (
        "<hour>",
        "<hour> [o'clock] <time_of_day>",
        "<hour> (fifteen|thirty|forty five|o'clock|a m|p m)",
    ),
}

WEIGHTED: Sequence[tuple[int, str]] = (
    (12, "<switch> <onoff> the <room> <device>"),
    (8, "<switch> the <device> <onoff> in the <room>"),
    (6, "<switch> <onoff> the <device> [in the <room>]"),
    (3, "<switch> the [<room>] <device> <onoff>"),
    (5, "<switch> <onoff> [all] [of] the lights [in the <room>]"),
    (4, "<switch> <onoff> all the lights in the <room>"),
    (1, "<switch> <onoff> (everything|all lights|all the <device>|my <device>)"),
    (1, "<switch> everything off"),
    (1, "lights <onoff> [in the <room>]"),
    (1, "<room> lights <onoff>"),
    (6, "set the <room> (<light>|brightness|volume|heater|<device>) to <percent> percent"),
    (2, "set [the] (brightness|volume) [of the <device>|in the <room>] to <percent> percent"),
    (3, "(dim|brighten) the [<room>] <light> [to <percent> percent]"),
    (1, "make (it|the <room>) (brighter|darker|warmer|cooler|colder)"),
    (5, "make the <room> <light> <color>"),
    (3, "(set|turn|change) the [<room>] <light> [to] <color>"),
    (6, "set the <room> temperature to <number> degrees"),
    (3, "set the (temperature|heating|thermostat|heater) [in the <room>] to <number> [degrees]"),
    (1, "(turn|make) the (heating|temperature|heat) (up|down)"),
    (5, "set a timer for <duration>"),
    (3, "(start|set|create|make) (a|the|my) [<timer_name>] timer [for <duration>]"),
    (5, "set a <timer_name> timer for <duration>"),
    (1, "set a <duration> timer"),
    (1, "<duration> timer"),
    (4, "cancel the <timer>"),
    (2, "cancel (the timer|all timers|my timer|all my timers|all of the timers)"),
    (1, "(stop|delete|pause|resume|remove) (the|my) <timer>"),
    (4, "how much time is left on the <timer>"),
    (2, "how (much time|long) (is|do i have|have i got) [left] [on (the|my) <timer>]"),
    (1, "what timers (are|do i have) [running|set]"),
    (4, "add <duration> to the <timer>"),
    (1, "(add|take) <duration> (to|from|off) (the|my) <timer>"),
    (4, "what time is it"),
    (1, "what (is|'s) the time"),
    (1, "what's the (time|date|day|weather|temperature) [today|now]"),
    (3, "what is the date today"),
    (3, "what day is it [today]"),
    (1, "what (is|was) the (date|day) [today|tomorrow|yesterday]"),
    (6, "what is the weather in <city> <day>"),
    (3, "(what is|what's|how is|how's) the weather [like] [in <city>] [on] [<day>]"),
    (4, "will it (rain|snow|be sunny) in <city> on <day>"),
    (2, "will it (rain|snow|be cold|be warm|be sunny) [in <city>] [<day>]"),
    (1, "do i need (an umbrella|a jacket) [<day>]"),
    (5, "what is the temperature in the <room>"),
    (2, "(what is|what's|how warm is|how cold is) (it|the temperature) [outside|in <city>]"),
    (1, "how (warm|cold|hot) is [it in] the <room>"),
    (8, "(open|close|shut) the <room> <cover>"),
    (4, "(open|close|shut) the <cover> [in the <room>]"),
    (1, "(raise|lower) the [<room>] (blinds|shades|shutters)"),
    (1, "set the <room> (blinds|curtains) to <percent> percent"),
    (6, "is the <room> (door|window|<cover>) (open|closed|locked|shut|unlocked)"),
    (2, "(is|are) the [<room>] (<device>|<cover>|<light>) (on|off|open|closed|locked)"),
    (1, "(are|is) (any|all) [of] [the] (lights|windows|doors) (on|off|open|closed|locked)"),
    (3, "(lock|unlock) the [<room>] <lockable>"),
    (1, "which (lights|windows|doors) are (on|open|unlocked)"),
    (5, "add <item> to <list>"),
    (4, "add <item> and <item> to <list>"),
    (2, "(put|add) [<count>] <item> [and <item>] (on|to) <list>"),
    (1, "remove <item> from <list>"),
    (1, "(what is|what's|read me what is|what do i have) on <list>"),
    (1, "(clear|empty|read) <list>"),
    (5, "play some music in the <room>"),
    (3, "play [some] (music|jazz|rock|classical music|the radio|a song) [in the <room>]"),
    (4, "(stop|pause|resume|play) [the] (music|radio|song|television)"),
    (2, "(next|previous|skip|skip this|last) (song|track)"),
    (3, "[turn] [the] volume (up|down)"),
    (1, "turn (it|that|the music|the volume|the <device>) (up|down|off|on)"),
    (1, "set [the] volume to <percent> [percent]"),
    (1, "(louder|quieter|mute|unmute|shut up|be quiet)"),
    (3, "(never mind|stop|cancel|cancel that|forget it|nothing|stop it)"),
    (4, "(thank you|thanks|thanks a lot|thank you very much|good morning|good night|good evening)"),
    (3, "(hello|hello there|hi|hey|goodbye|bye|yes|no|yes please|no thanks|no thank you|okay)"),
    (1, "(how are you|who are you|what is your name|what can you do|help|help me)"),
    (1, "tell me (a joke|something|the time|the news|a story)"),
    (1, "what is (the news|the meaning of life|your favorite color)"),
    (5, "what is <number> (plus|minus|times|divided by) <number>"),
    (1, "(what's|how much is) <number> (plus|minus|times|divided by) <number>"),
    (4, "remind me to <task> on <day> at <clock>"),
    (2, "remind me to <task> [<day>] [at <clock>] [in <duration>]"),
    (4, "wake me up at <clock>"),
    (2, "(set|cancel|stop) (an|the|my) alarm [for <clock>] [<day>]"),
    (2, "call the <room> <day> at <clock>"),
    (1, "call (mom|dad|the office|the doctor|home|the <room>)"),
    (4, "how far is it from <city> to <city>"),
    (1, "how (far|long|big|old|tall) is (it|it to <city>|<city>)"),
    (1, "where (is|are) (my phone|my keys|<city>|the <device>)"),
    (1, "(start|stop) the (vacuum|washing machine|dishwasher|coffee machine)"),
    (1, "(i'm|i am) (home|leaving|cold|hot|going to bed)"),
    (1, "can you (hear me|help me|repeat that|say that again)"),
)


def default_phrases(seed: int = 1) -> tuple[str, ...]:
    """Returns `SENTENCE_COUNT` random sentences, the same ones on every start."""
    random = Random(seed)
    weights = [weight for weight, _ in WEIGHTED]
    templates = [template for _, template in WEIGHTED]
    drawn = random.choices(templates, weights, k=SENTENCE_COUNT)
    return tuple(_polite(sample(template, RULES, random), random) for template in drawn)


def _polite(sentence: str, random: Random) -> str:
    """Adds a "please" to a quarter of the sentences, about as often first as last."""
    roll = random.random()
    if roll < 0.12:
        return f"please {sentence}"
    if roll < 0.24:
        return f"{sentence} please"
    if roll < 0.27:
        return f"(can you) {sentence}".replace("(", "").replace(")", "")
    return sentence
