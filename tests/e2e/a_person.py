"""Someone who uses the page with a mouse or with the keyboard alone, and what they may not meet."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Locator, Page, expect

Hands = Literal["mouse", "keyboard"]

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "forced_colors": "none"},
    "dark": {"color_scheme": "dark", "forced_colors": "none"},
    "forced": {"color_scheme": "dark", "forced_colors": "active"},
}
"How the page looks -> the options of `emulate_media`."

MANY_TABS = 150
"More than there are things to focus in any view of the page."

AXE = """async (rules) => {
  const only = rules.length ? { runOnly: { type: "rule", values: rules } } : {};
  const { violations } = await window.axe.run(document, { ...only, resultTypes: ["violations"] });
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${target.join(" ")}: ${failureSummary}`));
}"""
"Needs axe-core in the page."

RULES_OF_COLOUR = ("color-contrast", "link-in-text-block")
"The rules of axe that a page's colours decide. The other rules find the same in every look."

IS_FOCUSED = "(element) => element === document.activeElement"

IS_COVERED = """(element) => {
  const { left, right, top, bottom } = element.getBoundingClientRect();
  const found = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
  return !(element.contains(found) || element.labels?.[0]?.contains(found));
}"""
"Whether a bar that stays in place hides the middle of an element."


@dataclass(frozen=True)
class Person:
    """Does with `hands` what a test asks for."""

    page: Page
    hands: Hands

    def press(self, target: Locator) -> None:
        """Clicks, or presses Enter on what has the focus."""
        if self.hands == "mouse":
            target.click()
            return
        self._reach(target)
        self.page.keyboard.press("Enter")

    def write(self, target: Locator, text: str) -> None:
        """Replaces what stands in a field."""
        if self.hands == "mouse":
            target.click()
        else:
            self._reach(target)
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.type(text)
        expect(target).to_have_value(text)

    def choose(self, target: Locator, label: str) -> None:
        """Chooses an option. The list that a mouse opens belongs to the system, not to the page, so
        Playwright chooses in it."""
        if self.hands == "mouse":
            target.select_option(label=label)
        else:
            self._reach(target)
            self.page.keyboard.type(label)  # the browser looks for it
        expect(target.locator("option:checked")).to_have_text(label)

    def _reach(self, target: Locator) -> None:
        """Presses Tab until `target` has the focus; it must be seen then."""
        expect(target).to_be_visible()
        for _ in range(MANY_TABS):
            if target.evaluate(IS_FOCUSED):
                break
            self.page.keyboard.press("Tab")
        expect(target).to_be_focused()
        expect(target).to_be_in_viewport()
        assert not target.evaluate(IS_COVERED), f"{target} is covered"


@dataclass
class Stations:
    """Looks at the page in every look. `folder`: where screenshots go, one per station and look."""

    page: Page
    folder: Path
    name: str
    count: int = 0

    def check(self, station: str) -> None:
        """Asserts that axe finds nothing, and that nothing is wider than the window."""
        self.count += 1
        problems: list[str] = []
        for look, media in LOOKS.items():
            self.page.emulate_media(reduced_motion="reduce", **media)
            rules = [] if look == "light" else list(RULES_OF_COLOUR)
            problems += [f"{look}: {one}" for one in self.page.evaluate(AXE, rules)]
            name = f"{self.name}_{self.count}_{station}_{look}.png"
            self.page.screenshot(path=self.folder / name)
        self.page.emulate_media(reduced_motion="reduce", **LOOKS["light"])
        wide = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert (problems, wide) == ([], 0), station + "\n" + "\n".join(problems)
