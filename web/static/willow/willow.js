// The page of Willow's paths /rtc and /chatbot: speech to text over WebRTC, and questions.

import { getJson } from "../server/api.js";
import { takeKey } from "../server/key.js";
import { byId, h, update } from "../view/keyed.js";

const MAX_ANSWER_MS = 60_000; // a model may think long before it answers

/** One call. Each sentence is recorded between two clicks. */
class Call {
  #peer = new RTCPeerConnection();
  #channel = this.#peer.createDataChannel("chat");
  /** @type {MediaStreamTrack | null} */
  #track = null;
  /** @type {RTCRtpSender | null} */
  #sender = null;
  /** When the last sentence ended. */
  #stoppedAtMs = 0;
  isRecording = false;

  /** Connects. Resolves when a sentence can be recorded; rejects if the server or the browser refuses. */
  async open() {
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    const [track] = stream.getAudioTracks();
    this.#track = track;
    this.#sender = this.#peer.addTrack(track, stream);
    this.#channel.onmessage = (event) => this.#receive(JSON.parse(event.data));
    const opened = new Promise((resolve) => {
      this.#channel.onopen = resolve;
    });
    this.#channel.onclose = () => closed(this);
    await this.#peer.setLocalDescription();
    await this.#candidatesGathered();
    const { type, sdp } = /** @type {RTCSessionDescription} */ (this.#peer.localDescription);
    const body = JSON.stringify({ type, sdp });
    const headers = { "Content-Type": "application/json" };
    const answer = await getJson("/api/rtc/asr", { method: "POST", headers, body });
    await this.#peer.setRemoteDescription(answer);
    await opened;
    await this.#sender.replaceTrack(null);
  }

  /** Starts or ends a sentence. Between sentences no sound is sent. */
  async toggle() {
    this.isRecording = !this.isRecording;
    if (this.isRecording) {
      await this.#sender?.replaceTrack(this.#track);
    } else {
      this.#stoppedAtMs = performance.now();
      this.#sender?.replaceTrack(null);
    }
    this.#channel.send(JSON.stringify({ type: this.isRecording ? "start" : "stop" }));
  }

  close() {
    this.#track?.stop();
    this.#peer.close();
  }

  /** @param {any} message of the server */
  #receive({ type, message, obj }) {
    if (type === "infer") {
      const waitedMs = Math.round(performance.now() - this.#stoppedAtMs);
      addEntry("heard", `${obj.text || "(nothing)"} (${obj.model}, ${waitedMs} ms)`);
    } else if (type === "error") {
      showState(message);
    }
  }

  /** Waits until all ICE candidates are in the offer, as Willow's server expects. */
  async #candidatesGathered() {
    while (this.#peer.iceGatheringState !== "complete") {
      await new Promise((resolve) => {
        this.#peer.onicegatheringstatechange = resolve;
      });
    }
  }
}

/** @type {Call | null} */
let call = null;

/** @type {Record<string, string[]>} entries of each list, the newest first */
const lists = { heard: [], answers: [] };

/** Shows a line about the call, or an error. @param {string} text */
const showState = (text) => update(byId("state"), {}, [text]);

/**
 * Adds an entry at the top of a list.
 *
 * @param {string} list
 * @param {string} text
 */
function addEntry(list, text) {
  lists[list].unshift(text);
  const { length } = lists[list];
  const items = lists[list].map((one, index) => h("li", { key: String(length - index) }, one));
  update(byId(list), {}, items);
}

/** Shows what the buttons do now. */
function draw() {
  const isRecording = call?.isRecording ?? false;
  const text = isRecording ? "Stop and recognise" : "Start recording";
  const props = { disabled: call === null, "aria-pressed": String(isRecording) };
  update(byId("record"), props, [text]);
  update(byId("connect"), { disabled: call !== null });
}

/** Called when a call ended. @param {Call} ended */
function closed(ended) {
  if (call !== ended) return;
  call = null;
  showState("The server ended the call.");
  draw();
}

async function connect() {
  const opening = new Call();
  update(byId("connect"), { disabled: true });
  showState("Connecting.");
  try {
    await opening.open();
    call = opening;
    showState("Connected.");
  } catch (/** @type {any} */ error) {
    opening.close();
    showState(error.message || "The server does not answer.");
  }
  draw();
}

/** Asks the question in the form. @param {SubmitEvent} event */
async function ask(event) {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.target);
  const text = String(new FormData(form).get("text"));
  form.reset();
  try {
    const path = `/api/chatbot?${new URLSearchParams({ text })}`;
    const { response } = await getJson(path, { limitMs: MAX_ANSWER_MS });
    addEntry("answers", `${text}: ${response}`);
  } catch (/** @type {any} */ error) {
    showState(error.message || "The server does not answer.");
  }
}

async function record() {
  await call?.toggle();
  draw();
}

takeKey();
update(byId("connect"), { click: connect });
update(byId("record"), { click: record });
update(byId("question"), { submit: ask });
