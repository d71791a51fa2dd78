"""`earshot models bench --recordings`, with a Whisper of home commands and models of tones."""

import argparse
import json
import shutil
import wave
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, Pcm
from core.errors import ConfigError, EarshotError, RequestError
from server.commands.models import command
from server.commands.models.arguments import add_actions
from server.commands.models.recordings import (
    MAX_RECORDING_S,
    ModelOnRecordings,
    RecordingsReport,
    as_lines,
    read_recordings,
)
from server.compose.choices import choose_one, survey
from server.config import Config, PathsConfig
from server.models.errors import ModelsError
from serving.placement.recordings import RecordingsBenchmark, read_recordings_benchmarks
from tests.conftest import require
from tests.engines.asr.sherpa.tone_models import GERMAN, have_sherpa, offline_ctc, say
from tests.engines.nano import NANO

SENTENCES = ("turn on the light", "turn off", "the light off")


def models(*arguments: str, config: Config | None = None) -> int:
    """Runs `earshot models` in this process; returns its exit code."""
    parser = argparse.ArgumentParser()
    add_actions(parser)
    return command.run(parser.parse_args(arguments), lambda: config or Config())


def record(folder: Path, rows: Iterable[tuple[str, ...]], pcm: Pcm | None = None) -> Path:
    """Writes recordings and their table. `rows`: fields after the path; the last one is the text,
    which is spoken in tones unless `pcm` is given."""
    folder.mkdir()
    lines = []
    for number, row in enumerate(rows):
        lines.append("\t".join((f"{number}.wav", *row)))
        with wave.open(str(folder / f"{number}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(ASR_RATE_HZ)
            spoken = say(row[-1].lower().strip("."), tail_ms=300) if pcm is None else pcm
            file.writeframes(spoken.astype("<i2").tobytes())
    (folder / "transcripts.tsv").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.mark.live
def test_every_recogniser_is_measured_and_auto_follows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require(have_sherpa(), "sherpa-onnx and onnx are not installed")
    folder, home = (
        tmp_path / "models",
        Config(paths=PathsConfig(models_dir=str(tmp_path / "models"))),
    )
    shutil.copytree(NANO, folder / "commands")
    offline_ctc(folder / "tones")
    (folder / "damaged").mkdir()
    (folder / "damaged" / "tokens.txt").touch()
    (folder / "damaged" / "model.onnx").touch()
    source = record(tmp_path / "own", [(text,) for text in SENTENCES])
    where = ("bench", "--models-dir", str(folder), "--recordings", str(source))
    assert models(*where, "--json", config=home) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["recordings"], report["words"], report["language"]) == (3, 9, "en")
    found = {result["model"]: result for result in report["models"]}
    assert "is no ONNX file, or damaged" in found["damaged"]["problem"]
    assert found["tones"]["engine"] == "sherpa"
    tones, whisper = found["tones"]["measured"], found["commands"]["measured"]
    assert (tones["word_errors_percent"], tones["words"]) == (0, 9)
    assert whisper["word_errors_percent"] > 50
    assert 0 < tones["p50_ms"] <= tones["p95_ms"]
    assert tones["p50_ms"] < whisper["p50_ms"]
    assert tones["memory_mb"] > 10
    assert read_recordings_benchmarks(folder).keys() == {"commands", "tones"}
    choice = choose_one(home, "asr", survey(str(folder), ["asr"]))
    assert (choice.name, choice.options) == ("sherpa", {"model": str(folder / "tones")})
    assert report["auto"] == f"sherpa: {choice.why}"
    with pytest.raises(ModelsError, match="there is no model 'nothing'"):
        models(*where, "nothing", config=home)


def test_the_table_names_what_was_not_measured() -> None:
    measured = RecordingsBenchmark(40.2, "", "en", "2 cores", 240, 7.04, 30.4, 41.0, 120.2)
    results = (
        ModelOnRecordings("zipformer", "sherpa", measured),
        ModelOnRecordings("tiny", "faster_whisper", None, "its file is damaged"),
    )
    report = RecordingsReport(30, 2, 240, "en", "2 cores", results, "pocketsphinx: it needs none")
    assert list(as_lines(report)) == [
        "MODEL      ENGINE  SIZE   WORD ERRORS  P50    P95    MEMORY",
        "zipformer  sherpa  40 MB  7.0 %        30 ms  41 ms  120 MB",
        "tiny: not measured: its file is damaged",
        (
            "30 recordings in 'en' with 240 words, 2 in other languages left out; times are per"
            " utterance, on 2 cores"
        ),
        "auto takes pocketsphinx: it needs none",
    ]


def test_recordings_of_one_language_are_read(tmp_path: Path) -> None:
    rows = [("en", "Turn on."), ("", "the light"), ("de", " ".join(GERMAN[:2]))]
    source = record(tmp_path / "own", rows)
    english = read_recordings(source, "en")
    assert [item.text for item in english.items] == ["turn on", "the light"]
    assert (english.words, english.left_out) == (4, 1)
    assert english.checksum == read_recordings(source / "transcripts.tsv", "en").checksum
    assert read_recordings(source, "de").checksum != english.checksum
    with pytest.raises(RequestError, match="no recording is in 'fr'; there are: de, en"):
        read_recordings(record(tmp_path / "other", rows[::2]), "fr")
    (source / "0.wav").write_bytes((source / "1.wav").read_bytes())
    assert read_recordings(source, "en").checksum != english.checksum


def test_a_recording_that_is_no_utterance_is_refused(tmp_path: Path) -> None:
    long = np.zeros(round((MAX_RECORDING_S + 1) * ASR_RATE_HZ), np.int16)
    source = record(tmp_path / "own", [("turn on",)], long)
    with pytest.raises(RequestError, match=r"0\.wav: audio of more than 30 s, the limit"):
        read_recordings(source, "en")
    (source / "0.wav").write_bytes(b"no sound")
    with pytest.raises(RequestError, match=r"0\.wav: .*cannot decode this file"):
        read_recordings(source, "en")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a model, or give --recordings FOLDER"),
        (("tiny", "checkpoint", "--recordings", "own"), "one NAME at most, and no CHECKPOINT"),
    ],
)
def test_arguments_that_say_nothing_to_measure_are_refused(
    arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        models("bench", *arguments)


def test_a_folder_without_recognisers_says_what_is_measured(tmp_path: Path) -> None:
    source = record(tmp_path / "own", [("turn on",)])
    with pytest.raises(EarshotError, match=r"Whisper and models of sherpa.* there is none in"):
        models("bench", "--models-dir", str(tmp_path / "models"), "--recordings", str(source))
