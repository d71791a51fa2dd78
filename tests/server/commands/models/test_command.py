"""`earshot models` as a process: its output and exit codes."""

import signal
import socket
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from subprocess import PIPE, Popen, run
from sys import executable

import pytest
from msgspec.json import decode

from server.commands.exit_codes import ExitCode
from server.commands.models.command import HUB_TIMEOUT_S
from server.compose.choices import choose_one, survey
from server.config import Config, PathsConfig
from server.models.inventory import partial_folder
from serving.placement.benchmarks import ModelBenchmark, device_name, save_benchmark
from serving.placement.hardware import detect_hardware
from tests.engines.embed.tiny_model import write_embedder, write_reranker
from tests.engines.nano import NANO
from tests.engines.runtime.model_files.tiny_gguf import gguf_bytes, write_gguf
from tests.server.models.cli import COMMAND, earshot, environment_of, last_line
from tests.server.models.fake_hub import FakeHub, serving, weights_file, whisper_files
from tests.shared import ROOT

pytestmark = pytest.mark.live


AUTO = ("pull", "auto", "--best-effort")
"What `make run` says."


TURN_DETECTOR = {"smart-turn-v3.2-cpu.onnx": b"weights", "README.md": b"a page"}


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    files = whisper_files()
    names = ["tiny", "base", "small"]
    repositories = {f"Systran/faster-whisper-{name}": files for name in names}
    repositories["pipecat-ai/smart-turn-v3"] = TURN_DETECTOR
    with serving(FakeHub(repositories)) as fake:
        yield fake


def test_make_run_fetches_the_model_once(tmp_path: Path, fake: FakeHub) -> None:
    _, out, _ = earshot(tmp_path / "models", fake.url, *AUTO)
    folder, turn_detector = sorted((tmp_path / "models").iterdir())
    lines = out.splitlines()
    assert lines[-1] == f"Turn detection: fetched {turn_detector}."
    assert f"Speech recognition: fetched {folder}." in lines
    assert sorted(path.name for path in turn_detector.iterdir()) == [
        "smart-turn-v3.2-cpu.onnx",
        "source.json",
    ]
    config = Config(paths=PathsConfig(models_dir=str(tmp_path / "models")))
    chosen = choose_one(config, "endpoint", survey(config.paths.models_dir, ["endpoint"]))
    assert (chosen.name, chosen.options) == (
        "smart_turn",
        {"path": str(turn_detector / "smart-turn-v3.2-cpu.onnx")},
    )
    line = last_line(tmp_path / "models", "http://127.0.0.1:9", *AUTO)
    assert line == f"Speech recognition: {folder} is present, nothing to download."


def test_auto_fetches_by_measured_decode_times(tmp_path: Path, fake: FakeHub) -> None:
    """Also for `make run`, which fetches a smaller model if one was too slow on this machine."""
    here = device_name(detect_hardware(""))
    save_benchmark(tmp_path, "faster-whisper-small", ModelBenchmark("", 500.0, device=here))
    out = earshot(tmp_path, fake.url, "pull")[1]
    assert "auto: faster-whisper-small is the largest" in out
    assert ": 500 ms per utterance, measured." in out
    save_benchmark(tmp_path, "faster-whisper-base", ModelBenchmark("", 300.0, device=here))
    save_benchmark(tmp_path, "faster-whisper-small", ModelBenchmark("", 900.0, device=here))
    configured = last_line(tmp_path, fake.url, *AUTO, EARSHOT_ASR__MODEL="small")
    assert configured.endswith("faster-whisper-small is present, nothing to download.")
    code, out, _ = earshot(tmp_path, fake.url, *AUTO)
    assert code == 0
    assert "too slow beyond 800 ms: faster-whisper-small takes 900 ms." in out
    assert "faster-whisper-base." in out
    again = last_line(tmp_path, fake.url, *AUTO)
    assert again.endswith("faster-whisper-base is present, nothing to download.")


def test_an_incomplete_model_is_not_listed(tmp_path: Path, fake: FakeHub) -> None:
    for files in fake.repositories.values():
        files.pop("config.json", None)
    line = last_line(tmp_path, fake.url, *AUTO)
    assert "not fetched" in line
    assert "has no config.json" in line
    assert not list(tmp_path.glob("faster*"))


def test_a_refused_connection_is_one_error_line(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connecting is refused
        hub = f"http://127.0.0.1:{unused.getsockname()[1]}"
        line = last_line(tmp_path, hub, *AUTO)
        assert "refused" in line
        assert "needs no download" in line
        code, _, err = earshot(tmp_path, hub, "pull", "tiny")
    assert code == ExitCode.CONNECTION_FAILED
    assert "refused" in err


def test_a_model_of_the_users_catalogue_is_listed_and_pulled(tmp_path: Path, fake: FakeHub) -> None:
    models, config = tmp_path / "models", tmp_path / "earshot.toml"
    fake.repositories["us/faster-whisper-ours"] = whisper_files()
    config.touch()
    table = (
        '[[model]]\nname = "ours"\nrepository = "us/faster-whisper-ours"\nsize_mb = 1\n'
        f'revision = "{fake.commit}"\n[aliases]\nkitchen = "ours"\n[[model]]\nname = "tiny"\n'
    )
    checksum = sha256(whisper_files()["model.bin"]).hexdigest()

    def pull(pinned: str) -> tuple[int, str]:
        pin = f'sha256 = {{ "model.bin" = "{pinned}" }}\n[aliases]'
        catalogue = table.replace("[aliases]", pin)
        (tmp_path / "models.toml").write_text(catalogue, encoding="utf-8")
        code, _, err = earshot(models, fake.url, "pull", "kitchen", EARSHOT_CONFIG=str(config))
        return code, err

    other = "0" * 64
    code, err = pull(other)
    assert (code, list(models.glob("faster*"))) == (ExitCode.CANNOT_RUN, [])
    assert f"model.bin has the sha256 {checksum} on the hub, and {other} in" in err
    assert pull(checksum)[0] == 0
    assert (models / "faster-whisper-ours/model.bin").is_file()
    asked = len(fake.asked)
    assert earshot(models, fake.url, "pull", "ours", EARSHOT_CONFIG=str(config))[0] == 0
    assert len(fake.asked) == asked  # it is there at the wanted commit
    listed = earshot(models, fake.url, "list", EARSHOT_CONFIG=str(config))[1]
    assert "ours " in listed
    (tmp_path / "models.toml").write_text("[aliases]\na = 'a'\n", encoding="utf-8")
    code, _, err = earshot(models, fake.url, "list", EARSHOT_CONFIG=str(config))
    assert (code, "cycle: a -> a" in err) == (2, True)


def test_a_silent_hub_costs_only_the_timeout(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        line = last_line(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}", *AUTO)
    assert "not fetched" in line
    assert time.monotonic() - started < HUB_TIMEOUT_S + 10  # for starting Python on a busy machine


@pytest.mark.parametrize(
    "environment",
    [
        {"EARSHOT_PORT": "x"},
        {"HF_ENDPOINT": "nonsense"},
        {"HF_HUB_OFFLINE": "1"},
        {"EARSHOT_MODELS_DIR": "/proc/nowhere"},
    ],
)
def test_no_failed_fetch_stops_make_run(
    environment: dict[str, str], tmp_path: Path, fake: FakeHub
) -> None:
    assert "not fetched" in last_line(tmp_path, fake.url, *AUTO, **environment)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("pull", "smal"), ExitCode.USAGE, "'smal'; similar: small, small.en"),
        (("pull", "medium"), ExitCode.CANNOT_RUN, "has no Systran/faster-whisper-medium"),
        (("pull", "tiny", "--offline"), ExitCode.CONNECTION_FAILED, "offline: "),
        (("pull", "tiny", "--timeout", "0"), ExitCode.USAGE, "expected seconds in (0, 3600]"),
        (("rm", "tiny"), ExitCode.CANNOT_RUN, "there is no model 'tiny'"),
        (("rm", "../models"), ExitCode.CANNOT_RUN, "there is no model '../models'"),
        (("doctor", "tiny"), ExitCode.CANNOT_RUN, "there is no model 'tiny'"),
        (("convert", "tiny", "../x"), ExitCode.CANNOT_RUN, "'../x' is not a valid name of a model"),
        (("convert", str(NANO), "x"), ExitCode.CANNOT_RUN, "is already in CTranslate2's format"),
        (("convert", "/proc", "x"), ExitCode.CANNOT_RUN, "/proc holds no checkpoint"),
        (("polish",), ExitCode.USAGE, "invalid choice: 'polish'"),
    ],
)
def test_failed_commands_have_their_exit_codes(
    arguments: tuple[str, ...], code: ExitCode, said: str, tmp_path: Path, fake: FakeHub
) -> None:
    ended, _, err = earshot(tmp_path, fake.url, *arguments)
    assert ended == code
    assert said in err


def test_converting_without_torch_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_bytes(b"{}")
    (tmp_path / "mine" / "model.safetensors").write_bytes(b"")
    (tmp_path / "torch.py").write_text("import no_such_library")
    wanted = ("convert", "mine", "mine-int8", "--python", executable)
    code, _, err = earshot(tmp_path, "", *wanted, PYTHONPATH=str(tmp_path))
    assert code == ExitCode.CANNOT_RUN
    assert "No module named 'no_such_library'; install them with `earshot extras add torch`" in err
    assert not (tmp_path / "mine-int8").exists()
    assert earshot(tmp_path, "", *wanted[:-1], "/nowhere/python")[0] == ExitCode.CANNOT_RUN


def test_a_download_stopped_by_ctrl_c_can_be_resumed(tmp_path: Path, fake: FakeHub) -> None:
    fake.stalls_at = 100_000
    pulling = Popen(
        [*COMMAND, "pull", "tiny"],
        env=environment_of(tmp_path, fake.url),
        cwd=ROOT,
        stdout=PIPE,
        stderr=PIPE,
        text=True,
    )
    assert pulling.stderr is not None
    assert "% of" in pulling.stderr.readline()  # a third of it has come
    pulling.send_signal(signal.SIGINT)
    _, err = pulling.communicate(timeout=30)
    assert pulling.returncode == ExitCode.INTERRUPTED, err
    (part,) = partial_folder(tmp_path, "faster-whisper-tiny").glob("model.bin.*.part")
    reached = part.stat().st_size
    assert 0 < reached <= 100_000
    assert "partly downloaded" in earshot(tmp_path, fake.url, "list")[1]
    fake.stalls_at = None
    fake.asked.clear()
    assert "fetched" in last_line(tmp_path, fake.url, "pull", "tiny")
    assert fake.ranges("model.bin") == [f"bytes={reached}-"]
    assert (tmp_path / "faster-whisper-tiny" / "model.bin").read_bytes() == weights_file()


def test_the_token_is_never_shown(tmp_path: Path, fake: FakeHub) -> None:
    fake.token = "hf_right"
    for token, code in (("hf_wrong", ExitCode.CANNOT_RUN), ("hf_right", ExitCode.OK)):
        ended, out, err = earshot(tmp_path, fake.url, "pull", "tiny", HF_TOKEN=token)
        assert ended == code
        assert token not in out + err


def test_models_are_listed_checked_and_removed(tmp_path: Path, fake: FakeHub) -> None:
    nano = tmp_path / "home-commands"
    nano.mkdir()
    for file in NANO.iterdir():
        (nano / file.name).write_bytes(file.read_bytes())
    earshot(tmp_path, fake.url, "pull", "tiny")
    _, out, _ = earshot(tmp_path, fake.url, "list")
    assert "home-commands  8 MB  float16  English" in out
    assert "To pull: tiny.en, base" in out
    _, out, _ = earshot(tmp_path, fake.url, "list", "--json")
    listed = decode(out)
    assert [(one["name"], one["is_default"]) for one in listed["installed"]] == [
        ("home-commands", True),
        ("tiny", False),
    ]
    assert {one["name"]: one["is_installed"] for one in listed["known"]}["tiny"]

    code, out, _ = earshot(tmp_path, fake.url, "doctor", "home-commands")
    assert code == 0
    assert "its checksums are not recorded" in out
    assert "decodes 1 s of noise" in out
    assert "knows en" in out

    code, out, _ = earshot(tmp_path, fake.url, "doctor", "tiny")  # random bytes do not load
    assert code == ExitCode.CANNOT_RUN
    assert "checksums match, from Systran" in out
    assert "FAIL" in out.splitlines()[-1]
    (tmp_path / "faster-whisper-tiny" / "tokenizer.json").write_bytes(b"{ }")
    code, out, _ = earshot(tmp_path, fake.url, "doctor")
    assert code == ExitCode.CANNOT_RUN
    assert "tiny: tokenizer.json changed since the download; `earshot models rm faster-" in out

    code, out, _ = earshot(tmp_path, fake.url, "doctor", "--json")
    report = decode(out)
    assert (code, report["failed"]) == (ExitCode.CANNOT_RUN, 1)
    assert {
        one["name"]: [check["verdict"] for check in one["checks"]] for one in report["models"]
    } == {"home-commands": ["ok", "note", "ok", "ok"], "tiny": ["ok", "fail"]}

    code, _, err = earshot(tmp_path, fake.url, "rm", "tiny")
    assert code == ExitCode.USAGE
    assert "--yes" in err
    assert last_line(tmp_path, fake.url, "rm", "tiny", "--yes").startswith("removed ")
    assert [path.name for path in tmp_path.iterdir()] == ["home-commands"]


def test_models_for_embeddings_and_reranking_are_listed_and_checked(tmp_path: Path) -> None:
    for name, write in (("minilm", write_embedder), ("judge", write_reranker)):
        (tmp_path / name).mkdir()
        write(tmp_path / name)
    _, listed, _ = earshot(tmp_path, "", "list", "--json")
    kinds = {one["name"]: one["kind"] for one in decode(listed)["installed"]}
    assert kinds == {"minilm": "embed", "judge": "rerank"}
    assert "for embeddings" in earshot(tmp_path, "", "list")[1]
    code, checked, _ = earshot(tmp_path, "", "doctor")
    assert (code, checked.count("computes a text in")) == (0, 2)
    (tmp_path / "minilm" / "config.json").unlink()
    code, checked, _ = earshot(tmp_path, "", "doctor", "minilm")
    assert (code, "has no config.json" in checked) == (1, True)


def test_removing_a_link_leaves_what_it_points_to(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "linked").symlink_to(NANO)
    last_line(models, "", "rm", "linked", "--yes")
    assert list(models.iterdir()) == []
    assert (NANO / "model.bin").exists()


def test_listing_models_imports_no_large_library(tmp_path: Path) -> None:
    """`models list` starts fast because it loads few packages; a time would measure the machine."""
    command = [executable, "-X", "importtime", *COMMAND[1:], "list"]
    environment = environment_of(tmp_path, "")
    done = run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    names = (line.rpartition("|")[2].strip() for line in done.stderr.splitlines())
    imported = {name.partition(".")[0] for name in names}
    assert {"msgspec", "numpy", "server"} <= imported
    large = {"aiohttp", "aiortc", "alembic", "av", "ctranslate2", "faster_whisper", "jsonschema"}
    large |= {"huggingface_hub", "mcp", "onnxruntime", "sqlalchemy", "tokenizers", "wyoming"}
    assert large & imported == set()


def test_doctor_reads_the_header_of_a_language_model(tmp_path: Path) -> None:
    write_gguf(tmp_path / "models" / "bare.gguf")
    code, out, err = earshot(tmp_path / "models", "http://127.0.0.1:9", "doctor", "bare")
    assert code == 0, err
    assert "bare: llama, 512 tokens, a chat template" in out
    (tmp_path / "models" / "short.gguf").write_bytes(gguf_bytes()[:-1])
    code, out, _ = earshot(tmp_path / "models", "http://127.0.0.1:9", "doctor")
    assert code == ExitCode.CANNOT_RUN
    assert "it is truncated: 1 bytes of the tensor 'output.weight' missing" in out
    listed = earshot(tmp_path / "models", "http://127.0.0.1:9", "list")[1]
    assert "a language model" in listed
    assert "broken: " in listed
