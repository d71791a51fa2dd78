// The conversation on the page: one list entry per turn, rewritten only when it changed.

import { isShown, liveWords } from "./conversation.js";
import { byId, h, setText } from "./dom.js";
import { t } from "./i18n.js";
import { waterfall } from "./waterfall.js";

const NEAR_END_PX = 120; // whoever scrolled up to read is not pulled down

export class Turns {
  constructor() {
    this.list = byId("turns");
    this.scroller = byId("scroll");
    this.drawn = new Map(); // turn id -> { turn, isLast, node }
    this.announced = new Set();
  }

  /** Show `state`; `anew` redraws everything, after a change of language. */
  show(state, anew = false) {
    const isAtEnd = this.#isAtEnd();
    const turns = state.turns.filter(isShown);
    const last = turns.findLast((turn) => turn.trace)?.id;
    const before = this.drawn;
    this.drawn = new Map();
    for (const turn of turns) {
      const isLast = turn.id === last;
      const old = before.get(turn.id);
      const isSame = !anew && old?.turn === turn && old.isLast === isLast;
      const node = isSame ? old.node : drawTurn(turn, isLast);
      if (!old) this.list.append(node);
      else if (!isSame) old.node.replaceWith(node);
      before.delete(turn.id);
      this.drawn.set(turn.id, { turn, isLast, node });
      this.#announce(turn);
    }
    for (const { node } of before.values()) node.remove();
    this.#showLive(state);
    byId("empty").hidden = turns.length > 0 || !byId("live").hidden;
    if (isAtEnd) this.#toEnd();
  }

  #showLive(state) {
    const { stable, unstable } = liveWords(state);
    setText(byId("live-stable"), stable);
    setText(byId("live-unstable"), unstable);
    byId("live").hidden = !stable && !unstable;
  }

  /** Said once each, when final: a screen reader should not hear every partial word. */
  #announce(turn) {
    this.#announceOnce(`${turn.id}-said`, turn.source === "voice" && turn.said, t("you"));
    const isFinal = !["hearing", "transcribing", "answering"].includes(turn.status);
    const reply = turn.reason ? t("failed", { reason: turn.reason }) : (turn.heard ?? turn.reply);
    this.#announceOnce(`${turn.id}-reply`, isFinal && reply, t("assistant"));
  }

  #announceOnce(id, text, who) {
    if (!text || this.announced.has(id)) return;
    this.announced.add(id);
    const announcer = byId("announcer");
    announcer.append(h("p", {}, `${who}: ${text}`));
    if (announcer.childElementCount > 10) announcer.firstElementChild.remove();
  }

  #isAtEnd() {
    const { scroller } = this;
    return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_END_PX;
  }

  #toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    // On a phone the whole page scrolls; then the newest words are brought above the dock.
    const end = byId("live").hidden ? this.list.lastElementChild : byId("live");
    if (this.scroller.scrollHeight <= this.scroller.clientHeight) {
      end?.scrollIntoView({ block: "nearest" });
    }
  }
}

function drawTurn(turn, isLast) {
  return h(
    "li", { class: "turn", "data-testid": "turn", "data-status": turn.status, "data-source": turn.source },
    turn.said && h("p", { class: "said", "data-testid": "said" }, who("you"), turn.said) || null,
    drawReply(turn),
    turn.trace?.stages.length ? waterfall(turn.trace, isLast) : null,
  );
}

function drawReply(turn) {
  if (turn.status === "failed") return note(t("failed", { reason: turn.reason }));
  if (turn.status === "lost") return note(t("lost"));
  if (turn.status === "cut") return drawCut(turn);
  if (!turn.reply) return turn.status === "answering" || turn.status === "transcribing" ? drawWaiting() : null;
  return h("p", { class: "reply", "data-testid": "reply" }, who("assistant"), turn.reply);
}

/** What was heard, then what nobody heard, struck through. */
function drawCut(turn) {
  const heard = turn.heard ?? "";
  const rest = turn.reply.startsWith(heard) ? turn.reply.slice(heard.length) : "";
  return h(
    "p", { class: "reply cut", "data-testid": "reply" },
    who("assistant"),
    h("span", { "data-testid": "heard" }, heard),
    rest.trim() ? h("s", { "data-testid": "unheard" }, rest) : null,
    " ", h("span", { class: "tag", "data-testid": "cut" }, t("cut")),
  );
}

const note = (text) => h("p", { class: "reply note", "data-testid": "reply" }, text);
const who = (key) => h("span", { class: "sr-only" }, `${t(key)}: `);
const drawWaiting = () => h("p", { class: "waiting", "aria-hidden": "true" }, h("i"), h("i"), h("i"));
