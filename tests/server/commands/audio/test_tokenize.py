"""`earshot audio tokenize`: folders and archives, again and again, with damaged files among them.
The codec keeps the loudness of each frame."""

import io
import tarfile
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest

from core.errors import ConfigError
from server.commands.audio.recordings import Recording, UnreadableInput, find_recordings
from server.commands.audio.tokenize import RecordingTokenizer
from tests.engines.codec.loudness_codec import FRAME_SAMPLES, LoudnessCodec

RATE_HZ = 24_000


def _wav(frames: int = 3, level: int = 16384) -> bytes:
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        file.writeframes(np.full(frames * FRAME_SAMPLES, level, "<i2").tobytes())
    return data.getvalue()


def _folder(root: Path) -> Path:
    (root / "in" / "deeper").mkdir(parents=True)
    (root / "in" / "a.wav").write_bytes(_wav(2))
    (root / "in" / "deeper" / "b.WAV").write_bytes(_wav(4))
    (root / "in" / "broken.wav").write_bytes(b"no sound")
    (root / "in" / "a.txt").write_text("the transcript", encoding="utf-8")
    return root / "in"


def _run(*inputs: Path, out: Path) -> tuple[dict[str, int], LoudnessCodec]:
    codec = LoudnessCodec()
    tokenizer = RecordingTokenizer(codec, "loud", 2, out)
    tokenizer.run(find_recordings(inputs))
    return dict(tokenizer.outcomes.items()), codec


def _codes(out: Path) -> dict[str, tuple[int, ...]]:
    return {
        str(file.relative_to(out)): np.load(file, allow_pickle=False).shape
        for file in sorted(out.rglob("*"))
        if file.is_file()
    }


def test_a_folder_is_encoded_and_a_broken_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    outcomes, _ = _run(_folder(tmp_path), out=out)
    assert outcomes == {"made": 2, "failed": 1}
    assert _codes(out) == {"a.wav.loud-2.npy": (1, 2, 2), "deeper/b.WAV.loud-2.npy": (1, 2, 4)}
    assert capsys.readouterr().err.startswith("broken.wav: ")


def test_a_second_run_encodes_only_what_is_missing(tmp_path: Path) -> None:
    source, out = _folder(tmp_path), tmp_path / "out"
    _run(source, out=out)
    (out / "a.wav.loud-2.npy").unlink()
    (out / ".a.wav.loud-2.npy.partial").write_bytes(b"a run that was ended")
    outcomes, codec = _run(source, out=out)
    assert outcomes == {"made": 1, "there already": 1, "failed": 1}
    assert codec.calls == [("encode", 1)]
    assert [name for name in _codes(out) if name.startswith(".")] == []


def test_archives_are_read_without_unpacking_them(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as zipped:
        zipped.writestr("x/c.wav", _wav(5))
        zipped.writestr("x/c.txt", "text")
        zipped.writestr("../out.wav", _wav())
    with tarfile.open(tmp_path / "two.tar.gz", "w:gz") as packed:
        for name, data in (("d.wav", _wav(6)), ("bad.wav", b"no"), ("/abs.wav", _wav())):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("link.wav")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        packed.addfile(link)
    out = tmp_path / "out"
    outcomes, _ = _run(tmp_path / "one.zip", tmp_path / "two.tar.gz", out=out)
    assert outcomes == {"made": 2, "failed": 3}
    assert _codes(out) == {
        "one.zip/x/c.wav.loud-2.npy": (1, 2, 5),
        "two.tar.gz/d.wav.loud-2.npy": (1, 2, 6),
    }


def test_a_damaged_archive_gives_what_can_be_read_of_it(tmp_path: Path) -> None:
    path = tmp_path / "cut.tar"
    with tarfile.open(path, "w") as packed:
        for name in ("a.wav", "b.wav"):
            member = tarfile.TarInfo(name)
            member.size = len(_wav(40))
            packed.addfile(member, io.BytesIO(_wav(40)))
    path.write_bytes(path.read_bytes()[: len(_wav(40)) + 3000])
    first, *others = find_recordings([path])
    assert isinstance(first, Recording)
    assert others
    assert all(isinstance(other, UnreadableInput) for other in others)


def test_several_recordings_share_a_call(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}.wav").write_bytes(_wav())
    _, codec = _run(tmp_path, out=tmp_path / "out")
    assert codec.calls == [("encode", 8), ("encode", 2)]


def test_what_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.wav: no such file or folder"):
        _run(tmp_path / "nothing.wav", out=tmp_path)
    with pytest.raises(ConfigError, match="--codebooks 3: loud has 2, 4"):
        RecordingTokenizer(LoudnessCodec(), "loud", 3, tmp_path)
