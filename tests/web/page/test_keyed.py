"""The page's keyed updates: which elements stay, which are written, which move."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.web.browser import Stub, serving

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """A tab with an empty document of the page's origin."""
    stub = Stub()
    with serving(stub):
        page = browser.new_page(base_url=stub.url)
        page.goto("/")
        yield page
        page.close()


def run(tab: Page, scene: str) -> Any:
    """Returns the result of `scene`; `box` is an empty element, `list(...)` shows items by key."""
    return tab.evaluate(
        """async () => {
        const { h, update } = await import("/static/view/keyed.js");
        const box = document.createElement("div");
        document.body.replaceChildren(box);
        const list = (...keys) =>
          update(box, {}, keys.map((key) => h("p", { key, tabindex: "0" }, key)));
        const texts = () => [...box.children].map((one) => one.textContent).join("");
        """
        + scene
        + "}"
    )


@pytest.mark.parametrize("after", ["abcd", "dcba", "bd", "xaybz", "dab", ""])
def test_elements_keep_their_keys_in_any_order(tab: Page, after: str) -> None:
    scene = f"""
        list(..."abcd");
        const before = new Map([...box.children].map((one) => [one.textContent, one]));
        list(...{after!r});
        const same = [...box.children].filter((one) => before.get(one.textContent) === one);
        return [texts(), same.length];
    """
    assert run(tab, scene) == [after, len(set(after) & set("abcd"))]


@pytest.mark.parametrize("after", ["dcba", "bacd", "xcybz"])
def test_an_element_with_the_focus_or_the_selection_is_not_moved(tab: Page, after: str) -> None:
    scene = f"""
        list(..."abcd");
        box.children[1].focus();
        list(...{after!r});
        const focused = document.activeElement.textContent;
        getSelection().setBaseAndExtent(document.activeElement.firstChild, 0,
          document.activeElement.firstChild, 1);
        document.activeElement.blur();
        list(..."abcd");
        return [focused, getSelection().toString(), texts()];
    """
    assert run(tab, scene) == ["b", "b", "abcd"]


def test_only_the_end_of_a_growing_text_is_added(tab: Page) -> None:
    scene = """
        update(box, {}, ["It is"]);
        const words = box.firstChild;
        getSelection().setBaseAndExtent(words, 3, words, 5);
        update(box, {}, ["It is a story."]);
        return [box.firstChild === words, getSelection().toString(), box.textContent];
    """
    assert run(tab, scene) == [True, "is", "It is a story."]


def test_what_the_user_changed_stays_until_its_description_changes(tab: Page) -> None:
    scene = """
        const show = (value, open, note) => update(box, {}, [
          h("input", { value, title: note }), h("details", { open }, h("summary")),
          h("select", {}, ...["a", "b"].map((one) =>
            h("option", { key: one, value: one, selected: one === value }, one))),
        ]);
        show("a", false, "first");
        const [input, details, select] = box.children;
        input.value = "typed";
        details.open = true;
        select.value = "b";
        show("a", false, "second");
        const kept = [input.value, details.open, select.value, input.title];
        show("b", true, "second");
        show("a", false, "second");
        return [...kept, input.value, details.open, select.value];
    """
    assert run(tab, scene) == ["typed", True, "b", "second", "a", False, "a"]


def test_the_newest_handler_is_called_once(tab: Page) -> None:
    scene = """
        const called = [];
        const show = (click) => update(box, {}, [h("button", { click })]);
        for (const name of ["old", "new"]) show(() => called.push(name));
        box.firstChild.click();
        show(null);
        box.firstChild.click();
        return called;
    """
    assert run(tab, scene) == ["new"]


def test_attributes_and_styles_that_are_no_longer_described_are_removed(tab: Page) -> None:
    scene = """
        const show = (props) => update(box, {}, [h("p", props)]);
        show({ class: "one", title: "x", hidden: true, style: { "--glow": "1", color: "red" } });
        const [node] = box.children;
        show({ class: "one two", hidden: false, style: { "--glow": "0.5" } });
        return [node.className, node.title, node.hidden,
          node.style.getPropertyValue("--glow"), node.style.color];
    """
    assert run(tab, scene) == ["one two", "", False, "0.5", ""]


def test_an_element_of_the_document_keeps_what_an_update_does_not_name(tab: Page) -> None:
    scene = """
        box.hidden = true;
        box.title = "from HTML";
        update(box, { "data-a": "1" }, ["text"]);
        update(box, { "data-b": "2" });
        update(box, { hidden: false });
        return [box.dataset.a, box.dataset.b, box.title, box.hidden, box.textContent];
    """
    assert run(tab, scene) == ["1", "2", "from HTML", False, "text"]


def test_icons_are_drawn_as_svg(tab: Page) -> None:
    scene = """
        const { icon } = await import("/static/view/icon.js");
        update(box, {}, [icon("mic")]);
        return [box.firstChild.namespaceURI, box.firstChild.firstChild.namespaceURI];
    """
    assert run(tab, scene) == ["http://www.w3.org/2000/svg"] * 2
