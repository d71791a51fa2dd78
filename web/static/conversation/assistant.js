// What one can do with the assistant: talk, hold to talk, write, stop. Owns call and microphone.

import { Connection } from "../call/connection.js";
import {
  activity,
  emptyConversation,
  hasActiveResponse,
  kept,
  reduce,
  restored,
} from "./reducer.js";
import { Microphone, NoMicrophone } from "../call/microphone.js";
import { emptyQuality, measured, told } from "../call/quality.js";
import { readJson, remove, writeJson } from "../state/storage.js";

const STORED = "earshot.conversation";
const CLAIM_MS = 1_000; // other tabs answer in a few ms; a later answer is to another tab's question
const TAIL_MS = 200; // the last word is still on its way when the button is let go
// We cancel to be sure, though nothing may be there; a refused answer is shown at its own turn.
const QUIET = new Set(["response_cancel_not_active", "conversation_already_has_active_response"]);

export class Assistant {
  /**
   * `onChange()` after every change, but `onQuality()` after those of the connection's quality;
   * `onTrouble(code, details)` for what the user must know, `onFine(code)` when that is over; without
   * a code nothing of it matters any more.
   */
  constructor({ choices, voice, onChange, onQuality, onTrouble, onFine }) {
    Object.assign(this, { choices, voice, onChange, onQuality, onTrouble, onFine });
    this.quality = emptyQuality();
    this.conversation = restored(readJson("tab", STORED)) ?? emptyConversation();
    this.held = false;
    this.tail = null; // the timer that sends what was said, after the button was let go
    this.microphone = new Microphone({
      context: () => voice.context(),
      onChange: () => this.#microphoneChanged(),
    });
    this.connection = new Connection({
      describe: () => choices.session(this.conversation.conversationId),
      onEvent: (event) => this.#take(event),
      onState: (state) => this.#connectionBecame(state),
      onTrack: (track) => voice.take(track),
      onStats: (report) => this.#qualityBecame(measured(this.quality, report)),
      onLost: (attempt) => onTrouble("lost", { n: attempt }),
      onGivenUp: (refused) => this.#refused(refused),
    });
    addEventListener("pagehide", () => {
      this.#keep();
      this.stop();
    });
    document.addEventListener("visibilitychange", () =>
      document.hidden ? this.#keep() : this.#seen(),
    );
    addEventListener("pageshow", () => this.#seen());
    this.#claim();
  }

  /** off, connecting, ready, asleep (it waits for its wake word), listening, hearing, thinking, speaking or reconnecting. */
  get state() {
    const { state } = this.connection;
    if (state !== "open") return state === "idle" ? "off" : state;
    const doing = activity(this.conversation);
    if (doing) return doing;
    if (this.microphone.isOpen && this.conversation.wake?.is_awake === false) return "asleep";
    if (!this.microphone.isOpen || this.microphone.isMuted) return "ready";
    return this.held || !this.choices.pushToTalk ? "listening" : "ready";
  }

  /** Whether the user may talk without touching anything. */
  get isHandsFree() {
    return this.microphone.isOpen && this.connection.state !== "idle" && !this.choices.pushToTalk;
  }

  /** The click on the microphone in hands-free mode. */
  async toggle() {
    if (this.microphone.isOpen && this.connection.state !== "idle") this.stop();
    else await this.#start(true);
  }

  /** The button or the space bar goes down in push-to-talk mode. */
  async press() {
    if (this.held) return;
    this.held = true;
    this.onChange();
    if (!(await this.#start(true)) || !this.held) {
      this.held = false;
      this.onChange();
      return;
    }
    this.#commit(); // pressed again so soon that the last sentence was not sent: both are answered as one
    this.#interrupt();
    this.connection.send({ type: "input_audio_buffer.clear" });
    this.microphone.enable(true);
    this.pressed = true;
    this.onChange();
  }

  release() {
    this.held = false;
    if (!this.pressed) return;
    this.pressed = false;
    this.tail = setTimeout(() => {
      this.microphone.enable(!this.choices.pushToTalk);
      this.#commit({ type: "response.create" });
    }, TAIL_MS);
    this.onChange();
  }

  /** Send what was said before the button was let go, if that waits still. */
  #commit(...more) {
    if (this.tail === null) return;
    this.#dropTail();
    this.connection.send({ type: "input_audio_buffer.commit" }, ...more);
  }

  #dropTail() {
    clearTimeout(this.tail);
    this.tail = null;
  }

  /** Send what was written; works without a microphone. */
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

  /** Try to connect once more, with the microphone if that was wanted; a silenced one is asked for anew. */
  async again() {
    if (this.microphone.isMuted) {
      if (await this.#guard(() => this.microphone.reopen())) this.#microphoneChanged();
      return;
    }
    await this.#start(this.wantsMicrophone);
  }

  /** Hang up; the conversation can be gone on with. */
  stop() {
    this.held = this.pressed = false;
    this.#dropTail();
    this.voice.rest();
    this.microphone.close();
    this.connection.close();
    this.onFine();
    this.onChange();
  }

  /** Forget this conversation and hang up. */
  fresh() {
    this.stop();
    remove("tab", STORED);
    this.conversation = emptyConversation(null, this.conversation.made);
    this.onChange();
  }

  /** A choice changed that a running session can follow. */
  follow() {
    if (this.microphone.isOpen && !this.choices.isHeard) {
      this.microphone.close();
      this.connection.replaceTrack(this.microphone.track);
    }
    this.microphone.enable(!this.choices.pushToTalk || this.held);
    this.connection.send({ type: "session.update", session: this.choices.changeable() });
    this.onChange();
  }

  /** A choice changed that needs a new call. */
  async followAnew() {
    await this.#guard(() => this.connection.restart());
  }

  async #start(withMicrophone) {
    this.wantsMicrophone = withMicrophone;
    this.voice.prime();
    const started = await this.#guard(async () => {
      if (withMicrophone && !this.microphone.isOpen) {
        this.microphone.enable(!this.choices.pushToTalk);
        await this.microphone.open();
      }
      await this.connection.open(this.microphone.track);
    });
    this.onChange();
    return started;
  }

  async #guard(action) {
    try {
      await action();
      return true;
    } catch (error) {
      // `closed`: the user hung up meanwhile. `still_lost`: further tries follow, and are told.
      if (error.code === "closed" || error.code === "still_lost") return false;
      if (error instanceof NoMicrophone) this.onTrouble(error.code);
      else this.#refused(error);
      return false;
    }
  }

  #refused(error) {
    this.voice.rest();
    this.microphone.close();
    this.onChange();
    if (error.status === 401) this.onTrouble("key");
    else if (error.status === 503) this.onTrouble("full", { seconds: error.retryAfterS ?? 5 });
    else if (error.code === "unreachable" || error.code === "no_path") this.onTrouble(error.code);
    else this.onTrouble("error", { reason: error.message });
  }

  #interrupt() {
    if (!hasActiveResponse(this.conversation)) return;
    this.connection.send({ type: "response.cancel" }, { type: "output_audio_buffer.clear" });
  }

  #microphoneChanged() {
    const { microphone } = this;
    this.connection.replaceTrack(microphone.track);
    if (microphone.isMissing) this.onTrouble("no_microphone");
    else this.onFine("no_microphone");
    if (microphone.isMuted) this.onTrouble("mic_muted");
    else this.onFine("mic_muted");
    this.onChange();
  }

  /** The page is in sight again, perhaps after a phone call or a locked screen. */
  #seen() {
    if (document.hidden || this.connection.state === "idle") return;
    this.voice.wake();
    this.connection.hurry();
  }

  /** What a reload of the page goes on with. Closing the tab forgets it. */
  #keep() {
    if (this.conversation.conversationId) writeJson("tab", STORED, kept(this.conversation));
  }

  /** A duplicated tab has a copy of our conversation: the tab that had it first keeps it. */
  #claim() {
    if (typeof BroadcastChannel === "undefined") return;
    const tabs = new BroadcastChannel(STORED);
    let asked = this.conversation.conversationId;
    const isOurs = (id) => id !== null && id === this.conversation.conversationId;
    tabs.addEventListener("message", ({ data }) => {
      if (!isOurs(data.id)) return;
      if (data.type === "whose") tabs.postMessage({ type: "taken", id: data.id });
      else if (data.id === asked && this.connection.state === "idle") this.fresh();
    });
    if (asked) tabs.postMessage({ type: "whose", id: asked });
    setTimeout(() => (asked = null), CLAIM_MS);
  }

  #qualityBecame(quality) {
    this.quality = quality;
    this.onQuality();
  }

  #connectionBecame(state) {
    this.#qualityBecame(emptyQuality());
    if (state === "open") {
      this.onFine();
      if (this.microphone.isMuted) this.onTrouble("mic_muted");
    } else this.conversation = reduce(this.conversation, { type: "page.disconnected" });
    this.onChange();
  }

  #take(event) {
    if (event.type === "earshot.connection") {
      return this.#qualityBecame(told(this.quality, event.connection));
    }
    if (event.type === "earshot.hypothesis" && !this.#isMeant(event)) return;
    if (event.type === "error" && !QUIET.has(event.error.code)) this.#complain(event.error);
    if (event.response?.status_details?.error?.code === "no_speech") {
      this.onTrouble("heard_nothing");
    }
    const { conversationId } = this.conversation;
    this.conversation = reduce(this.conversation, event);
    if (this.conversation.conversationId !== conversationId || event.type === "response.done") {
      this.#keep();
    }
    this.onChange();
  }

  /** In push-to-talk, what is heard while the button is up is not said to anyone. */
  #isMeant({ item_id: id }) {
    if (!this.choices.pushToTalk || this.pressed) return true;
    return this.conversation.turns.some((turn) => turn.itemId === id);
  }

  #complain({ code, message }) {
    if (code === "session_idle") {
      this.stop(); // before the server closes the call, which would look like a loss
      this.onTrouble("idle");
    } else if (code === "input_audio_buffer_commit_empty") this.onTrouble("heard_nothing");
    else this.onTrouble("error", { reason: message });
  }
}
