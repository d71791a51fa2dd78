// What the page knows of a conversation, as a pure function of the server's events.
//
// A turn: { id, itemId, source: voice|text|none, stable, unstable, said, responseId, reply,
//           heard: null or the part of the reply that was played, status, reason, trace }
// status: hearing -> transcribing -> answering -> answered | cut | failed | lost, or noise.

export const MAX_TURNS = 200; // a day of talking; older turns leave the page, not the server

export const STAGES = ["endpoint_wait", "asr", "llm", "tts", "playout"];

/** `made`: how many turns earlier conversations of this page had, so that ids are never used twice. */
export function emptyConversation(conversationId = null, made = 0) {
  return { conversationId, turns: [], hearing: null, speaking: null, wake: null, made };
}

/** What another page needs to go on with this conversation, as JSON values. */
export const kept = ({ conversationId, turns, made }) => ({ conversationId, turns, made });

/** The conversation that `kept` gave; what was under way in it is lost. Null if it is not one. */
export function restored(value) {
  if (
    typeof value?.conversationId !== "string" ||
    !Array.isArray(value.turns) ||
    !Number.isInteger(value.made)
  ) {
    return null;
  }
  const turns = value.turns
    .filter((turn) => typeof turn?.id === "string")
    .map((turn) => ({ ...NEW_TURN, ...turn }));
  return reduce(
    { ...emptyConversation(value.conversationId, value.made), turns },
    { type: "page.disconnected" },
  );
}

/** The state after one server event, or one of ours (`page.disconnected`). Unknown ones change nothing. */
export function reduce(state, event) {
  return Object.hasOwn(HANDLERS, event.type) ? HANDLERS[event.type](state, event) : state;
}

/** A turn is shown once there is something to read. */
export const isShown = (turn) =>
  turn.status !== "noise" &&
  Boolean(turn.said || turn.reply || turn.reason || turn.status === "lost");

/** The utterance that is being heard or decoded, if there are words to show for it. */
export function liveWords(state) {
  const turn = state.turns.findLast((one) => isPending(one) && !one.said);
  return turn ? { stable: turn.stable, unstable: turn.unstable } : { stable: "", unstable: "" };
}

/** What the assistant does now: hearing, thinking, speaking, or null. */
export function activity(state) {
  if (state.hearing !== null) return "hearing";
  if (state.speaking !== null) return "speaking";
  const last = state.turns.findLast((turn) => turn.status !== "noise");
  return last && (last.status === "transcribing" || last.status === "answering")
    ? "thinking"
    : null;
}

/** Whether an answer is being made or played, or was asked for and has not begun. */
export const hasActiveResponse = (state) =>
  state.speaking !== null ||
  state.turns.some(
    (turn) =>
      turn.status === "answering" || (turn.status === "transcribing" && turn.source === "text"),
  );

/** What medians are made of: the same items in the same order give the same medians. */
export const tracesOf = (state) =>
  state.turns.map((turn) => turn.trace).filter((trace) => trace?.status === "answered");

/** Over answered turns: { count, latency_ms: median, latency_p95_ms, stages: { asr: median ms, ... } }. */
export function medians(state) {
  const traces = tracesOf(state);
  const stages = {};
  for (const name of STAGES) {
    const spans = traces.flatMap((trace) => trace.stages.filter((span) => span.stage === name));
    if (spans.length) stages[name] = median(spans.map((span) => span.end_ms - span.start_ms));
  }
  const latencies = traces.map((trace) => trace.response_latency_ms).filter(Number.isFinite);
  const [latency_ms, latency_p95_ms] = latencies.length
    ? [median(latencies), percentile(latencies, 95)]
    : [null, null];
  return { count: traces.length, latency_ms, latency_p95_ms, stages };
}

/** The smallest value that so many percent of all do not exceed. */
export function percentile(values, percent) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.ceil((percent / 100) * sorted.length) - 1];
}

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const isPending = (turn) => turn.status === "hearing" || turn.status === "transcribing";

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
  trace: null,
};

function append(state, turn) {
  const turns = [...state.turns, { ...NEW_TURN, id: `turn-${state.made + 1}`, ...turn }];
  return { ...state, made: state.made + 1, turns: turns.slice(-MAX_TURNS) };
}

/** The turns that match, with `patch`; the same state, and the same turn, where that changes nothing. */
function change(state, predicate, patch) {
  const turns = state.turns.map((turn) => {
    if (!predicate(turn)) return turn;
    const values = Object.entries(typeof patch === "function" ? patch(turn) : patch);
    return values.every(([name, value]) => turn[name] === value)
      ? turn
      : { ...turn, ...Object.fromEntries(values) };
  });
  return turns.every((turn, index) => turn === state.turns[index]) ? state : { ...state, turns };
}

const ofItem = (id) => (turn) => turn.itemId === id;
const ofResponse = (id) => (turn) => turn.responseId === id;

function withItem(state, itemId, patch) {
  return state.turns.some(ofItem(itemId))
    ? change(state, ofItem(itemId), patch)
    : append(state, { itemId, ...patch });
}

const textOf = (item) =>
  (item.content ?? [])
    .map((part) => part.text ?? part.transcript ?? "")
    .filter(Boolean)
    .join(" ");

function itemSeen(state, { item }) {
  if (item.type !== "message" || item.role !== "user") return state;
  const said = textOf(item);
  if (!said) return state;
  const isText = item.content.some((part) => part.type === "input_text");
  const patch = isText ? { said, source: "text" } : { said };
  if (state.turns.some(ofItem(item.id))) return change(state, ofItem(item.id), patch);
  return append(state, { itemId: item.id, status: "transcribing", ...patch });
}

function answerDone(state, responseId, item) {
  if (item?.type !== "message" || item.role !== "assistant") return state;
  const text = textOf(item);
  return change(state, ofResponse(responseId), () => {
    if (item.status === "incomplete") return { heard: text, status: "cut" };
    return text ? { reply: text } : {};
  });
}

function responseCreated(state, { response }) {
  const patch = { responseId: response.id, status: "answering" };
  const waiting = state.turns.findLast(
    (turn) => turn.responseId === null && turn.status === "transcribing",
  );
  if (!waiting) return append(state, { source: "none", ...patch });
  // Whoever waited before it is not answered any more: the server answers the latest.
  return change(
    state,
    (turn) => turn.responseId === null && turn.status === "transcribing",
    (turn) => (turn === waiting ? patch : { status: "answered" }),
  );
}

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

const addReply = (state, { response_id: id, delta }) =>
  change(state, ofResponse(id), (turn) => ({ reply: turn.reply + delta }));
const setReply = (text) => (state, event) =>
  change(state, ofResponse(event.response_id), (turn) => ({ reply: event[text] || turn.reply }));
const learnSession = (state, { session }) => ({
  ...state,
  conversationId: session.earshot?.conversation_id ?? state.conversationId,
});
const stopSpeaking = (state) => ({ ...state, speaking: null });

/** The answer that was asked for will not come. */
const refused = (state, { error }) =>
  error.code === "conversation_already_has_active_response"
    ? change(state, (turn) => turn === state.turns.findLast(isPending), {
        status: "failed",
        reason: error.message,
      })
    : state;

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
