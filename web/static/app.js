// Wires the page together: choices and gestures in, the assistant's state out.

import { getJson } from "./server/api.js";
import { Assistant } from "./conversation/assistant.js";
import { Choices } from "./state/choices.js";
import { Controls } from "./conversation/controls.js";
import { medians, tracesOf } from "./conversation/reducer.js";
import { DevicesView } from "./devices/devices.js";
import { byId, h, icon, scrollableByKeyboard, setText } from "./view/keyed.js";
import { Header } from "./header/header.js";
import { HomeView } from "./home/home.js";
import { speakLanguage, t } from "./words/translate.js";
import { takeKey } from "./server/key.js";
import { Messages } from "./conversation/messages.js";
import { Meter, Ribbon } from "./conversation/ribbon.js";
import { Network } from "./header/call_quality.js";
import { Turns } from "./conversation/turns.js";
import { Voice } from "./call/speaker.js";
import { WakeLock } from "./call/wake_lock.js";
import { medianTable } from "./view/waterfall.js";

const MIC_ICONS = { speaking: "wave", thinking: "dots", connecting: "dots", reconnecting: "dots" };
const TOLD_ALREADY = new Set(["lost", "unreachable", "key"]); // messages that say more about a lost server

class Page {
  constructor() {
    this.choices = new Choices();
    this.network = new Network();
    this.messages = new Messages({
      retry: () => this.assistant.again(),
      hear: () => this.voice.play(),
      rekeyed: () => this.load(),
    });
    this.voice = new Voice(byId("voice"), {
      onBlocked: () => this.messages.show("autoplay"),
      onFailed: (reason) => this.messages.show("error", { reason }),
      onPlaying: () => this.messages.clear("autoplay"),
      onStream: (stream) => this.ribbon.connect("output", new Meter(this.voice.context(), stream)),
    });
    this.assistant = new Assistant({
      choices: this.choices,
      voice: this.voice,
      onChange: () => this.#changed(),
      onQuality: () => this.#drawQuality(),
      onTrouble: (code, details) => this.messages.show(code, details),
      onFine: (...codes) => this.messages.clear(...codes),
    });
    this.header = new Header(this.choices, (name) => this.#chosen(name));
    this.turns = new Turns();
    this.home = new HomeView({
      onRefused: () => this.messages.show("key"),
      onGone: () => this.#gone(),
      onBack: () => this.#back(),
    });
    this.devices = new DevicesView();
    this.ribbon = new Ribbon(byId("ribbon"), byId("mic"));
    this.controls = new Controls(this.assistant, this.choices);
    this.wakeLock = new WakeLock();
    for (const id of ["side", "areas"]) scrollableByKeyboard(byId(id));
    // A page that the browser kept and shows again: its streams ended when it was left.
    addEventListener("pageshow", ({ persisted }) => persisted && this.load());
  }

  /** Ask the server what it has; again after a key was given. */
  async load() {
    this.#translate();
    this.home.watch(this.choices.language);
    this.devices.watch();
    await this.#learn();
  }

  /** Ask for the engines, and draw what depends on them. */
  async #learn() {
    const { language } = this.choices;
    try {
      this.choices.know(await getJson("/earshot/engines"));
    } catch (error) {
      this.messages.show(error.status === 401 ? "key" : "unreachable");
    }
    this.#translate();
    if (this.choices.language !== language) this.home.watch(this.choices.language);
  }

  /** The server's port is closed, or nothing answers there. */
  #gone() {
    this.assistant.connection.suspect();
    if (!TOLD_ALREADY.has(this.messages.shown?.code)) this.messages.show("gone");
  }

  /** The server answers again; it may have been restarted with other engines. */
  #back() {
    this.messages.clear("gone", "unreachable");
    this.assistant.connection.hurry();
    this.devices.watch();
    this.#learn();
  }

  #chosen(name) {
    if (name === "language") {
      this.home.watch(this.choices.language);
      this.#translate();
    }
    if (name === "llm" || name === "wakeWord") this.assistant.followAnew();
    else if (name !== "theme") this.assistant.follow();
  }

  #translate() {
    speakLanguage(this.choices.language);
    this.header.show();
    this.messages.translate();
    if (this.home.home) this.home.show(this.home.home);
    this.devices.translate();
    const samples = t("suggestions").map((text) =>
      h(
        "li",
        {},
        h(
          "button",
          { type: "button", class: "suggestion", click: () => this.assistant.write(text) },
          text,
        ),
      ),
    );
    byId("suggestions").replaceChildren(...samples);
    this.#changed(true);
  }

  // Several things change at once (a call opens, its messages go); they are drawn once.
  #changed(anew = false) {
    this.anew ||= anew;
    if (this.drawing) return;
    this.drawing = true;
    queueMicrotask(() => {
      this.drawing = false;
      const isAnew = this.anew;
      this.anew = false;
      this.#draw(isAnew);
    });
  }

  #draw(anew) {
    const { assistant, choices } = this;
    const { state } = assistant;
    const shown = state === "hearing" ? "listening" : state;
    document.documentElement.dataset.state = shown;
    document.documentElement.dataset.hearing = String(state === "hearing");
    setText(byId("state"), t(`state_${state}`, { phrase: assistant.conversation.wake?.phrase }));
    setText(byId("hint"), this.header.unheard || t(this.#hint(state)));
    byId("hint").dataset.note = String(Boolean(this.header.unheard));
    setText(byId("connection-text"), t(`connection_${connectionWord(assistant.connection.state)}`));
    this.#drawMicrophone(shown, choices);
    byId("hangup").hidden = assistant.connection.state === "idle";
    byId("fresh").hidden = assistant.conversation.turns.length === 0 || !byId("hangup").hidden;
    this.#drawQuality();
    this.turns.show(assistant.conversation, anew);
    this.#drawMedians(anew);
    this.#meterMicrophone();
    this.wakeLock.want(assistant.isHandsFree);
    if (shown === "off") this.ribbon.connect("output", null);
  }

  #drawQuality() {
    this.network.show(this.assistant.quality, this.assistant.connection.state === "open");
  }

  #drawMicrophone(shown, { pushToTalk, isHeard }) {
    const mic = byId("mic");
    const isOn = this.assistant.microphone.isOpen && shown !== "off";
    const name = MIC_ICONS[shown] ?? (isOn && !pushToTalk ? "stop" : "mic");
    if (mic.dataset.icon !== name) {
      mic.dataset.icon = name;
      mic.replaceChildren(icon(name));
    }
    mic.setAttribute("aria-label", t(pushToTalk ? "mic_hold" : isOn ? "mic_stop" : "mic_start"));
    mic.setAttribute("aria-pressed", String(pushToTalk ? this.assistant.held : isOn));
    mic.setAttribute("aria-disabled", String(!isHeard));
  }

  #drawMedians(anew) {
    const traces = tracesOf(this.assistant.conversation);
    const isSame =
      traces.length === this.measured?.length &&
      traces.every((trace, index) => trace === this.measured[index]);
    if (!anew && isSame) return;
    this.measured = traces;
    const values = medians(this.assistant.conversation);
    byId("medians").replaceChildren(medianTable(values));
    setText(
      byId("medians-count"),
      values.count ? t(values.count === 1 ? "turn_count" : "turns_count", { n: values.count }) : "",
    );
  }

  #hint(state) {
    if (this.assistant.held) return "hint_held";
    if (state === "speaking") return "hint_speaking";
    if (state === "asleep") return "hint_asleep";
    if (this.choices.pushToTalk) return "hint_ptt";
    if (state === "off") return "hint_off";
    return this.assistant.microphone.isOpen ? "hint_on" : "hint_ready";
  }

  #meterMicrophone() {
    const { stream } = this.assistant.microphone;
    if (stream === this.metered) return;
    this.metered = stream;
    this.ribbon.connect("input", stream ? new Meter(this.voice.context(), stream) : null);
  }
}

const connectionWord = (state) => (state === "idle" ? "off" : state);

takeKey();
new Page().load();
