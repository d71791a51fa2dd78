"""Markdown of answers: what it becomes, and that nothing of it becomes HTML."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browser import Stub, serving
from tests.web.page.calls import a_turn, created, is_in, opened, said, say, spoken

pytestmark = pytest.mark.browser

AS_HTML = """async (text) => {
  const { markdown } = await import("/static/view/markdown.js");
  const { update } = await import("/static/view/keyed.js");
  const element = new DOMParser().parseFromString("<div></div>", "text/html").body.firstChild;
  update(element, {}, markdown(text));
  return element.innerHTML;
}"""

LINK = '<a href="https://example.org/a" rel="noopener noreferrer" target="_blank">'


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    stub = Stub()
    with serving(stub):
        page = browser.new_page()
        page.goto(f"{stub.url}/static/icon.svg")  # same origin, nothing of the page running
        yield page
        page.close()


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("It is ten.", "<p>It is ten.</p>"),
        ("one\ntwo\n\nthree", "<p>one two</p><p>three</p>"),
        ("# Eggs #", "<p><strong>Eggs</strong></p>"),
        ("- a\n- b\n  more", "<ul><li>a</li><li>b more</li></ul>"),
        ("3. a\n4) b", '<ol start="3"><li>a</li><li>b</li></ol>'),
        ("list:\n* a", "<p>list:</p><ul><li>a</li></ul>"),
        ("```py\na < b\n\n*c*\n```\nend",
         '<pre tabindex="0"><code>a &lt; b\n\n*c*</code></pre><p>end</p>'),
        ("```\nnot yet done", '<pre tabindex="0"><code>not yet done</code></pre>'),
        ("**a *b* c** and `**d**`",
         "<p><strong>a <em>b</em> c</strong> and <code>**d**</code></p>"),
        ("_so_ snake_case_name 2 * 3 * 4 **open",
         "<p><em>so</em> snake_case_name 2 * 3 * 4 **open</p>"),
        ("[here](https://example.org/a)", f"<p>{LINK}here</a></p>"),
        ("See https://example.org/a.", f"<p>See {LINK}https://example.org/a</a>.</p>"),
    ],
)  # fmt: skip
def test_markdown_becomes_elements(tab: Page, text: str, html: str) -> None:
    assert tab.evaluate(AS_HTML, text) == html


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)>",
        "<script>alert(1)</script>",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](data:text/html,x)",
        "[x](/relative)",
        "[x](file:///etc/passwd)",
    ],
)
def test_html_and_addresses_that_are_not_of_the_web_stay_text(tab: Page, text: str) -> None:
    shown = text.replace("<", "&lt;").replace(">", "&gt;")
    assert tab.evaluate(AS_HTML, text) == f"<p>{shown}</p>"


@pytest.mark.parametrize(
    "text",
    ["*" * 20_000, "[" * 20_000, "**a " * 5_000, "`" * 20_001, "_a" * 9_000, "`a` " * 20_000],
)
def test_a_hostile_text_takes_no_long_time(tab: Page, text: str) -> None:
    took_ms = tab.evaluate(
        """async (text) => {
          const { markdown } = await import("/static/view/markdown.js");
          const start = performance.now();
          markdown(text);
          return performance.now() - start;
        }""",
        text,
    )
    assert took_ms < 2_000


def test_an_answer_is_shown_with_its_list(page: Page) -> None:
    opened(page)
    say(page, *spoken("i", "what do I need?"), created("r"), said("r", "You need:\n- flour\n- eg"))
    items = page.get_by_test_id("reply").get_by_role("listitem")
    expect(items).to_have_text(["flour", "eg"])
    say(page, said("r", "gs"))
    expect(items).to_have_text(["flour", "eggs"])


def test_question_and_answer_can_be_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened(page)
    say(page, *a_turn(1, "what is new?", "**Nothing** much."))
    is_in(page, "listening")
    for name, text in (("copy_said", "what is new?"), ("copy_reply", "**Nothing** much.")):
        button = page.get_by_test_id(name)
        button.click()
        expect(button).to_have_attribute("aria-label", "Copied")
        assert page.evaluate("navigator.clipboard.readText()") == text
