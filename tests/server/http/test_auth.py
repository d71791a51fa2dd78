"""Which requests are allowed: bind address x `Host` x `Origin` x key."""

from base64 import b64encode
from collections.abc import Callable
from typing import Literal

import pytest

from core.access.named_key import SCOPES, NamedKey
from core.errors import Forbidden, Unauthorized
from devices.registry.named_keys import NamedKeys
from server.http.auth import AccessGate, AccessGrant, AccessRequest, token_of

KEY = "right-key-0123456789"
Verdict = Literal["trusted", "public", "401", "403"]


def verdict(gate: AccessGate, caller: AccessRequest, *, is_public: bool = False) -> Verdict:
    try:
        access = gate.admit(caller, is_public=is_public)
    except Unauthorized:
        return "401"
    except Forbidden:
        return "403"
    return "trusted" if access.is_trusted else "public"


LOCAL = "127.0.0.1:8080"
LAN = "192.168.1.5:8080"


@pytest.mark.parametrize(
    ("is_local", "host", "origin", "token", "expected"),
    [
        # From this machine, without a key.
        (True, LOCAL, None, None, "trusted"),
        (True, "localhost:8080", "http://localhost:8080", None, "trusted"),
        (True, "app.localhost:8080", "http://app.localhost:8080", None, "trusted"),
        (True, "[::1]:8080", "http://[::1]:8080", None, "trusted"),
        (True, None, None, None, "trusted"),
        (True, LOCAL, None, "sk-dummy", "trusted"),  # stock clients always send something
        # A foreign page on this machine's browser.
        (True, LOCAL, "https://evil.example", None, "401"),
        (True, LOCAL, "https://evil.example", "wrong", "401"),
        (True, LOCAL, "https://good.example", KEY, "trusted"),
        (True, LOCAL, "null", None, "401"),
        (True, LOCAL, "http://127.0.0.1:3000", None, "401"),
        (True, LOCAL, "http://localhost:8080", None, "401"),
        (True, LOCAL, "https://127.0.0.1:8080", None, "401"),
        (True, LOCAL, "http://127.0.0.1:8080x", None, "401"),
        (True, LOCAL, "http://[", None, "401"),
        # DNS rebinding.
        (True, "evil.example:8080", "http://evil.example:8080", None, "403"),
        (True, "evil.example:8080", "http://evil.example:8080", KEY, "403"),
        (True, "127.0.0.1.evil.example", None, None, "403"),
        (True, "localhost@evil.example", None, None, "403"),
        (True, "", None, None, "403"),
        (True, "127.0.0.1:65536", None, None, "403"),
        (True, "127.0.0.1:65535", None, None, "trusted"),
        # A proxy on this machine lets the world in.
        (True, "voice.example", None, None, "401"),
        (True, "voice.example", None, KEY, "trusted"),
        (True, "203.0.113.5", None, None, "401"),
        # On the network everybody needs the key.
        (False, LAN, None, None, "401"),
        (False, LAN, None, "wrong", "401"),
        (False, LAN, None, KEY + "x", "401"),
        (False, LAN, None, "ключ", "401"),
        (False, LAN, None, KEY, "trusted"),
        (False, LAN, "http://192.168.1.5:8080", KEY, "trusted"),
        (False, LAN, "https://good.example", KEY, "trusted"),
        (False, LOCAL, None, None, "401"),
        (False, "evil.example", None, KEY, "403"),
        (False, "VOICE.example.:8080", None, KEY, "trusted"),
    ],
)
def test_the_table_of_allowed_requests(
    is_local: bool, host: str | None, origin: str | None, token: str | None, expected: Verdict
) -> None:
    gate = AccessGate(is_local=is_local, key=KEY, hosts=frozenset({"voice.example"}))
    assert verdict(gate, AccessRequest(host, origin, token=token)) == expected


@pytest.mark.parametrize(
    ("is_local", "host", "origin", "token", "expected"),
    [
        (True, LOCAL, None, None, "trusted"),
        (False, LAN, None, None, "public"),
        (False, LAN, None, "wrong", "public"),
        (False, LAN, None, KEY, "trusted"),
        (True, LOCAL, "https://evil.example", None, "public"),
        (False, "evil.example", None, None, "403"),
    ],
)
def test_public_paths_need_no_key_but_a_known_host(
    is_local: bool, host: str, origin: str | None, token: str | None, expected: Verdict
) -> None:
    caller = AccessRequest(host, origin, token=token)
    assert verdict(AccessGate(is_local=is_local, key=KEY), caller, is_public=True) == expected


def test_a_proxied_request_is_not_local() -> None:
    caller = AccessRequest(LOCAL, is_forwarded=True)
    assert verdict(AccessGate(is_local=True, key=KEY), caller) == "401"


@pytest.mark.parametrize(
    ("is_local", "token", "is_basic", "is_public", "expected"),
    [
        (True, None, False, False, "403"),
        (True, KEY, True, False, "403"),  # a password that the browser remembers
        (True, KEY, False, False, "trusted"),
        (True, None, False, True, "public"),  # a link to the page
        (False, None, False, False, "401"),
        (False, KEY, True, False, "401"),
    ],
)
def test_subresources_of_another_origin_need_the_key_on_this_machine(
    is_local: bool, token: str | None, is_basic: bool, is_public: bool, expected: Verdict
) -> None:
    caller = AccessRequest(LOCAL, token=token, is_basic=is_basic, is_cross_site=True)
    named = frozenset({"https://good.example"})
    for gate in (AccessGate(is_local, KEY), AccessGate(is_local, KEY, origins=named)):
        assert verdict(gate, caller, is_public=is_public) == expected


def test_a_server_without_a_key_accepts_no_key() -> None:
    for token in (None, "", "anything"):
        caller = AccessRequest(LOCAL, "https://evil.example", token=token)
        assert verdict(AccessGate(is_local=True, key=None), caller) == "401"
        assert verdict(AccessGate(is_local=True, key=""), caller) == "401"


@pytest.mark.parametrize("key", [KEY, None])
def test_an_expired_client_secret_has_its_own_error(key: str | None) -> None:
    caller = AccessRequest(LOCAL, "https://good.example", token="ek_old")
    with pytest.raises(Unauthorized, match="client secret"):
        AccessGate(is_local=True, key=key).admit(caller, is_public=False, admits=lambda _: False)


def test_unlisted_origins_are_refused_even_with_the_key() -> None:
    gate = AccessGate(is_local=True, key=KEY, origins=frozenset({"https://good.example"}))
    assert verdict(gate, AccessRequest(LOCAL, "https://other.example", token=KEY)) == "403"
    good = AccessRequest(LOCAL, "https://good.example", token=KEY)
    assert gate.admit(good, is_public=False) == AccessGrant(True, "https://good.example")


def test_the_same_origin_gets_no_cors_headers() -> None:
    caller = AccessRequest(LAN, "http://192.168.1.5:8080", token=KEY)
    assert AccessGate(is_local=False, key=KEY).admit(caller, is_public=False).cors_origin is None


def test_default_ports_are_the_same_origin() -> None:
    caller = AccessRequest("localhost", "https://localhost:443", scheme="https")
    assert verdict(AccessGate(is_local=True, key=KEY), caller) == "trusted"


@pytest.mark.parametrize(
    ("authorization", "subprotocols", "token"),
    [
        (None, None, None),
        (f"Bearer {KEY}", None, KEY),
        (f"bearer  {KEY} ", None, KEY),
        (f"Basic {KEY}", None, None),
        (f"Basic {b64encode(f'anybody:{KEY}'.encode()).decode()}", None, KEY),
        (f"basic  {b64encode(f':{KEY}'.encode()).decode()} ", None, KEY),
        (f"Basic {b64encode(b'a:b:c').decode()}", None, "b:c"),
        (f"Basic {b64encode(KEY.encode()).decode()}", None, None),
        ("Basic \u00fc=", None, None),
        ("Basic //8=", None, None),
        ("Bearer ", None, None),
        (None, f"realtime, openai-insecure-api-key.{KEY}", KEY),
        (None, "realtime, openai-organization.x", None),
        ("Basic x", f"openai-insecure-api-key.{KEY},realtime", KEY),
    ],
)
def test_a_bearer_token_is_read_from_the_header(
    authorization: str | None, subprotocols: str | None, token: str | None
) -> None:
    assert token_of(authorization, subprotocols) == token


@pytest.mark.parametrize(
    ("authorization", "own_header", "token"),
    [
        (None, KEY, KEY),
        (None, f" {KEY} ", KEY),
        (None, " ", None),
        (f"Bearer {KEY}", "other", KEY),
        ("Basic x", KEY, KEY),
    ],
)
def test_the_key_may_be_in_its_own_header(
    authorization: str | None, own_header: str, token: str | None
) -> None:
    assert token_of(authorization, None, own_header) == token


@pytest.mark.parametrize(
    ("origin", "expected"),
    [(None, "trusted"), ("http://192.168.1.5:8080", "trusted"), ("https://evil.example", "401")],
)
def test_stored_passwords_of_browsers_do_not_admit_other_origins(
    origin: str | None, expected: Verdict
) -> None:
    gate = AccessGate(is_local=False, key=KEY)
    assert verdict(gate, AccessRequest(LAN, origin, token=KEY, is_basic=True)) == expected


def test_the_key_is_not_in_reprs() -> None:
    assert KEY not in repr(AccessGate(is_local=True, key=KEY))
    assert KEY not in repr(AccessRequest(LOCAL, token=KEY))


ANNA = NamedKey("key_1", "anna", ("talk",))
TOKEN = "earshot_" + 43 * "a"


class OneKey(NamedKeys):
    """A directory with one named key, without a database."""

    def __init__(self) -> None:
        self.on_revoked: list[Callable[[NamedKey], None]] = []

    def find(self, token: str) -> NamedKey | None:
        return ANNA if token == TOKEN else None

    def count_request(self, key: NamedKey) -> None: ...


@pytest.mark.parametrize("is_local", [True, False])
def test_a_named_key_opens_what_its_scopes_say(is_local: bool) -> None:
    gate, caller = AccessGate(is_local, KEY, keys=OneKey()), AccessRequest(LAN, token=TOKEN)
    granted = gate.admit(caller, is_public=False, scope="talk")
    assert (granted.is_trusted, granted.named_key, granted.token) == (True, ANNA, None)
    granted.check_scope()
    with pytest.raises(Forbidden, match="'anna' does not have the scope 'manage'") as refused:
        gate.admit(caller, is_public=False, scope="manage").check_scope()
    assert refused.value.code == "missing_scope"
    assert TOKEN not in repr(granted) + repr(gate) + repr(caller)


def test_the_servers_own_key_has_every_scope() -> None:
    gate = AccessGate(is_local=False, key=KEY, keys=OneKey())
    for scope in SCOPES:
        granted = gate.admit(AccessRequest(LAN, token=KEY), is_public=False, scope=scope)
        assert (granted.named_key, granted.missing_scope) == (None, None)


def test_a_named_key_without_the_scope_of_a_public_path_sees_what_everybody_sees() -> None:
    gate, caller = AccessGate(False, KEY, keys=OneKey()), AccessRequest(LAN, token=TOKEN)
    assert gate.admit(caller, is_public=True, scope="talk").is_trusted
    assert not gate.admit(caller, is_public=True, scope="manage").is_trusted


def test_an_unknown_named_key_is_refused_even_where_no_key_is_needed() -> None:
    gate = AccessGate(is_local=True, key=KEY, keys=OneKey())
    revoked = AccessRequest(LOCAL, token=TOKEN[:-1] + "b")
    with pytest.raises(Unauthorized, match="revoked"):
        gate.admit(revoked, is_public=False, scope="talk")
    assert gate.admit(AccessRequest(LOCAL, token="sk-any"), is_public=False).is_trusted


def test_a_remembered_password_of_a_named_key_counts_on_no_foreign_page() -> None:
    gate = AccessGate(is_local=False, key=KEY, keys=OneKey())
    page = AccessRequest(LAN, "https://evil.example", token=TOKEN, is_basic=True)
    with pytest.raises(Unauthorized):
        gate.admit(page, is_public=False, scope="talk")
    script = AccessRequest(LAN, "https://good.example", token=TOKEN)
    assert gate.admit(script, is_public=False, scope="talk").cors_origin == "https://good.example"


def test_a_client_secret_has_the_key_that_made_it() -> None:
    gate = AccessGate(is_local=False, key=KEY, keys=OneKey())
    caller = AccessRequest(LAN, token="ek_1")

    def admits(token: str) -> NamedKey | bool:
        return ANNA if token == "ek_1" else False

    granted = gate.admit(caller, is_public=False, scope="talk", admits=admits)
    assert (granted.named_key, granted.token) == (ANNA, "ek_1")
    with pytest.raises(Forbidden):
        gate.admit(caller, is_public=False, scope="models", admits=admits).check_scope()
