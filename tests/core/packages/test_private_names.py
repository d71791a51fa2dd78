"""The table of private names: it fits the installed releases, and a gap in them is noticed."""

from importlib.metadata import version

import pytest

from core.packages.private_names import (
    CALL_NAMES,
    CALL_RELEASES,
    HTTP_NAMES,
    PrivateName,
    call_path_obstacles,
    missing_names,
    other_releases,
)

pytestmark = pytest.mark.live


def test_the_installed_releases_have_every_name() -> None:
    assert call_path_obstacles() == ()
    assert missing_names(HTTP_NAMES) == ()
    for package, release in CALL_RELEASES.items():
        assert version(package).startswith(f"{release}.")


def test_no_name_is_listed_twice_and_each_has_its_use() -> None:
    listed = [(one.owner, one.name) for one in (*CALL_NAMES, *HTTP_NAMES)]
    assert len(set(listed)) == len(listed) > 50
    assert all(one.use for one in (*CALL_NAMES, *HTTP_NAMES))


@pytest.mark.parametrize(
    ("owner", "name", "shown"),
    [
        ("aioice.ice:Connection", "_nominees", "aioice.ice.Connection._nominees"),
        ("aioice.ice:Connector", "_queue", "aioice.ice.Connector._queue"),
        ("aioice.icy", "relayed_candidate", "aioice.icy.relayed_candidate"),
        (
            "aiortc.rtcrtpsender:RTCRtpSender",
            "__cid",
            "aiortc.rtcrtpsender.RTCRtpSender.__cid",
        ),
    ],
)
def test_a_name_that_is_gone_is_named(owner: str, name: str, shown: str) -> None:
    assert missing_names([PrivateName(owner, name, "")]) == (f"{shown} is missing",)


def test_another_release_is_named() -> None:
    (newer, absent) = other_releases({"aioice": "99.1", "no-such-package": "1.0"})
    assert newer == f"aioice {version('aioice')} is not 99.1"
    assert absent == "no-such-package is not installed and is not 1.0"
