// The page of Willow's paths /rtc and /chatbot: speech to text over WebRTC, and questions.

import { authorization, takeKey } from "../server/key.js";

const $ = (id) => document.getElementById(id);
const tell = (text) => {
  $("state").textContent = text;
};

function add(list, text) {
  const item = document.createElement("li");
  item.textContent = text;
  $(list).prepend(item);
}

/** The answer's JSON; a refusal is an Error with the server's own words. */
async function ask(path, options = {}) {
  const headers = { ...authorization(), ...options.headers };
  const response = await fetch(path, { ...options, headers });
  const body = await response.json();
  if (!response.ok) throw new Error(body.error.message);
  return body;
}

class Call {
  #peer = new RTCPeerConnection();
  #channel = this.#peer.createDataChannel("chat");
  #track;
  #sender;
  #stoppedAt = 0;
  isRecording = false;

  async open() {
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    [this.#track] = stream.getAudioTracks();
    this.#sender = this.#peer.addTrack(this.#track, stream);
    this.#channel.onmessage = (event) => this.#take(JSON.parse(event.data));
    const opened = new Promise((resolve) => {
      this.#channel.onopen = resolve;
    });
    this.#channel.onclose = () => closed(this);
    await this.#peer.setLocalDescription();
    await this.#gathered();
    const { type, sdp } = this.#peer.localDescription;
    const body = JSON.stringify({ type, sdp });
    const headers = { "Content-Type": "application/json" };
    await this.#peer.setRemoteDescription(
      await ask("/api/rtc/asr", { method: "POST", headers, body }),
    );
    await opened;
    await this.#sender.replaceTrack(null);
  }

  /** Between sentences no sound is sent. */
  async toggle() {
    this.isRecording = !this.isRecording;
    if (this.isRecording) {
      await this.#sender.replaceTrack(this.#track);
    } else {
      this.#stoppedAt = performance.now();
      this.#sender.replaceTrack(null);
    }
    this.#channel.send(JSON.stringify({ type: this.isRecording ? "start" : "stop" }));
  }

  close() {
    this.#track?.stop();
    this.#peer.close();
  }

  #take({ type, message, obj }) {
    if (type === "infer") {
      const waited_ms = Math.round(performance.now() - this.#stoppedAt);
      add("heard", `${obj.text || "(nothing)"} (${obj.model}, ${waited_ms} ms)`);
    } else if (type === "error") {
      tell(message);
    }
  }

  async #gathered() {
    while (this.#peer.iceGatheringState !== "complete") {
      await new Promise((resolve) => {
        this.#peer.onicegatheringstatechange = resolve;
      });
    }
  }
}

let call = null;

function draw() {
  $("record").disabled = call === null;
  $("connect").disabled = call !== null;
  const isRecording = call?.isRecording ?? false;
  $("record").setAttribute("aria-pressed", String(isRecording));
  $("record").textContent = isRecording ? "Stop and recognise" : "Start recording";
}

function closed(ended) {
  if (call !== ended) return;
  call = null;
  tell("The server ended the call.");
  draw();
}

$("connect").addEventListener("click", async () => {
  const opening = new Call();
  $("connect").disabled = true;
  tell("Connecting.");
  try {
    await opening.open();
    call = opening;
    tell("Connected.");
  } catch (error) {
    opening.close();
    tell(String(error.message ?? error));
  }
  draw();
});

$("record").addEventListener("click", async () => {
  await call?.toggle();
  draw();
});

$("question").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = new FormData(event.target).get("text");
  event.target.reset();
  try {
    const { response } = await ask(`/api/chatbot?${new URLSearchParams({ text })}`);
    add("answers", `${text}: ${response}`);
  } catch (error) {
    tell(error.message);
  }
});

takeKey();
