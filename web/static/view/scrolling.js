// Lists that scroll: by keyboard, and to their newest entry.

import { update } from "./keyed.js";

const NEAR_END_PX = 120; // a user who scrolled to within this distance wants to follow again
const GAP_PX = 16; // between the newest words and the dock, which lies over the page on a phone

/**
 * Lets the keyboard scroll `element` while its content is larger than it. `element` needs a name.
 *
 * @param {HTMLElement} element
 */
export function scrollableByKeyboard(element) {
  const check = () => {
    const isLarger =
      element.scrollHeight > element.clientHeight + 1 ||
      element.scrollWidth > element.clientWidth + 1;
    update(element, { tabindex: isLarger ? "0" : null });
  };
  new ResizeObserver(check).observe(element);
  new MutationObserver(check).observe(element, { childList: true, subtree: true });
}

/**
 * Keeps the newest words visible until the user scrolls up, and again after scrolling down. In a
 * wide window `panel` scrolls; on a phone the whole page does, and `dock` lies over its end.
 */
export class FollowedEnd {
  /**
   * @param {HTMLElement} panel
   * @param {HTMLElement} dock
   */
  constructor(panel, dock) {
    this.panel = panel;
    this.dock = dock;
    /** @type {Element | null} */
    this.end = null;
    this.isFollowing = true;
    /** Where each scroller stood when it last moved, in px. @type {Map<Element, number>} */
    this.lastTops = new Map();
    panel.addEventListener("scroll", () => this.#scrolled(panel), { passive: true });
    addEventListener("scroll", () => this.#scrolled(pageScroller()), { passive: true });
    // A message above the dock leaves less room for the words.
    const resized = new ResizeObserver(() => this.follow(this.end, false));
    for (const element of [panel, dock]) resized.observe(element);
  }

  /**
   * Scrolls to the newest words, unless the user reads older ones.
   *
   * @param {Element | null} end the newest element
   * @param {boolean} isNew whether a turn has just begun
   */
  follow(end, isNew) {
    this.end = end;
    if (!end || !this.isFollowing) return;
    const below = this.#below();
    const scroller = this.#scroller();
    if (below > 0) scroller.scrollBy({ top: below, behavior: "instant" });
    else if (isNew && end.getBoundingClientRect().bottom < 0) {
      end.scrollIntoView({ block: "nearest" });
    }
    this.lastTops.set(scroller, scroller.scrollTop); // a movement away from here is made by the user
  }

  /**
   * Notes a movement and decides whether to follow. The code scrolls only down. So a movement up was
   * made by the user, or the content became shorter; then its end is visible.
   *
   * @param {Element} scroller
   */
  #scrolled(scroller) {
    const before = this.lastTops.get(scroller) ?? 0;
    this.lastTops.set(scroller, scroller.scrollTop);
    if (scroller !== this.#scroller()) return;
    const below = this.#below();
    if (scroller.scrollTop < before) this.isFollowing &&= below <= 1;
    else if (below < NEAR_END_PX) this.isFollowing = true;
  }

  #isPage() {
    return getComputedStyle(this.panel).overflowY === "visible";
  }

  #scroller() {
    return this.#isPage() ? pageScroller() : this.panel;
  }

  /** Returns how many pixels of the newest words are hidden below. */
  #below() {
    const { panel, dock, end } = this;
    if (!this.#isPage()) return panel.scrollHeight - panel.scrollTop - panel.clientHeight;
    if (!end) return 0;
    return end.getBoundingClientRect().bottom - dock.getBoundingClientRect().top + GAP_PX;
  }
}

const pageScroller = () => document.scrollingElement ?? document.documentElement;
