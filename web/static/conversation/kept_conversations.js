// The conversations that the server keeps for this key: sends the present one, lists all, opens and
// deletes them.

import { getJson, request } from "../server/api.js";
import { read, write } from "../state/storage.js";
import { byId, h, update } from "../view/keyed.js";
import { formatMoment, t } from "../words/translate.js";
import { keptCall, wholeCalls } from "./context.js";
import { restored } from "./reducer.js";

/**
 * @typedef {{ id: string, said: string, reply: string,
 *   tool_calls: import("./context.js").KeptToolCall[] }} KeptTurn
 * @typedef {{ id: string, title: string, changed: string }} Entry
 * @typedef {object} Actions
 * @property {(keepsOnServer: boolean) => void} keep
 * @property {(conversation: import("./reducer.js").Conversation) => void} open shows this conversation
 * @property {() => Promise<void>} remove deletes the present conversation
 */

const API = "/v1/conversations";
const STORED = "earshot.kept_on_server"; // id of the conversation of this tab, if the server keeps it
const TURNS_PER_REQUEST = 20; // the server's limit
const MAX_TEXT_CHARS = 16_000; // the server's limit
const MAX_TOOL_CALLS = 16; // the server's limit for one turn
const REQUEST_BYTES = 60_000; // the server may allow as little as 64 KiB in a request
const SETTLED = new Set(["answered", "cut", "failed", "lost"]);

export class KeptConversations {
  /** Days for which the server keeps one; 0: it keeps none. */
  #days = 0;
  /** @type {Entry[]} */
  #entries = [];
  /** Id of the conversation that the server keeps and this page adds to. */
  #id = read("tab", STORED);
  /** Id of a conversation that was deleted elsewhere: it is not kept again. */
  #ended = "";
  /** What the server has of it: id of a turn -> its texts. @type {Map<string, string>} */
  #sent = new Map();
  /** Why the last request failed; empty if it did not. */
  #problem = "";
  /** The requests so far, one after the other. @type {Promise<void>} */
  #work = Promise.resolve();

  /**
   * @param {import("../app.js").PageStore} store
   * @param {Actions} actions
   */
  constructor(store, actions) {
    this.store = store;
    this.actions = actions;
    byId("conversation-menu").addEventListener("toggle", (event) => {
      if (/** @type {ToggleEvent} */ (event).newState === "open") this.#load();
    });
    const change = (/** @type {Event} */ { target }) =>
      actions.keep(/** @type {HTMLInputElement} */ (target).checked);
    update(byId("keep-on-server"), { change });
    const removeAll = () => this.#do(() => this.#remove(""));
    update(byId("kept-delete-all"), { click: removeAll });
    store.watch(["conversation", "choices"], () => this.#sync());
    store.watch(["choices", "language"], () => this.#show());
  }

  get #isWanted() {
    const { conversationId } = this.store.state.conversation;
    const isKept = this.store.state.choices.keepsOnServer && conversationId !== this.#ended;
    return isKept && conversationId !== null;
  }

  /** Returns the turns that the server does not have yet. */
  #unsent() {
    const isSame = this.store.state.conversation.conversationId === this.#id;
    return keptTurns(this.store.state.conversation).filter(
      (turn) => !isSame || this.#sent.get(turn.id) !== textsOf(turn),
    );
  }

  #sync() {
    if (this.#isWanted && this.#unsent().length) this.#do(() => this.#send());
  }

  /** Sends what the server does not have yet. */
  async #send() {
    const id = this.store.state.conversation.conversationId;
    if (!id || !this.#isWanted) return;
    try {
      if (this.#id !== id) await this.#begin(id);
      for (const turns of inRequests(this.#unsent())) {
        if (this.store.state.conversation.conversationId !== id) return;
        await this.#add(id, turns);
      }
    } catch (/** @type {any} */ error) {
      if (error.status !== 404) throw error;
      this.#ended = id;
    }
  }

  /** @param {string} id */
  async #begin(id) {
    await request(`${API}/${encodeURIComponent(id)}`, { method: "PUT" });
    this.#remember(id, []);
  }

  /**
   * @param {string} id
   * @param {KeptTurn[]} turns
   */
  async #add(id, turns) {
    const headers = { "Content-Type": "application/json" };
    const asked = { method: "POST", headers, body: JSON.stringify({ turns }) };
    await request(`${API}/${encodeURIComponent(id)}/turns`, asked);
    for (const turn of turns) this.#sent.set(turn.id, textsOf(turn));
  }

  /**
   * Notes that the server keeps this conversation.
   *
   * @param {string} id
   * @param {KeptTurn[]} turns that the server has
   */
  #remember(id, turns) {
    this.#id = id;
    this.#sent = new Map(turns.map((turn) => [turn.id, textsOf(turn)]));
    write("tab", STORED, id);
  }

  #load() {
    return this.#do(async () => {
      const { days, conversations } = await getJson(API);
      this.#days = days;
      this.#entries = conversations;
    });
  }

  /** @param {string} id */
  async #open(id) {
    /** @type {{ turns: KeptTurn[] }} */
    const { turns } = await getJson(`${API}/${encodeURIComponent(id)}`);
    const { made } = this.store.state.conversation;
    const shown = turns.map((turn, index) => ({
      id: `turn-${made + index + 1}`,
      source: turn.said ? "text" : "none",
      itemId: turn.said ? turn.id : null,
      responseId: turn.said ? null : turn.id,
      said: turn.said,
      reply: turn.reply,
      tools: turn.tool_calls.map((call, order) => ({
        output: null,
        ...call,
        id: String(order),
      })),
      status: "answered",
    }));
    const opened = restored({ conversationId: id, turns: shown, made: made + turns.length });
    if (!opened) return;
    this.#remember(id, turns);
    this.actions.open(opened);
  }

  /** Deletes a conversation of the server. @param {string} id empty: all of them */
  async #remove(id) {
    const present = this.store.state.conversation.conversationId;
    const isPresent = id ? id === present : this.#entries.some((entry) => entry.id === present);
    if (isPresent) await this.actions.remove();
    if (id !== present) await request(id ? `${API}/${encodeURIComponent(id)}` : API, DELETE);
    const { conversations } = await getJson(API);
    this.#entries = conversations;
  }

  /** Does something after what is under way. A failure is shown. @param {() => Promise<void>} act */
  #do(act) {
    this.#work = this.#work.then(async () => {
      try {
        await act();
        this.#problem = "";
      } catch (/** @type {any} */ error) {
        this.#problem = error.message || error.code;
      }
      this.#show();
    });
    return this.#work;
  }

  #show() {
    const { choices } = this.store.state;
    const note = t("keep_on_server_note", { host: location.host, days: this.#days });
    const problem = this.#problem && t("d_failed", { reason: this.#problem });
    update(byId("keep-on-server-choice"), { hidden: !this.#days });
    update(byId("keep-on-server"), { checked: choices.keepsOnServer });
    update(byId("keep-on-server-note"), {}, [note]);
    update(byId("kept-problem"), {}, [problem]);
    update(
      byId("kept-list"),
      {},
      this.#entries.map((entry) => this.#row(entry)),
    );
    update(byId("kept-delete-all"), { hidden: !this.#entries.length });
  }

  /** @param {Entry} entry */
  #row({ id, title, changed }) {
    const name = title || t("kept_untitled");
    const open = {
      type: "button",
      class: "quiet kept-open",
      "data-testid": "kept-open",
      click: () => this.#do(() => this.#open(id)),
    };
    const remove = {
      type: "button",
      class: "quiet danger",
      "aria-label": t("kept_delete", { title: name }),
      "data-testid": "kept-delete",
      click: () => this.#do(() => this.#remove(id)),
    };
    return h(
      "li",
      { key: id, "data-testid": "kept" },
      h(
        "button",
        { key: "open", ...open },
        h("span", {}, name),
        h("small", {}, formatMoment(changed)),
      ),
      h("button", { key: "delete", ...remove }, "×"),
    );
  }
}

const DELETE = { method: "DELETE" };

/**
 * Returns the turns that are over, as the server keeps them.
 *
 * @param {import("./reducer.js").Conversation} conversation
 * @returns {KeptTurn[]}
 */
function keptTurns({ turns }) {
  return turns.flatMap(({ itemId, responseId, said, reply, heard, status, tools }) => {
    const id = itemId ?? responseId;
    const answer = heard ?? reply;
    if (!id || !SETTLED.has(status) || !(said || answer)) return [];
    const calls = wholeCalls(tools).slice(-MAX_TOOL_CALLS).map(keptCall);
    const texts = { said: said.slice(0, MAX_TEXT_CHARS), reply: answer.slice(0, MAX_TEXT_CHARS) };
    return [{ id, ...texts, tool_calls: calls }];
  });
}

/**
 * Returns the turns in parts that fit into one request each.
 *
 * @param {KeptTurn[]} turns
 */
function inRequests(turns) {
  const encoder = new TextEncoder();
  /** @type {KeptTurn[][]} */
  const requests = [];
  let bytes = 0; // of the last request
  for (const turn of turns) {
    const size = encoder.encode(JSON.stringify(turn)).length;
    const last = requests.at(-1);
    if (last && last.length < TURNS_PER_REQUEST && bytes + size <= REQUEST_BYTES) {
      last.push(turn);
      bytes += size;
    } else {
      requests.push([turn]);
      bytes = size;
    }
  }
  return requests;
}

/** @param {KeptTurn} turn */
const textsOf = ({ said, reply, tool_calls: calls }) =>
  JSON.stringify([said, reply, calls.map((call) => [call.name, call.arguments, call.output])]);
