// The page's view of a conversation, as a pure function of the server's events.
//
// The status of a turn: hearing (the user speaks) -> transcribing (or a written message that waits
// for its response) -> answering -> one of
//   answered  the response is complete, or the turn gets none
//   cut       the response was interrupted
//   failed    an engine or the server reported an error
//   lost      the connection ended before the response was complete
//   noise     there were no words; the turn is not shown

/**
 * @typedef {{ stage: string, start_ms: number, end_ms: number, is_speculative?: boolean }} Span
 *   one of STAGES; in ms since the user stopped speaking
 * @typedef {{ status?: string, stages: Span[], response_latency_ms: number | null }} Trace
 * @typedef {{ id: string, name: string, arguments: string, output: string | null }} ToolCall
 * @typedef {object} Turn
 * @property {string} id
 * @property {string | null} itemId the server's id of the user's message
 * @property {string | null} responseId the server's id of the response
 * @property {"voice" | "text" | "none"} source none: a response without a question, such as a timer
 * @property {string} stable words of the partial transcript that will not change
 * @property {string} unstable words after them that may still change
 * @property {string} said the final words of the user; empty until they are known
 * @property {string} reply the text of the response so far
 * @property {string | null} heard the part of the reply that was played, if not all was
 * @property {"hearing" | "transcribing" | "answering" | "answered" | "cut" | "failed" | "lost" | "noise"} status
 * @property {string} reason why the turn failed; otherwise empty
 * @property {ToolCall[]} tools calls of the server's tools
 * @property {Trace | null} trace
 *
 * @typedef {{ conversationId: string | null, turns: Turn[], hearing: string | null,
 *   speaking: string | null, wake: { is_awake: boolean, phrase: string } | null, made: number }} Conversation
 *   `hearing`: item id of the utterance that is being spoken; `speaking`: id of the response that is
 *   being played; `wake`: null if the session needs no wake word; `made`: number of turns so far, so
 *   that no id is used twice
 * @typedef {{ type: string, [field: string]: any }} ServerEvent
 * @typedef {(turn: Turn) => boolean} Predicate
 * @typedef {Partial<Turn>} Patch
 * @typedef {(state: Conversation, event: ServerEvent) => Conversation} Handler
 */

export const MAX_TURNS = 200; // a day of talking; older turns disappear from the page, not from the server

export const STAGES = ["endpoint_wait", "asr", "llm", "tts", "playout"];

/**
 * `made`: number of turns in earlier conversations of this page, so that no id is used twice.
 *
 * @param {string | null} [conversationId]
 * @param {number} [made]
 * @returns {Conversation}
 */
export function emptyConversation(conversationId = null, made = 0) {
  return { conversationId, turns: [], hearing: null, speaking: null, wake: null, made };
}

/**
 * Returns the JSON values with which a reloaded page can continue this conversation.
 *
 * @param {Conversation} conversation
 */
export const kept = ({ conversationId, turns, made }) => ({ conversationId, turns, made });

/**
 * Returns the conversation from the values of `kept`. Turns that were under way are lost. Null if
 * the value is not valid.
 *
 * @param {any} value
 * @returns {Conversation | null}
 */
export function restored(value) {
  if (
    typeof value?.conversationId !== "string" ||
    !Array.isArray(value.turns) ||
    !Number.isInteger(value.made)
  ) {
    return null;
  }
  const turns = value.turns
    .filter((/** @type {any} */ turn) => typeof turn?.id === "string")
    .map((/** @type {Turn} */ turn) => ({ ...NEW_TURN, ...turn }));
  return reduce(
    { ...emptyConversation(value.conversationId, value.made), turns },
    { type: "page.disconnected" },
  );
}

/**
 * Returns the state after an event of the server, or `page.disconnected` of the page. Unknown
 * events change nothing.
 *
 * @param {Conversation} state
 * @param {ServerEvent} event
 * @returns {Conversation}
 */
export function reduce(state, event) {
  return Object.hasOwn(HANDLERS, event.type) ? HANDLERS[event.type](state, event) : state;
}

/**
 * Returns whether the turn has something to read. Other turns are not shown.
 *
 * @param {Turn} turn
 */
export const isShown = (turn) =>
  turn.status !== "noise" &&
  Boolean(turn.said || turn.reply || turn.reason || turn.status === "lost");

/**
 * Returns the words so far of the utterance that is being spoken or transcribed, if any.
 *
 * @param {Conversation} state
 */
export function liveWords(state) {
  const turn = state.turns.findLast((one) => isPending(one) && !one.said);
  return turn ? { stable: turn.stable, unstable: turn.unstable } : { stable: "", unstable: "" };
}

/**
 * Returns what the assistant does now: hearing, thinking, speaking, or null.
 *
 * @param {Conversation} state
 */
export function activity(state) {
  if (state.hearing !== null) return "hearing";
  if (state.speaking !== null) return "speaking";
  const last = state.turns.findLast((turn) => turn.status !== "noise");
  return last && (last.status === "transcribing" || last.status === "answering")
    ? "thinking"
    : null;
}

/**
 * Returns whether a response is being made or played, or was requested and has not begun.
 *
 * @param {Conversation} state
 */
export const hasActiveResponse = (state) =>
  state.speaking !== null ||
  state.turns.some(
    (turn) =>
      turn.status === "answering" || (turn.status === "transcribing" && turn.source === "text"),
  );

/**
 * Returns the traces for the medians. The same traces in the same order give the same medians.
 *
 * @param {Conversation} state
 * @returns {Trace[]}
 */
export const tracesOf = (state) =>
  state.turns.flatMap(({ trace }) => (trace?.status === "answered" ? [trace] : []));

/** @param {Turn} turn */
const isPending = (turn) => turn.status === "hearing" || turn.status === "transcribing";

/** @type {Omit<Turn, "id">} */
const NEW_TURN = {
  itemId: null,
  source: "voice",
  stable: "",
  unstable: "",
  said: "",
  responseId: null,
  reply: "",
  heard: null,
  status: "hearing",
  reason: "",
  tools: [],
  trace: null,
};

/**
 * Returns the state with a new turn at the end, and without the oldest one if there are too many.
 *
 * @param {Conversation} state
 * @param {Patch} turn its values that differ from NEW_TURN
 * @returns {Conversation}
 */
function append(state, turn) {
  const turns = [...state.turns, { ...NEW_TURN, id: `turn-${state.made + 1}`, ...turn }];
  return { ...state, made: state.made + 1, turns: turns.slice(-MAX_TURNS) };
}

/**
 * Returns the state with `patch` on all turns that match. What does not change stays the same
 * object.
 *
 * @param {Conversation} state
 * @param {Predicate} predicate
 * @param {Patch | ((turn: Turn) => Patch)} patch
 * @returns {Conversation}
 */
function change(state, predicate, patch) {
  const turns = state.turns.map((turn) => {
    if (!predicate(turn)) return turn;
    const values = Object.entries(typeof patch === "function" ? patch(turn) : patch);
    return values.every(([name, value]) => turn[/** @type {keyof Turn} */ (name)] === value)
      ? turn
      : { ...turn, ...Object.fromEntries(values) };
  });
  return turns.every((turn, index) => turn === state.turns[index]) ? state : { ...state, turns };
}

/**
 * @param {string | null} id
 * @returns {Predicate}
 */
const ofItem = (id) => (turn) => turn.itemId === id;
/**
 * @param {string | null} id
 * @returns {Predicate}
 */
const ofResponse = (id) => (turn) => turn.responseId === id;

/**
 * Returns the state with `patch` on the turn of this item, which is created if it is missing.
 *
 * @param {Conversation} state
 * @param {string} itemId
 * @param {Patch} patch
 */
function withItem(state, itemId, patch) {
  return state.turns.some(ofItem(itemId))
    ? change(state, ofItem(itemId), patch)
    : append(state, { itemId, ...patch });
}

/**
 * Returns the words of a message: written text, and transcripts of sound.
 *
 * @param {any} item
 * @returns {string}
 */
const textOf = (item) =>
  (item.content ?? [])
    .map((/** @type {any} */ part) => part.text ?? part.transcript ?? "")
    .filter(Boolean)
    .join(" ");

/**
 * Takes over the words of a user's message, which comes as an item of the conversation.
 *
 * @param {Conversation} state
 * @param {ServerEvent} event
 */
function itemSeen(state, { item }) {
  if (item.type !== "message" || item.role !== "user") return state;
  const said = textOf(item);
  if (!said) return state;
  const isText = item.content.some((/** @type {any} */ part) => part.type === "input_text");
  /** @type {Patch} */
  const patch = isText ? { said, source: "text" } : { said };
  // A turn that is known keeps its source: the page itself sends it to a server that forgot it.
  if (state.turns.some(ofItem(item.id))) return change(state, ofItem(item.id), { said });
  return append(state, { itemId: item.id, status: "transcribing", ...patch });
}

/**
 * Takes over the final text of the assistant's message. An incomplete message was interrupted: its
 * text is what the user heard of it.
 *
 * @param {Conversation} state
 * @param {string} responseId
 * @param {any} item
 * @returns {Conversation}
 */
function answerDone(state, responseId, item) {
  if (item?.type !== "message" || item.role !== "assistant") return state;
  const text = textOf(item);
  return change(state, ofResponse(responseId), () => {
    if (item.status === "incomplete") return { heard: text, status: "cut" };
    return text ? { reply: text } : {};
  });
}

/**
 * Links a new response to the turn that waits for it. Without such a turn it gets one of its own.
 *
 * @param {Conversation} state
 * @param {ServerEvent} event
 */
function responseCreated(state, { response }) {
  /** @type {Patch} */
  const patch = { responseId: response.id, status: "answering" };
  const waiting = state.turns.findLast(
    (turn) => turn.responseId === null && turn.status === "transcribing",
  );
  if (!waiting) return append(state, { source: "none", ...patch });
  // The server answers the latest one. Those that waited before it get no answer of their own.
  return change(
    state,
    (turn) => turn.responseId === null && turn.status === "transcribing",
    (turn) => (turn === waiting ? patch : { status: "answered" }),
  );
}

/**
 * Sets the turn's final status from the response's.
 *
 * @param {Conversation} state
 * @param {ServerEvent} event
 */
function responseDone(state, { response }) {
  let next = state;
  for (const item of response.output ?? []) next = answerDone(next, response.id, item);
  const details = response.status_details ?? {};
  return change(next, ofResponse(response.id), (turn) => {
    if (response.status === "cancelled") return { status: "cut", heard: turn.heard ?? turn.reply };
    if (response.status === "failed") {
      if (details.error?.code === "no_speech") return { status: "noise" };
      return {
        status: "failed",
        reason: details.error?.message ?? details.error?.code ?? "failed",
      };
    }
    return turn.status === "cut" ? {} : { status: "answered" };
  });
}

/**
 * Adds the turn's timing, which the server sends when the turn is over. The trace also ends a turn
 * that got no response.
 *
 * @param {Conversation} state
 * @param {ServerEvent} event
 */
function turnTraced(state, { turn: trace }) {
  const byResponse = trace.response_id && state.turns.some(ofResponse(trace.response_id));
  const predicate = byResponse ? ofResponse(trace.response_id) : ofItem(trace.item_id);
  return change(state, predicate, (turn) => {
    if (trace.status === "rejected") return { trace, status: "noise" };
    if (trace.status === "failed" && !turn.reason) {
      return { trace, status: "failed", reason: "failed" };
    }
    if (isPending(turn)) {
      return { trace, status: trace.status === "transcribed" ? "answered" : turn.status };
    }
    return { trace };
  });
}

/**
 * Shows a call of the server's tool, or adds its result.
 *
 * @type {Handler}
 */
const toolSeen = (state, { response_id: id, item }) =>
  change(state, ofResponse(id), ({ tools }) => {
    if (item.type === "function_call") {
      const call = { id: item.call_id, name: item.name, arguments: item.arguments, output: null };
      return { tools: [...tools, call] };
    }
    const { call_id: callId, output } = item;
    return { tools: tools.map((call) => (call.id === callId ? { ...call, output } : call)) };
  });
/** @type {Handler} */
const addReply = (state, { response_id: id, delta }) =>
  change(state, ofResponse(id), (turn) => ({ reply: turn.reply + delta }));
/**
 * @param {string} text name of the event's field that holds the whole reply
 * @returns {Handler}
 */
const setReply = (text) => (state, event) =>
  change(state, ofResponse(event.response_id), (turn) => ({ reply: event[text] || turn.reply }));
/** @type {Handler} */
const learnSession = (state, { session }) => ({
  ...state,
  conversationId: session.earshot?.conversation_id ?? state.conversationId,
});
/** @type {Handler} */
const stopSpeaking = (state) => ({ ...state, speaking: null });

/**
 * Marks the turn whose response was refused.
 *
 * @type {Handler}
 */
const refused = (state, { error }) =>
  error.code === "conversation_already_has_active_response"
    ? change(state, (turn) => turn === state.turns.findLast(isPending), {
        status: "failed",
        reason: error.message,
      })
    : state;

/** @type {Record<string, Handler>} */
const HANDLERS = {
  error: refused,
  "session.created": learnSession,
  "session.updated": learnSession,
  "input_audio_buffer.speech_started": (state, { item_id: id }) => ({
    ...withItem(state, id, { status: "hearing" }),
    hearing: id,
  }),
  "earshot.hypothesis": (state, { item_id: id, stable, unstable }) =>
    withItem(state, id, { stable, unstable }),
  "input_audio_buffer.speech_stopped": (state, { item_id: id }) => ({
    ...withItem(state, id, { status: "transcribing" }),
    hearing: null,
  }),
  "input_audio_buffer.committed": (state, { item_id: id }) => ({
    ...withItem(state, id, { status: "transcribing" }),
    hearing: null,
  }),
  "input_audio_buffer.cleared": (state) => ({
    ...change(state, (turn) => turn.status === "hearing", { status: "noise" }),
    hearing: null,
  }),
  "conversation.item.added": itemSeen,
  "conversation.item.done": itemSeen,
  "conversation.item.deleted": (state, { item_id: id }) => ({
    ...state,
    turns: state.turns.filter((turn) => turn.itemId !== id),
    hearing: state.hearing === id ? null : state.hearing,
  }),
  "conversation.item.input_audio_transcription.completed": (state, { item_id: id, transcript }) =>
    withItem(state, id, transcript.trim() ? { said: transcript.trim() } : { status: "noise" }),
  "conversation.item.input_audio_transcription.failed": (state, { item_id: id, error }) =>
    withItem(state, id, { status: "failed", reason: error.message ?? error.code ?? "failed" }),
  "response.created": responseCreated,
  "response.output_text.delta": addReply,
  "response.output_audio_transcript.delta": addReply,
  "response.output_text.done": setReply("text"),
  "response.output_audio_transcript.done": setReply("transcript"),
  "response.output_item.done": (state, { response_id: id, item }) => answerDone(state, id, item),
  "response.done": responseDone,
  "output_audio_buffer.started": (state, { response_id: id }) => ({ ...state, speaking: id }),
  "output_audio_buffer.stopped": stopSpeaking,
  "output_audio_buffer.cleared": (state, { response_id: id }) => ({
    ...change(state, ofResponse(id), (turn) => ({
      status: "cut",
      heard: turn.heard ?? turn.reply,
    })),
    speaking: null,
  }),
  "earshot.turn": turnTraced,
  "earshot.tool": toolSeen,
  "earshot.wake": (state, { wake }) => ({ ...state, wake }),
  "page.disconnected": (state) => ({
    ...change(
      state,
      (turn) => isPending(turn) || turn.status === "answering",
      (turn) => ({
        status: turn.said || turn.reply ? "lost" : "noise",
      }),
    ),
    hearing: null,
    speaking: null,
    wake: null,
  }),
};
