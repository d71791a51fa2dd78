// Timers that count down between the server's updates, and the shopping list.

import { h, update } from "../view/keyed.js";
import { icon } from "../view/icon.js";
import { t } from "../words/translate.js";

/**
 * @typedef {{ id: string, name: string, state: "running" | "paused" | "ringing",
 *   duration_s: number, remaining_s: number }} ServerTimer
 * @typedef {ServerTimer & { endsAt: number, shownUntil?: number }} Timer
 *   `endsAt`: when a running timer will ring; `shownUntil`: how long a timer that the server has removed
 *   is still shown; both in ms of `performance.now()`
 * @typedef {{ id: string, text: string, done: boolean }} ShoppingItem
 */

const TICK_MS = 200; // short, so that a late tick skips no second
const DUE_MS = 500; // a timer that disappears this close to its end has rung; an earlier one was cancelled
// The server removes a timer when its announcement is spoken. It is shown longer, so that it is seen.
const SHOWN_RINGING_MS = 8_000;
const RING_RADIUS = 15;
const CIRCUMFERENCE = 2 * Math.PI * RING_RADIUS;

export class Timers {
  /**
   * @param {HTMLElement} list
   * @param {(id: string) => void} cancel cancels a timer
   */
  constructor(list, cancel) {
    this.list = list;
    this.cancel = cancel;
    /** @type {Timer[]} */
    this.timers = [];
    /** @type {number | undefined} the interval that draws running timers */
    this.ticking = undefined;
  }

  /** Shows the server's timers, and lets them run on. @param {ServerTimer[]} timers */
  show(timers) {
    const now = performance.now();
    const finished = this.#finished(timers, now);
    const current = timers.map((one) => ({ ...one, endsAt: now + one.remaining_s * 1_000 }));
    this.timers = [...finished, ...current];
    this.draw();
    clearInterval(this.ticking);
    if (this.timers.some((timer) => timer.state === "running" || timer.shownUntil)) {
      this.ticking = setInterval(() => this.#tick(), TICK_MS);
    }
  }

  /** Shows how much time is left now. */
  draw() {
    const drawn = this.timers.map((timer) => timerEntry(timer, this.cancel));
    update(this.list, {}, drawn.length ? drawn : [nothing("no_timers")]);
  }

  /**
   * Returns the timers that the server has removed because they rang. They are shown a while longer.
   *
   * @param {ServerTimer[]} timers those that the server still has
   * @param {number} now
   */
  #finished(timers, now) {
    const gone = this.timers.filter((one) => !timers.some((timer) => timer.id === one.id));
    return gone.flatMap((one) => {
      if (one.shownUntil) return one.shownUntil > now ? [one] : [];
      const isDue = one.state === "running" && one.endsAt - now < DUE_MS;
      if (one.state !== "ringing" && !isDue) return [];
      return [
        { ...one, state: /** @type {const} */ ("ringing"), shownUntil: now + SHOWN_RINGING_MS },
      ];
    });
  }

  #tick() {
    const now = performance.now();
    this.timers = this.timers.filter((timer) => !(timer.shownUntil && timer.shownUntil < now));
    this.draw();
  }
}

/**
 * Draws the shopping list.
 *
 * @param {HTMLElement} list
 * @param {ShoppingItem[]} items
 * @param {(item: ShoppingItem) => void} tick ticks an item off, or puts it on again
 */
export function showShopping(list, items, tick) {
  const drawn = items.map((item) =>
    h(
      "li",
      { key: item.id, "data-testid": "shopping-item", "data-done": String(item.done) },
      h(
        "button",
        {
          type: "button",
          class: "item",
          role: "checkbox",
          "aria-checked": String(item.done),
          click: () => tick(item),
        },
        h("span", { class: "box", "aria-hidden": "true" }, item.done && icon("check")),
        h("span", { key: "text" }, item.text),
      ),
    ),
  );
  update(list, {}, drawn.length ? drawn : [nothing("no_shopping")]);
}

/** @param {string} key of the sentence for an empty list */
const nothing = (key) => h("li", { class: "nothing" }, t(key));

/**
 * Returns a timer with the time left, as words and as an arc.
 *
 * @param {Timer} timer
 * @param {(id: string) => void} cancel
 */
function timerEntry(timer, cancel) {
  const isRinging = timer.state === "ringing";
  const paused = timer.state === "paused" ? ` (${t("timer_paused")})` : "";
  return h(
    "li",
    { key: timer.id, class: "timer", "data-testid": "timer", "data-state": timer.state },
    isRinging ? icon("bell") : ring(leftS(timer) / timer.duration_s),
    h("span", { class: "timer-name" }, (timer.name || t("timer")) + paused),
    // An alert of its own, so that a screen reader reads it once, when it begins.
    isRinging
      ? h("span", { key: "ringing", class: "left", role: "alert" }, t("timer_ringing"))
      : h("span", { class: "left", role: "timer" }, clock(leftS(timer))),
    timer.shownUntil ? null : cancelButton(timer, cancel),
  );
}

/**
 * @param {Timer} timer
 * @param {(id: string) => void} cancel
 */
function cancelButton({ id, name }, cancel) {
  const label = t("timer_cancel", { name: name || t("timer") });
  return h(
    "button",
    { type: "button", class: "cancel", "aria-label": label, title: label, click: () => cancel(id) },
    icon("close"),
  );
}

/** Returns how many seconds are left. @param {Timer} timer */
const leftS = ({ state, endsAt, remaining_s: remainingS }) =>
  Math.max(0, state === "running" ? (endsAt - performance.now()) / 1_000 : remainingS);

/** Returns a ring that is full at the beginning and empty at the end. @param {number} share that is left */
function ring(share) {
  const circle = { cx: "18", cy: "18", r: String(RING_RADIUS) };
  return h(
    "svg",
    { class: "ring", viewBox: "0 0 36 36", "aria-hidden": "true" },
    h("circle", circle),
    h("circle", {
      ...circle,
      class: "share-left",
      "stroke-dasharray": String(CIRCUMFERENCE),
      transform: "rotate(-90 18 18)",
      style: { "stroke-dashoffset": String(CIRCUMFERENCE * (1 - Math.min(1, share))) },
    }),
  );
}

/** Returns hours, minutes and seconds; without hours if there are none. @param {number} seconds */
function clock(seconds) {
  const whole = Math.max(0, Math.ceil(seconds));
  const parts = [Math.floor(whole / 3_600), Math.floor(whole / 60) % 60, whole % 60];
  if (!parts[0]) parts.shift();
  return parts
    .map((part, index) => (index ? String(part).padStart(2, "0") : String(part)))
    .join(":");
}
