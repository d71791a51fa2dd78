// A panel that a button opens below itself, within the window.

import { update } from "./keyed.js";

const MIN_HEIGHT_PX = 200; // on a screen that is too low, the page can be scrolled as well
const GAP_PX = 8; // between the button and its panel, and to the edge of the window

export class Popover {
  /**
   * @param {HTMLElement} button with `popovertarget`
   * @param {HTMLElement} panel with `popover`
   */
  constructor(button, panel) {
    this.button = button;
    this.panel = panel;
    addEventListener("resize", () => this.#place());
    panel.addEventListener("toggle", () => this.#place());
  }

  get isOpen() {
    return this.panel.matches(":popover-open");
  }

  close() {
    if (this.isOpen) this.panel.hidePopover();
  }

  #place() {
    if (!this.isOpen) return;
    const { left, bottom } = this.button.getBoundingClientRect();
    const widest = document.documentElement.clientWidth - this.panel.offsetWidth - GAP_PX;
    const style = {
      left: `${Math.max(GAP_PX, Math.min(left, widest))}px`,
      top: `${bottom + GAP_PX}px`,
      // What does not fit is scrolled: a panel cannot be reached below the window.
      "max-height": `${Math.max(MIN_HEIGHT_PX, innerHeight - bottom - 2 * GAP_PX)}px`,
    };
    update(this.panel, { style });
  }
}
