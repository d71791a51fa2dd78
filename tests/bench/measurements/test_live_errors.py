"""Comparison of live doors with the whole file: cells of the table, and corpora."""

import wave
from pathlib import Path

import pytest

from bench.measurements.live_errors import RecognisedClip, cell, corpus, main
from bench.measurements.material.live_doors import RecognisedSpeech
from core.audio import ASR_RATE_HZ
from tests.bench.tools.spoken_levels import ONE, level_audio


def test_a_cell_has_errors_differences_missing_and_rejected_words() -> None:
    found = [
        RecognisedClip(
            "a", "turn on the lamp", "turn on the lamb", RecognisedSpeech("turn the lamb", 1, 2)
        ),
        RecognisedClip("b", "stop", "stop", RecognisedSpeech("stop it", 0, 1)),
    ]
    assert cell(found) == "60.0 +40.0 (2, 1) 1, 3"


def test_without_a_transcript_the_whole_file_is_the_reference() -> None:
    found = [RecognisedClip("a", "", "one large mocha", RecognisedSpeech("one large marker"))]
    assert cell(found) == "33.3 +33.3 (1, 0) 0, 0"


def test_an_unknown_door_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--doors", "upload,window"])
    assert "'window' is none of upload" in capsys.readouterr().err


def test_a_corpus_with_labels_has_no_texts(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    folder.mkdir()
    with wave.open(str(folder / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(ASR_RATE_HZ)
        file.writeframes(level_audio((ONE, 600)).tobytes())
    (folder / "labels.tsv").write_text("path\tintent\tslots\na.wav\torder\t{}\n", "utf-8")
    ((name, reference, pcm),) = corpus(tmp_path, "orders", 60)
    assert (name, reference, len(pcm)) == ("a.wav", "", 600 * 16)
    assert list(corpus(tmp_path, "orders", 0.5)) == []
