"""Which words belong to whom: times decide, and single words do not flicker."""

import pytest

from engines.base import Segment, Word
from pipeline.transcription.diarisation.segments import SpeakerTimes, spoken_segments
from pipeline.transcription.diarisation.timeline import SpeakerSpan


def times(*spans: tuple[float, float, str]) -> SpeakerTimes:
    return SpeakerTimes([SpeakerSpan(*span) for span in spans])


def words(*script: tuple[str, float, float]) -> list[Word]:
    return [Word(text, start, end, 0.9) for text, start, end in script]


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "speaker"),
    [
        (0, 500, "A"),
        (800, 1300, "A"),
        (900, 1600, "A"),  # 100 ms of each: who comes first
        (950, 1700, "B"),
        (1050, 1200, "A"),  # nobody speaks
        (1300, 1450, "B"),
        (4000, 4100, "B"),
        (-10, -5, "A"),
        (100, 100, "A"),
        (500, 9000, "B"),
    ],
)
def test_who_speaks_longest_or_nearest(start_ms: float, end_ms: float, speaker: str) -> None:
    known = times((0, 1000, "A"), (1500, 3000, "B"))
    assert known.speaker(start_ms, end_ms) == speaker


def test_a_recording_without_speech_has_one_speaker() -> None:
    assert times().speaker(5, 10) == "A"
    assert spoken_segments([], [], times()) == []


def test_a_segment_is_divided_where_the_speaker_changes() -> None:
    said = words((" Is", 0, 300), (" it", 300, 500), (" late?", 500, 1000), (" Yes,", 1300, 1500))
    said += words((" it", 1500, 1700), (" is.", 1700, 2000), (" Good.", 2200, 2900))
    segments = [Segment(" Is it late? Yes, it is.", 0, 2000), Segment(" Good.", 2100, 3000)]
    known = times((0, 1000, "A"), (1250, 2050, "B"), (2150, 3000, "A"))
    assert [
        (one.text, one.start_ms, one.end_ms, one.speaker)
        for one in spoken_segments(segments, said, known)
    ] == [
        ("Is it late?", 0, 1000, "A"),
        ("Yes, it is.", 1300, 2000, "B"),
        ("Good.", 2200, 2900, "A"),
    ]


def test_words_without_spaces_are_joined_as_their_script_wants_it() -> None:
    known = times((0, 200, "A"), (200, 400, "B"))
    said = words(("one", 0, 100), ("two", 100, 200), ("three", 200, 300), ("four", 300, 400))
    parts = spoken_segments([Segment("one two three four", 0, 400)], said, known)
    assert [part.text for part in parts] == ["one two", "three four"]
    said = words(("你", 0, 100), ("好", 100, 200), ("再", 200, 300), ("见", 300, 400))
    parts = spoken_segments([Segment("你好再见", 0, 400)], said, known)
    assert [part.text for part in parts] == ["你好", "再见"]


def test_without_times_of_words_a_segment_is_one_speakers() -> None:
    known = times((0, 1000, "A"), (1250, 3000, "B"))
    segments = [Segment(" Is it late? Yes.", 0, 2000), Segment(" Good.", 2100, 3000)]
    parts = spoken_segments(segments, [], known)
    assert [(one.text, one.speaker) for one in parts] == [("Is it late? Yes.", "A"), ("Good.", "B")]


@pytest.mark.parametrize(
    ("spans", "speakers"),
    [
        # One word among those of another, without pauses.
        ([(0, 1000, "A"), (1000, 1300, "B"), (1300, 3000, "A")], "AAAAAA"),
        # A turn of one word, after and before a pause.
        ([(0, 900, "A"), (3000, 3300, "B"), (3600, 4500, "A")], "AAABAA"),
        ([(0, 1000, "A"), (1000, 1600, "B"), (1600, 4500, "A")], "ABBAAA"),
    ],
)
def test_a_single_word_does_not_flicker(
    spans: list[tuple[float, float, str]], speakers: str
) -> None:
    said = words(("a", 500, 950), ("b", 1000, 1290), ("c", 1300, 1600))
    if speakers == "AAABAA":
        said = words(("a", 0, 300), ("b", 300, 600), ("c", 600, 900))
    said += words(("d", 3000, 3300), ("e", 3600, 4000), ("f", 4000, 4500))
    assert "".join(times(*spans).speakers_of_words(said)) == speakers
