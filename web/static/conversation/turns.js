// The conversation on the page: one list entry for each turn.

import { copyButton } from "../view/copying.js";
import { byId, h, update } from "../view/keyed.js";
import { markdown } from "../view/markdown.js";
import { FollowedEnd } from "../view/scrolling.js";
import { waterfall } from "../view/waterfall.js";
import { t } from "../words/translate.js";
import { toolCalls } from "./tool_calls.js";
import { isShown, liveWords } from "./reducer.js";

/**
 * @typedef {import("./reducer.js").Turn} Turn
 * @typedef {{ turn: Turn, isOpen: boolean, entry: import("../view/keyed.js").Description }} Drawn
 *   a list entry, and what it was drawn from; isOpen: the turn's timing is unfolded
 */

const MAX_ANNOUNCEMENTS = 10; // a screen reader has finished older ones

export class Turns {
  constructor() {
    this.list = byId("turns");
    this.language = "";
    /** @type {Map<string, Drawn> | null} by turn id; null before the first drawing */
    this.drawn = null;
    /** @type {Map<string, boolean>} whether the user opened or closed a turn's timing, by turn id */
    this.chosen = new Map();
    this.announcer = new Announcer();
    this.end = new FollowedEnd(byId("scroll"), byId("talk"));
  }

  /**
   * @param {import("./reducer.js").Conversation} conversation
   * @param {string} language
   */
  show(conversation, language) {
    const turns = conversation.turns.filter(isShown);
    const last = turns.findLast((turn) => turn.trace)?.id;
    const before = this.drawn;
    const old = language === this.language ? before : null;
    this.language = language;
    this.drawn = new Map();
    for (const turn of turns) {
      const isOpen = this.chosen.get(turn.id) ?? turn.id === last;
      this.drawn.set(turn.id, this.#draw(turn, isOpen, old?.get(turn.id)));
    }
    for (const id of this.chosen.keys()) if (!this.drawn.has(id)) this.chosen.delete(id);
    update(
      this.list,
      {},
      [...this.drawn.values()].map(({ entry }) => entry),
    );
    // Turns that a reload restored were read out before.
    this.announcer.show(turns, before === null);
    const isLive = showLiveWords(conversation);
    update(byId("empty"), { hidden: turns.length > 0 || isLive });
    const end = isLive ? byId("live") : this.list.lastElementChild;
    this.end.follow(
      end,
      turns.some((turn) => !before?.has(turn.id)),
    );
  }

  /**
   * @param {Turn} turn
   * @param {boolean} isOpen
   * @param {Drawn} [old]
   * @returns {Drawn} the old one if nothing changed, so that nothing is compared
   */
  #draw(turn, isOpen, old) {
    if (old && old.turn === turn && old.isOpen === isOpen) return old;
    const onToggle = (/** @type {boolean} */ isToggledOpen) => {
      this.chosen.set(turn.id, isToggledOpen);
    };
    return { turn, isOpen, entry: entry(turn, isOpen, onToggle) };
  }
}

/**
 * Shows the words that are being spoken now.
 *
 * @param {import("./reducer.js").Conversation} conversation
 */
function showLiveWords(conversation) {
  const { stable, unstable } = liveWords(conversation);
  const isLive = Boolean(stable || unstable);
  update(byId("live-stable"), {}, [stable]);
  update(byId("live-unstable"), {}, [unstable]);
  update(byId("live"), { hidden: !isLive });
  return isLive;
}

/**
 * Reads each part of a turn to a screen reader once, when it is final, and not every partial word.
 */
class Announcer {
  constructor() {
    /** @type {Map<string, Set<string>>} parts that were read out, by turn id */
    this.told = new Map();
    /** @type {{ key: number, sentence: string }[]} */
    this.sentences = [];
    this.count = 0;
  }

  /**
   * @param {Turn[]} turns
   * @param {boolean} isKnown the turns were read out before, so nothing is read now
   */
  show(turns, isKnown) {
    const told = this.told;
    this.told = new Map(turns.map(({ id }) => [id, told.get(id) ?? new Set()]));
    for (const turn of turns) {
      for (const [who, text] of finalParts(turn)) {
        const parts = this.told.get(turn.id);
        if (!text || !parts || parts.has(who)) continue;
        parts.add(who);
        if (!isKnown)
          this.sentences.push({ key: (this.count += 1), sentence: `${t(who)}: ${text}` });
      }
    }
    this.sentences = this.sentences.slice(-MAX_ANNOUNCEMENTS);
    const drawn = this.sentences.map(({ key, sentence }) => h("p", { key }, sentence));
    update(byId("announcer"), {}, drawn);
  }
}

/**
 * Returns the parts of a turn that will not change any more, and whose they are. A part that is not
 * final yet is an empty string. What the user wrote is not read to them.
 *
 * @param {Turn} turn
 * @returns {[who: string, text: string][]} who: key of the speaker's name
 */
function finalParts(turn) {
  const isFinal = !["hearing", "transcribing", "answering"].includes(turn.status);
  const reply = turn.reason ? t("failed", { reason: turn.reason }) : (turn.heard ?? turn.reply);
  return [
    ["you", turn.source === "voice" ? turn.said : ""],
    ["assistant", isFinal ? reply : ""],
  ];
}

/**
 * @param {Turn} turn
 * @param {boolean} isOpen
 * @param {(isOpen: boolean) => void} onToggle
 */
function entry(turn, isOpen, onToggle) {
  return h(
    "li",
    {
      key: turn.id,
      class: "turn",
      "data-testid": "turn",
      "data-status": turn.status,
      "data-source": turn.source,
    },
    turn.said
      ? h(
          "div",
          { class: "said-row" },
          copyButton("copy_said", turn.said),
          h("p", { class: "said", "data-testid": "said" }, speaker("you"), turn.said),
        )
      : null,
    replyRow(turn),
    turn.tools.length ? toolCalls(turn.tools) : null,
    turn.trace?.stages.length ? waterfall(turn.trace, isOpen, onToggle) : null,
  );
}

/** @param {Turn} turn */
function replyRow(turn) {
  const content = reply(turn);
  if (!content || !turn.reply || turn.status === "failed" || turn.status === "lost") return content;
  return h("div", { class: "reply-row" }, content, copyButton("copy_reply", turn.reply));
}

/** Returns what stands in the place of the answer. @param {Turn} turn */
function reply(turn) {
  if (turn.status === "failed") return note(t("failed", { reason: turn.reason }));
  if (turn.status === "lost") return note(t("lost"));
  if (turn.status === "cut") return cutReply(turn);
  if (turn.reply) {
    const props = { class: "reply", "data-testid": "reply" };
    return h("div", props, speaker("assistant"), ...markdown(turn.reply));
  }
  const isWaiting = turn.status === "answering" || turn.status === "transcribing";
  return isWaiting
    ? h("p", { class: "waiting", "aria-hidden": "true" }, h("i"), h("i"), h("i"))
    : null;
}

/**
 * Returns the part of the answer that was played, then the rest, struck through.
 *
 * @param {Turn} turn
 */
function cutReply(turn) {
  const heard = turn.heard ?? "";
  const rest = turn.reply.startsWith(heard) ? turn.reply.slice(heard.length) : "";
  return h(
    "p",
    { class: "reply cut", "data-testid": "reply" },
    speaker("assistant"),
    h("span", { key: "heard", "data-testid": "heard" }, heard),
    rest.trim() ? h("s", { "data-testid": "unheard" }, rest) : null,
    " ",
    h("span", { class: "tag", "data-testid": "cut" }, t("cut")),
  );
}

/** @param {string} text */
const note = (text) => h("p", { class: "reply note", "data-testid": "reply" }, text);

/** @param {string} who */
const speaker = (who) => h("span", { class: "sr-only" }, `${t(who)}: `);
