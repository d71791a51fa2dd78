"""Manifests and tables of recordings, and the errors for wrong ones."""

from pathlib import Path

import pytest

from bench.asr.corpus import BadCorpus, CorpusClip, load_corpus, shares


def corpus(folder: Path, **texts: str) -> Path:
    """Writes a folder with two empty recordings and the files `wav_scp` and `trans_txt`."""
    for name in ("one.wav", "two.wav"):
        (folder / name).touch()
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return folder


def test_a_manifest_names_paths_relative_to_itself(tmp_path: Path) -> None:
    folder = corpus(
        tmp_path, wav_scp="a one.wav\n\nb  two.wav\n", trans_txt="b  turn   it off\na hello\n"
    )
    assert load_corpus(folder) == [
        CorpusClip("a", folder / "one.wav", "hello"),
        CorpusClip("b", folder / "two.wav", "turn it off"),
    ]


@pytest.mark.parametrize(
    ("wav_scp", "trans_txt", "why"),
    [
        ("a\n", "a hello\n", "wav.scp:1: expected exactly an id and a path, got 'a'"),
        ("a one.wav x\n", "a hello\n", "wav.scp:1: expected exactly an id and a path"),
        ("a one.wav\n", "a hello\nb\n", "trans.txt:2: expected an id and at least one word"),
        ("a one.wav\nb two.wav\n", "a hello\n", "wav.scp:2: trans.txt has no text for 'b'"),
        ("a none.wav\n", "a hello\n", "a: there is no file"),
        ("\n", "a hello\n", "no recordings are listed"),
    ],
)
def test_the_error_names_a_wrong_manifest(
    tmp_path: Path, wav_scp: str, trans_txt: str, why: str
) -> None:
    with pytest.raises(BadCorpus) as refused:
        load_corpus(corpus(tmp_path, wav_scp=wav_scp, trans_txt=trans_txt))
    assert why in str(refused.value)


def test_the_error_names_a_folder_without_the_two_files(tmp_path: Path) -> None:
    with pytest.raises(BadCorpus, match=r"trans\.txt: No such file"):
        load_corpus(corpus(tmp_path, wav_scp="a one.wav\n"))


@pytest.mark.parametrize(
    ("table", "languages"),
    [
        ("one.wav\thello\ntwo.wav\tturn it off\n", (None, None)),
        (
            "path\tlanguage\ttranscript\none.wav\ten\thello\ntwo.wav\tde\tturn it off\n",
            ("en", "de"),
        ),
        ("path\ttext\none.wav\thello\n\ntwo.wav\t turn it off \n", (None, None)),
    ],
)
def test_a_table_has_paths_texts_and_optional_languages(
    tmp_path: Path, table: str, languages: tuple[str | None, str | None]
) -> None:
    file = corpus(tmp_path) / "some.tsv"
    file.write_text(table, encoding="utf-8")
    assert load_corpus(file) == [
        CorpusClip("one.wav", tmp_path / "one.wav", "hello", languages[0]),
        CorpusClip("two.wav", tmp_path / "two.wav", "turn it off", languages[1]),
    ]


@pytest.mark.parametrize("row", ["one.wav", "one.wav\t", "one.wav\ten\thello\tmore", "\thello"])
def test_the_error_names_a_wrong_row(tmp_path: Path, row: str) -> None:
    file = corpus(tmp_path) / "some.tsv"
    file.write_text(f"two.wav\tright\n{row}\n", encoding="utf-8")
    with pytest.raises(BadCorpus, match=r"some\.tsv:2: expected a path"):
        load_corpus(file)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "some.tsv"
    file.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(BadCorpus, match="is no UTF-8 text"):
        load_corpus(file)


@pytest.mark.parametrize(
    ("clips", "tasks", "sizes"),
    [
        (7, 3, [3, 2, 2]),
        (8, 3, [3, 3, 2]),
        (6, 3, [2, 2, 2]),
        (2, 5, [1, 1]),
        (4, 1, [4]),
    ],
)
def test_the_shares_of_clients_are_contiguous_and_the_first_are_longer(
    clips: int, tasks: int, sizes: list[int]
) -> None:
    all_clips = [CorpusClip(str(number), Path("x"), "") for number in range(clips)]
    shared = shares(all_clips, tasks)
    assert [len(share) for share in shared] == sizes
    assert [clip for share in shared for clip in share] == all_clips
