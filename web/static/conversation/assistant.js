// The user's actions: talk, hold to talk, write, stop. Owns the call and the microphone.

import { Connection } from "../call/connection.js";
import { eventsOf } from "./context.js";
import { emptyConversation, hasActiveResponse, kept, reduce, restored } from "./reducer.js";
import { Microphone, NoMicrophone } from "../call/microphone.js";
import { emptyQuality, withReport, withServerReport } from "../call/quality.js";
import { request } from "../server/api.js";
import { readJson, remove, writeJson } from "../state/storage.js";

const STORED = "earshot.conversation";
// How long another tab may take to say that the conversation is its own. It takes a few ms; what
// comes later answers the question of a third tab.
const CLAIM_MS = 1_000;
// Id of the event that asks whether the server knows a message, and how long its answer may take.
const KNOWN = "page_is_known";
const KNOWN_MS = 1_000;
const COMMIT_DELAY_MS = 200; // the last word is still on its way when the button is released
// These errors are not shown as messages. The page also cancels when there may be nothing to cancel,
// and a refused response is shown at its own turn.
const IGNORED_ERRORS = new Set([
  "response_cancel_not_active",
  "conversation_already_has_active_response",
]);

/**
 * @typedef {import("./reducer.js").ServerEvent} ServerEvent
 * @typedef {(code: string, details?: Record<string, any>) => void} OnProblem
 */

/** Returns the conversation that a reloaded page continues, or an empty one. */
export const storedConversation = () =>
  restored(readJson("tab", STORED) ?? readJson("browser", STORED)) ?? emptyConversation();

/**
 * Does what the user asks for, and maintains the call's part of the store: `conversation`,
 * `quality`, `connection`, `microphone`, `isMuted`, `isHeld`.
 */
export class Assistant {
  /** @type {ReturnType<typeof setTimeout> | null} commits the utterance after the button was released */
  #commitTimer = null;
  /** True while the user holds the button, also while the call is still being connected. */
  #isHeld = false;
  /** True from when the held button has opened the microphone until it is released. */
  #isPressed = false;
  /** True if the last call was started with the microphone, not for a written message. */
  #isMicrophoneWanted = false;
  /** Settled once the server has the conversation. @type {Promise<void>} */
  #contextSent = Promise.resolve();
  /** Takes whether the server knows the conversation's last message. @type {(isKnown: boolean) => void} */
  #onItemKnown = () => {};

  /**
   * @param {import("../app.js").PageStore} store
   * @param {object} parts
   * @param {import("../call/speaker.js").Speaker} parts.speaker
   * @param {OnProblem} parts.onProblem reports a problem to the user; `code` is the key of its sentence
   * @param {(...codes: string[]) => void} parts.onSolved called when these problems are over; without
   *   a code, all of them
   */
  constructor(store, { speaker, onProblem, onSolved }) {
    this.store = store;
    this.speaker = speaker;
    this.onProblem = onProblem;
    this.onSolved = onSolved;
    this.microphone = new Microphone({
      context: () => speaker.context(),
      onChange: () => this.#microphoneChanged(),
    });
    this.connection = new Connection({
      describe: () => this.choices.session(this.conversation.conversationId),
      onEvent: (event) => this.#onEvent(event),
      onState: (state) => this.#onConnectionState(state),
      onTrack: (track) => speaker.take(track),
      onStats: (report) => store.set({ quality: withReport(store.state.quality, report) }),
      onLost: (attempt) => onProblem("lost", { n: attempt }),
      onGivenUp: (refused) => this.#onCallFailed(refused),
    });
    addEventListener("pagehide", () => {
      this.#save();
      this.stop();
    });
    document.addEventListener("visibilitychange", () =>
      document.hidden ? this.#save() : this.#onVisible(),
    );
    addEventListener("pageshow", () => this.#onVisible());
    this.#claimConversation();
  }

  get choices() {
    return this.store.state.choices;
  }

  get conversation() {
    return this.store.state.conversation;
  }

  /** Puts the state of connection and microphone into the store. */
  #publish() {
    const { stream, isMuted, isSilenced } = this.microphone;
    const { state } = this.connection;
    const isHeld = this.#isHeld;
    this.store.set({ connection: state, microphone: stream, isMuted, isSilenced, isHeld });
  }

  /** Handles a click on the microphone in hands-free mode. */
  async toggle() {
    if (this.microphone.isOpen && this.connection.state !== "idle") this.stop();
    else await this.#start(true);
  }

  /** Stops the answer that is being made or spoken; nothing happens if there is none. */
  stopAnswer() {
    this.#interrupt();
  }

  /** Mutes the microphone or lets it hear again. In push-to-talk the button does that. */
  toggleMute() {
    if (!this.microphone.isOpen || this.choices.pushToTalk) return;
    this.microphone.silence(!this.microphone.isSilenced);
    this.#publish();
  }

  /** Handles the button or the space bar going down in push-to-talk mode. */
  async press() {
    if (this.#isHeld) return;
    this.#isHeld = true;
    this.#publish();
    if (!(await this.#start(true)) || !this.#isHeld) {
      this.#isHeld = false;
      this.#publish();
      return;
    }
    this.#commit(); // pressed again so soon that the last sentence was not sent: both are answered as one
    this.#interrupt();
    this.connection.send({ type: "input_audio_buffer.clear" });
    this.microphone.enable(true);
    this.#isPressed = true;
    this.#publish();
  }

  /** Handles the end of a press: what was said is committed and answered. */
  release() {
    this.#isHeld = false;
    this.#publish();
    if (!this.#isPressed) return;
    this.#isPressed = false;
    this.#commitTimer = setTimeout(() => {
      this.microphone.enable(!this.choices.pushToTalk);
      this.#commit({ type: "response.create" });
    }, COMMIT_DELAY_MS);
  }

  /**
   * Commits the utterance that waits since the button was released, if any.
   *
   * @param {...object} more events to send after it
   */
  #commit(...more) {
    if (this.#commitTimer === null) return;
    this.#cancelCommit();
    this.connection.send({ type: "input_audio_buffer.commit" }, ...more);
  }

  #cancelCommit() {
    clearTimeout(this.#commitTimer ?? undefined);
    this.#commitTimer = null;
  }

  /** Sends a written message; works without a microphone. @param {string} text */
  async write(text) {
    if (!(await this.#start(false))) return false;
    this.#interrupt();
    const content = [{ type: "input_text", text }];
    this.connection.send(
      { type: "conversation.item.create", item: { type: "message", role: "user", content } },
      { type: "response.create" },
    );
    return true;
  }

  /**
   * Tries to connect once more, with the microphone if the user wanted it. A muted microphone is
   * opened again.
   */
  async retry() {
    if (this.microphone.isMuted) {
      if (await this.#guard(() => this.microphone.reopen())) this.#microphoneChanged();
      return;
    }
    await this.#start(this.#isMicrophoneWanted);
  }

  /** Hangs up. The conversation can be continued later. */
  stop() {
    this.#isHeld = this.#isPressed = false;
    this.#cancelCommit();
    this.speaker.rest();
    this.microphone.close();
    this.microphone.silence(false);
    this.connection.close();
    this.onSolved();
    this.#publish();
  }

  /** Keeps the conversation in this browser after its tab is closed, or no more. */
  keep() {
    if (this.choices.keepsConversation) this.#save();
    else remove("browser", STORED);
  }

  /** Hangs up and deletes this conversation, in the browser and on the server. */
  async deleteAll() {
    const { conversationId } = this.conversation;
    this.startOver();
    if (!conversationId) return;
    const path = `/v1/conversations/${encodeURIComponent(conversationId)}`;
    await this.#guard(async () => {
      await request(path, { method: "DELETE" });
    });
  }

  /** Hangs up and continues another conversation. @param {import("./reducer.js").Conversation} conversation */
  take(conversation) {
    this.stop();
    this.store.set({ conversation });
    this.#save();
    this.#publish();
  }

  /** Hangs up and forgets this conversation. */
  startOver() {
    remove("browser", STORED);
    this.#leave();
  }

  /** Hangs up and leaves this conversation to another tab. */
  #leave() {
    this.stop();
    remove("tab", STORED);
    this.store.set({ conversation: emptyConversation(null, this.conversation.made) });
    this.#publish();
  }

  /** Applies a changed choice to the running session. */
  updateSession() {
    if (this.microphone.isOpen && !this.choices.isHeard) {
      this.microphone.close();
      this.connection.replaceTrack(this.microphone.track);
    }
    if (this.choices.pushToTalk) this.microphone.silence(false);
    this.microphone.enable(!this.choices.pushToTalk || this.#isHeld);
    this.connection.send({ type: "session.update", session: this.choices.changeable() });
    this.#publish();
  }

  /** Uses the chosen microphone and speaker, also in a running call. */
  async useDevices() {
    const { microphone, speaker } = this.choices;
    this.speaker.useDevice(speaker);
    if (this.microphone.deviceId === microphone) return;
    this.microphone.deviceId = microphone;
    if (!this.microphone.isOpen) return;
    if (await this.#guard(() => this.microphone.reopen())) this.#microphoneChanged();
  }

  /** Applies a changed choice that needs a new call. */
  async redial() {
    await this.#guard(() => this.connection.restart());
  }

  /** @param {boolean} withMicrophone */
  async #start(withMicrophone) {
    this.#isMicrophoneWanted = withMicrophone;
    this.speaker.prime();
    const started = await this.#guard(async () => {
      if (withMicrophone && !this.microphone.isOpen) {
        this.microphone.enable(!this.choices.pushToTalk);
        await this.microphone.open();
      }
      await this.connection.open(this.microphone.track);
      await this.#contextSent;
    });
    this.#publish();
    return started;
  }

  /**
   * Sends the conversation to a server that does not have it: it was restarted, or needed the room.
   */
  async #sendContext() {
    const { turns } = this.conversation;
    const last = turns.findLast(({ itemId, said }) => itemId && said);
    if (!last?.itemId) return;
    const answer = new Promise((/** @type {(isKnown: boolean) => void} */ resolve) => {
      this.#onItemKnown = resolve;
      setTimeout(() => resolve(true), KNOWN_MS);
    });
    const asked = { type: "conversation.item.retrieve", event_id: KNOWN, item_id: last.itemId };
    this.connection.send(asked);
    if (await answer) return;
    this.connection.send(...turns.flatMap(eventsOf));
  }

  /**
   * Takes an answer to the question of `#sendContext`. Returns whether the event is one.
   *
   * @param {ServerEvent} event
   */
  #isContextAnswer(event) {
    const isKnown = event.type === "conversation.item.retrieved";
    if (!isKnown && event.error?.event_id !== KNOWN) return false;
    this.#onItemKnown(isKnown);
    return true;
  }

  /**
   * Runs `action`. A failure is shown to the user. Returns whether it succeeded.
   *
   * @param {() => Promise<void>} action
   */
  async #guard(action) {
    try {
      await action();
      return true;
    } catch (/** @type {any} */ error) {
      // `closed`: the user hung up meanwhile. `still_lost`: more tries follow, and a message says
      // so.
      if (error.code === "closed" || error.code === "still_lost") return false;
      if (error instanceof NoMicrophone) this.onProblem(error.code);
      else this.#onCallFailed(error);
      return false;
    }
  }

  /** @param {import("../server/api.js").Refused} error */
  #onCallFailed(error) {
    this.speaker.rest();
    this.microphone.close();
    this.microphone.silence(false);
    this.#publish();
    if (error.status === 401) this.onProblem("key");
    else if (error.status === 503) this.onProblem("full", { seconds: error.retryAfterS ?? 5 });
    else if (error.code === "unreachable" || error.code === "no_path") this.onProblem(error.code);
    else this.onProblem("error", { reason: error.message });
  }

  /** Stops the response that is being made or played, if any. */
  #interrupt() {
    if (!hasActiveResponse(this.conversation)) return;
    this.connection.send({ type: "response.cancel" }, { type: "output_audio_buffer.clear" });
  }

  #microphoneChanged() {
    const { microphone } = this;
    this.connection.replaceTrack(microphone.track);
    if (microphone.isMissing) this.onProblem("no_microphone");
    else this.onSolved("no_microphone");
    if (microphone.isMuted) this.onProblem("mic_muted");
    else this.onSolved("mic_muted");
    this.#publish();
  }

  /** Called when the page is visible again, perhaps after a phone call or a locked screen. */
  #onVisible() {
    if (document.hidden || this.connection.state === "idle") return;
    this.speaker.wake();
    this.connection.hurry();
  }

  /** Stores what a reloaded page needs to continue, for this tab or as long as the user wants. */
  #save() {
    if (!this.conversation.conversationId) return;
    const values = kept(this.conversation);
    writeJson("tab", STORED, values);
    if (this.choices.keepsConversation) writeJson("browser", STORED, values);
  }

  /**
   * Settles which tab owns the conversation. A duplicated tab has a copy of it; the tab that had it
   * first keeps it.
   */
  #claimConversation() {
    if (typeof BroadcastChannel === "undefined") return;
    const tabs = new BroadcastChannel(STORED);
    let asked = this.conversation.conversationId;
    const isOurs = (/** @type {string | null} */ id) =>
      id !== null && id === this.conversation.conversationId;
    tabs.addEventListener("message", ({ data }) => {
      if (!isOurs(data.id)) return;
      if (data.type === "whose") tabs.postMessage({ type: "taken", id: data.id });
      else if (data.id === asked && this.connection.state === "idle") this.#leave();
    });
    if (asked) tabs.postMessage({ type: "whose", id: asked });
    setTimeout(() => {
      asked = null;
    }, CLAIM_MS);
  }

  /** @param {import("../call/connection.js").ConnectionState} state */
  #onConnectionState(state) {
    this.store.set({ quality: emptyQuality() });
    if (state === "open") {
      this.onSolved();
      if (this.microphone.isMuted) this.onProblem("mic_muted");
      this.#contextSent = this.#sendContext();
    } else this.#reduce({ type: "page.disconnected" });
    this.#publish();
  }

  /** @param {ServerEvent} event */
  #reduce(event) {
    this.store.set({ conversation: reduce(this.conversation, event) });
  }

  /** @param {ServerEvent} event */
  #onEvent(event) {
    if (event.type === "earshot.connection") {
      const { quality } = this.store.state;
      this.store.set({ quality: withServerReport(quality, event.connection) });
      return;
    }
    if (this.#isContextAnswer(event)) return;
    if (event.type === "earshot.hypothesis" && !this.#isForAssistant(event)) return;
    if (event.type === "error" && !IGNORED_ERRORS.has(event.error.code))
      this.#showError(event.error);
    if (event.response?.status_details?.error?.code === "no_speech") {
      this.onProblem("heard_nothing");
    }
    const { conversationId } = this.conversation;
    this.#reduce(event);
    if (this.conversation.conversationId !== conversationId || event.type === "response.done") {
      this.#save();
    }
    this.#publish();
  }

  /**
   * Returns whether to show these words. In push-to-talk, words that are recognised while the button
   * is up are not for the assistant.
   *
   * @param {ServerEvent} event
   */
  #isForAssistant({ item_id: id }) {
    if (!this.choices.pushToTalk || this.#isPressed) return true;
    return this.conversation.turns.some((turn) => turn.itemId === id);
  }

  /** @param {{ code: string, message: string }} error */
  #showError({ code, message }) {
    if (code === "session_idle" && this.store.state.path === "/kiosk") {
      this.redial(); // nobody is there to click
    } else if (code === "session_idle") {
      this.stop(); // hang up before the server does, which would look like a lost call
      this.onProblem("idle");
    } else if (code === "input_audio_buffer_commit_empty") this.onProblem("heard_nothing");
    else this.onProblem("error", { reason: message });
  }
}
