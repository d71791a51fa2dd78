"""Twilio's signatures, and the proofs of calls."""

import pytest

from devices.telephone.twilio.signature import is_proven, is_signed, prove_call, sign

TOKEN = "12345"
URL = "https://example.com/myapp.php?foo=1&bar=2"
FORM = [
    ("Digits", "1234"),
    ("To", "+18005551212"),
    ("From", "+14158675310"),
    ("Caller", "+14158675310"),
    ("CallSid", "CA1234567890ABCDE"),
]
DOCUMENTED = "L/OH5YylLD5NRKLltdqwSvS0BnU="
"Signature of this URL and form, from Twilio's page on the security of webhooks."


def test_the_documented_example_is_signed() -> None:
    assert sign(TOKEN, URL, FORM) == DOCUMENTED
    assert is_signed(TOKEN, DOCUMENTED, URL, list(reversed(FORM)))


@pytest.mark.parametrize(
    ("token", "signature", "url", "form"),
    [
        ("12346", DOCUMENTED, URL, FORM),
        (TOKEN, "", URL, FORM),
        (TOKEN, "L/OH5YylLD5NRKLltdqwSvS0BnÜ=", URL, FORM),
        (TOKEN, DOCUMENTED, URL.replace("https", "http"), FORM),
        (TOKEN, DOCUMENTED, URL + "3", FORM),
        (TOKEN, DOCUMENTED, URL, FORM[1:]),
        (TOKEN, DOCUMENTED, URL, [*FORM, ("From", "+1")]),
    ],
)
def test_what_differs_is_not_signed(
    token: str, signature: str, url: str, form: list[tuple[str, str]]
) -> None:
    assert not is_signed(token, signature, url, form)


@pytest.mark.parametrize(
    "signed", ["wss://a.example/x", "wss://a.example/x/", "wss://a.example:443/x"]
)
def test_the_usual_port_and_the_slash_of_a_stream_make_no_difference(signed: str) -> None:
    assert is_signed(TOKEN, sign(TOKEN, signed), "wss://a.example/x")
    assert not is_signed(TOKEN, sign(TOKEN, signed), "wss://a.example:8443/x")


def test_a_proof_covers_the_call_the_caller_and_its_time() -> None:
    proof = prove_call(TOKEN, "CA1", "+49", 1000)
    assert is_proven(TOKEN, proof, "CA1", "+49", "1000", 1000.0)
    assert not is_proven(TOKEN, proof, "CA1", "+49", "1000", 1000.5)
    assert not is_proven(TOKEN, proof, "CA2", "+49", "1000", 0.0)
    assert not is_proven(TOKEN, proof, "CA1", "+50", "1000", 0.0)
    assert not is_proven(TOKEN, proof, "CA1", "+49", "2000", 0.0)
    assert not is_proven(TOKEN, proof, "CA1", "+49", "1e3", 0.0)
    assert not is_proven("12346", proof, "CA1", "+49", "1000", 0.0)
