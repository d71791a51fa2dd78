// Timers that count down between the server's updates, and the shopping list.

import { h, icon, patchChildren, setText } from "../view/keyed.js";
import { t } from "../words/translate.js";

const TICK_MS = 200; // a second must not be skipped when a tick comes late
const DUE_MS = 500; // a timer that goes this close to its end has rung, and was not cancelled
const RUNG_MS = 8_000; // its ringing is over when it was said; the eye needs longer
const RADIUS = 15;
const ROUND = 2 * Math.PI * RADIUS;

export class Timers {
  constructor(list) {
    this.list = list;
    this.timers = [];
    this.ticking = null;
  }

  show(timers) {
    const now = performance.now();
    const rung = this.#rung(timers, now);
    this.timers = [
      ...rung,
      ...timers.map((timer) => ({ ...timer, endsAt: now + timer.remaining_s * 1_000 })),
    ];
    // In place: a ringing one is an alert, and would be read out again.
    patchChildren(
      this.list,
      this.timers.length ? this.timers.map(drawTimer) : [nothing("no_timers")],
    );
    clearInterval(this.ticking);
    this.#tick();
    if (this.timers.some((timer) => timer.state === "running" || timer.until)) {
      this.ticking = setInterval(() => this.#tick(), TICK_MS);
    }
  }

  /** Timers that the server has just finished with, shown ringing a while longer. */
  #rung(timers, now) {
    const isGone = (one) => !timers.some((timer) => timer.id === one.id);
    return this.timers.filter(isGone).flatMap((one) => {
      if (one.until) return one.until > now ? [one] : [];
      const hasRung =
        one.state === "ringing" || (one.state === "running" && one.endsAt - now < DUE_MS);
      return hasRung ? [{ ...one, state: "ringing", until: now + RUNG_MS }] : [];
    });
  }

  #tick() {
    if (this.timers.some((timer) => timer.until < performance.now())) {
      this.show(this.timers.filter((timer) => !timer.until).map(asNow));
      return;
    }
    this.timers.forEach((timer, index) => showLeft(timer, this.list.children[index]));
  }
}

/** The timer as the server would tell it now. */
function asNow({ endsAt, ...timer }) {
  if (timer.state !== "running") return timer;
  return { ...timer, remaining_s: Math.max(0, (endsAt - performance.now()) / 1_000) };
}

export function showShopping(list, items) {
  const drawn = items.map((item) =>
    h(
      "li",
      { "data-testid": "shopping-item", "data-done": String(item.done) },
      h("span", { class: "box", "aria-hidden": "true" }, item.done ? icon("check") : ""),
      h("span", {}, item.text),
      item.done ? h("span", { class: "sr-only" }, ` (${t("done")})`) : null,
    ),
  );
  list.replaceChildren(...(drawn.length ? drawn : [nothing("no_shopping")]));
}

const nothing = (key) => h("li", { class: "nothing" }, t(key));

/** The time left, as words and as an arc. */
function showLeft(timer, node) {
  const leftS =
    timer.state === "running" ? (timer.endsAt - performance.now()) / 1_000 : timer.remaining_s;
  setText(
    node.querySelector(".left"),
    timer.state === "ringing" ? t("timer_ringing") : clock(leftS),
  );
  const share = timer.state === "ringing" ? 0 : Math.max(0, Math.min(1, leftS / timer.duration_s));
  node.querySelector(".spent").style.strokeDashoffset = String(ROUND * (1 - share));
}

function drawTimer(timer) {
  const node = h(
    "li",
    { class: "timer", "data-testid": "timer", "data-state": timer.state },
    timer.state === "ringing" ? icon("bell") : ring(),
    h(
      "span",
      { class: "timer-name" },
      timer.name || t("timer"),
      timer.state === "paused" ? ` (${t("timer_paused")})` : "",
    ),
    h(
      "span",
      timer.state === "ringing"
        ? { class: "left", role: "alert" }
        : { class: "left", role: "timer" },
    ),
    timer.state === "ringing" ? h("i", { class: "spent", hidden: true }) : null,
  );
  showLeft(timer, node);
  return node;
}

function ring() {
  const template = document.createElement("template");
  template.innerHTML = `<svg class="ring" viewBox="0 0 36 36" aria-hidden="true">
    <circle cx="18" cy="18" r="${RADIUS}"/><circle class="spent" cx="18" cy="18" r="${RADIUS}"
    stroke-dasharray="${ROUND}" transform="rotate(-90 18 18)"/></svg>`;
  return template.content.firstElementChild;
}

function clock(seconds) {
  const whole = Math.max(0, Math.ceil(seconds));
  const parts = [Math.floor(whole / 3_600), Math.floor(whole / 60) % 60, whole % 60];
  if (!parts[0]) parts.shift();
  return parts
    .map((part, index) => (index ? String(part).padStart(2, "0") : String(part)))
    .join(":");
}
