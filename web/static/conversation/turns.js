// The conversation on the page: one list entry per turn, changed in place while its words come.

import { isShown, liveWords } from "./reducer.js";
import { arrange, byId, h, patch, setText } from "../view/keyed.js";
import { t } from "../words/translate.js";
import { waterfall } from "../view/waterfall.js";

const NEAR_END_PX = 120; // a user who scrolled back to here wants to follow again
const GAP_PX = 16; // between the newest words and the dock that lies over the page of a phone
const MAX_ANNOUNCEMENTS = 10; // a screen reader has read older ones

export class Turns {
  constructor() {
    this.list = byId("turns");
    this.drawn = null; // turn id -> { turn, isLast, node, announced }; null before the first drawing
    this.chosen = new WeakSet(); // timings that the user opened or closed
    this.view = new FollowedView(byId("scroll"), byId("talk"));
    this.list.addEventListener("click", ({ target }) => {
      const summary = target.closest("summary");
      if (summary) this.chosen.add(summary.parentElement);
    });
  }

  /** Show `state`; `anew` redraws everything, after a change of language. */
  show(state, anew = false) {
    const turns = state.turns.filter(isShown);
    const last = turns.findLast((turn) => turn.trace)?.id;
    const before = this.drawn;
    this.drawn = new Map();
    for (const turn of turns) {
      this.drawn.set(turn.id, this.#draw(turn, before?.get(turn.id), turn.id === last, anew));
    }
    for (const [id, { node }] of before ?? []) if (!this.drawn.has(id)) node.remove();
    arrange(
      this.list,
      [...this.drawn.values()].map(({ node }) => node),
    );
    // What a reload brought back was read out before.
    for (const entry of this.drawn.values()) this.#announce(entry, before === null);
    this.#showLive(state);
    byId("empty").hidden = turns.length > 0 || !byId("live").hidden;
    const end = byId("live").hidden ? this.list.lastElementChild : byId("live");
    this.view.follow(
      end,
      turns.some((turn) => !before?.has(turn.id)),
    );
  }

  #draw(turn, old, isLast, anew) {
    if (!old) return { turn, isLast, node: drawTurn(turn, isLast), announced: new Set() };
    if (!anew && old.turn === turn && old.isLast === isLast) return old;
    patch(old.node, drawTurn(turn, isLast));
    const timing = old.node.querySelector("details");
    if (timing && old.isLast !== isLast && !this.chosen.has(timing)) timing.open = isLast;
    return { ...old, turn, isLast };
  }

  #showLive(state) {
    const { stable, unstable } = liveWords(state);
    setText(byId("live-stable"), stable);
    setText(byId("live-unstable"), unstable);
    byId("live").hidden = !stable && !unstable;
  }

  /** Each part once, when final: a screen reader should not read every partial word. */
  #announce({ turn, announced }, isKnown) {
    const isFinal = !["hearing", "transcribing", "answering"].includes(turn.status);
    const reply = turn.reason ? t("failed", { reason: turn.reason }) : (turn.heard ?? turn.reply);
    const parts = { you: turn.source === "voice" && turn.said, assistant: isFinal && reply };
    for (const [who, text] of Object.entries(parts)) {
      if (!text || announced.has(who)) continue;
      announced.add(who);
      if (!isKnown) announce(`${t(who)}: ${text}`);
    }
  }
}

function announce(sentence) {
  const announcer = byId("announcer");
  announcer.append(h("p", {}, sentence));
  if (announcer.childElementCount > MAX_ANNOUNCEMENTS) announcer.firstElementChild.remove();
}

/**
 * Keeps the newest words in sight until the user scrolls up, and again after they scrolled down.
 * In a wide window `panel` scrolls; on a phone the whole page does, and `dock` lies over its end.
 */
class FollowedView {
  constructor(panel, dock) {
    Object.assign(this, { panel, dock });
    this.end = null;
    this.isFollowing = true;
    this.tops = new Map();
    panel.addEventListener("scroll", () => this.#scrolled(panel), { passive: true });
    addEventListener("scroll", () => this.#scrolled(document.scrollingElement), { passive: true });
  }

  /** `end` is the newest element, or null; `isNew` when a turn has just begun. */
  follow(end, isNew) {
    this.end = end;
    if (!end || !this.isFollowing) return;
    const below = this.#below();
    const scroller = this.#scroller();
    if (below > 0) scroller.scrollBy({ top: below, behavior: "instant" });
    else if (isNew && end.getBoundingClientRect().bottom < 0) {
      end.scrollIntoView({ block: "nearest" });
    }
    this.tops.set(scroller, scroller.scrollTop); // a movement away from here is the user's
  }

  // We scroll down only. Upwards it was the user, or the page became shorter; then its end is seen.
  #scrolled(scroller) {
    const before = this.tops.get(scroller) ?? 0;
    this.tops.set(scroller, scroller.scrollTop);
    if (scroller !== this.#scroller()) return;
    const below = this.#below();
    if (scroller.scrollTop < before) this.isFollowing &&= below <= 1;
    else if (below < NEAR_END_PX) this.isFollowing = true;
  }

  #isPage() {
    return getComputedStyle(this.panel).overflowY === "visible";
  }

  #scroller() {
    return this.#isPage() ? document.scrollingElement : this.panel;
  }

  /** Pixels of the newest words that are out of sight below. */
  #below() {
    const { panel, dock, end } = this;
    if (!this.#isPage()) return panel.scrollHeight - panel.scrollTop - panel.clientHeight;
    return end ? end.getBoundingClientRect().bottom - dock.getBoundingClientRect().top + GAP_PX : 0;
  }
}

function drawTurn(turn, isLast) {
  return h(
    "li",
    {
      class: "turn",
      "data-testid": "turn",
      "data-status": turn.status,
      "data-source": turn.source,
    },
    (turn.said && h("p", { class: "said", "data-testid": "said" }, who("you"), turn.said)) || null,
    drawReply(turn),
    turn.trace?.stages.length ? waterfall(turn.trace, isLast) : null,
  );
}

function drawReply(turn) {
  if (turn.status === "failed") return note(t("failed", { reason: turn.reason }));
  if (turn.status === "lost") return note(t("lost"));
  if (turn.status === "cut") return drawCut(turn);
  if (!turn.reply) {
    return turn.status === "answering" || turn.status === "transcribing" ? drawWaiting() : null;
  }
  return h("p", { class: "reply", "data-testid": "reply" }, who("assistant"), turn.reply);
}

/** What was heard, then what nobody heard, struck through. */
function drawCut(turn) {
  const heard = turn.heard ?? "";
  const rest = turn.reply.startsWith(heard) ? turn.reply.slice(heard.length) : "";
  return h(
    "p",
    { class: "reply cut", "data-testid": "reply" },
    who("assistant"),
    h("span", { "data-testid": "heard" }, heard),
    rest.trim() ? h("s", { "data-testid": "unheard" }, rest) : null,
    " ",
    h("span", { class: "tag", "data-testid": "cut" }, t("cut")),
  );
}

const note = (text) => h("p", { class: "reply note", "data-testid": "reply" }, text);
const who = (key) => h("span", { class: "sr-only" }, `${t(key)}: `);
const drawWaiting = () =>
  h("p", { class: "waiting", "aria-hidden": "true" }, h("i"), h("i"), h("i"));
