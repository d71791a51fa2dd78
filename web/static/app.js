// Starts the page: one store, the parts that fill it, and the views that show it.

import { Speaker } from "./call/speaker.js";
import { emptyQuality } from "./call/quality.js";
import { Assistant, storedConversation } from "./conversation/assistant.js";
import { ConversationMenu } from "./conversation/conversation_menu.js";
import { KeptConversations } from "./conversation/kept_conversations.js";
import { Controls } from "./conversation/controls.js";
import { Dock } from "./conversation/dock.js";
import { MediansPanel } from "./conversation/medians_panel.js";
import { Messages } from "./conversation/messages.js";
import { Turns } from "./conversation/turns.js";
import { VolumeControl } from "./conversation/volume.js";
import { DevicesFeed } from "./devices/devices_feed.js";
import { DevicesView } from "./devices/devices.js";
import { CallQuality } from "./header/call_quality.js";
import { Header } from "./header/header.js";
import { HomeButtons } from "./home/home_buttons.js";
import { HomeFeed } from "./home/home_feed.js";
import { HomeView } from "./home/home.js";
import { KeysView } from "./keys/keys.js";
import { KioskView } from "./kiosk/kiosk.js";
import { Router } from "./router.js";
import { getJson } from "./server/api.js";
import { takeKey } from "./server/key.js";
import { Downloads } from "./server/downloads.js";
import { SettingsView } from "./settings/settings.js";
import { Choices } from "./state/choices.js";
import { Store } from "./state/store.js";
import { StudioView } from "./studio/studio.js";
import { byId } from "./view/keyed.js";
import { scrollableByKeyboard } from "./view/scrolling.js";
import { speakLanguage } from "./words/translate.js";

/**
 * @typedef {object} PageState
 * @property {string} path of the open view
 * @property {string} language of the page's words; the spoken one is in `choices`
 * @property {Choices} choices
 * @property {import("./home/home.js").Home | null} home null: not received yet
 * @property {boolean | null} isHomeLive whether changes of the home arrive; null: not connected yet
 * @property {import("./devices/devices.js").Device[] | null} devices null: the server sent none
 * @property {import("./server/downloads.js").DownloadsReport | null} downloads null: the server sent none
 * @property {boolean} areDevicesLive whether changes of the devices arrive
 * @property {import("./conversation/reducer.js").Conversation} conversation
 * @property {import("./call/quality.js").Quality} quality of the call
 * @property {import("./call/connection.js").ConnectionState} connection
 * @property {MediaStream | null} microphone
 * @property {boolean} isMuted whether the system silences the microphone
 * @property {boolean} isSilenced whether the user muted the microphone
 * @property {boolean} isHeld whether the user holds the button, in push-to-talk
 */

/** @typedef {Store<PageState>} PageStore */

// These messages also say that the server is lost, and more precisely than `gone`, so it does not replace
// them.
const MORE_PRECISE = new Set(["lost", "unreachable", "key"]);

/** The parts of the page, and the store over which they learn from each other. */
class Page {
  constructor() {
    const choices = Choices.stored();
    /** @type {PageState} */
    const state = {
      path: "/",
      language: choices.shownLanguage,
      choices,
      home: null,
      isHomeLive: null,
      devices: null,
      downloads: null,
      areDevicesLive: false,
      conversation: storedConversation(),
      quality: emptyQuality(),
      connection: "idle",
      microphone: null,
      isMuted: false,
      isSilenced: false,
      isHeld: false,
    };
    const store = new Store(state);
    this.store = store;
    // This is the first watcher, because the others use the language that it sets.
    store.watch(["language"], ({ language }) => speakLanguage(language));
    this.messages = new Messages({
      retry: () => this.assistant.retry(),
      hear: () => this.speaker.play(),
      useKey: () => this.load(),
    });
    store.watch(["language"], () => this.messages.draw());
    this.speaker = new Speaker(/** @type {HTMLAudioElement} */ (byId("voice")), {
      onBlocked: () => this.messages.show("autoplay"),
      onFailed: (reason) => this.messages.show("error", { reason }),
      onPlaying: () => this.messages.clear("autoplay"),
      onStream: (stream) => {
        this.dock.meterAnswer(stream);
        this.menu.hear(stream);
      },
    });
    this.assistant = new Assistant(store, {
      speaker: this.speaker,
      onProblem: (code, details) => this.messages.show(code, details),
      onSolved: (...codes) => this.messages.clear(...codes),
    });
    this.downloads = new Downloads(store, {
      onDone: (model) => this.#useRecogniser(model),
      onRefused: (error) => this.#onRefused(error),
    });
    this.dock = new Dock(store, this.speaker, {
      write: (text) => this.assistant.write(text),
      downloads: this.downloads,
    });
    new VolumeControl(store, this.speaker, (volume) =>
      this.#setChoices(store.state.choices.with({ volume })),
    );
    this.menu = new ConversationMenu(store, this.speaker, {
      keep: (keepsConversation) => {
        this.#setChoices(store.state.choices.with({ keepsConversation }));
        this.assistant.keep();
      },
      remove: () => this.assistant.deleteAll(),
    });
    new KeptConversations(store, {
      keep: (keepsOnServer) => this.#setChoices(store.state.choices.with({ keepsOnServer })),
      open: (conversation) => this.assistant.take(conversation),
      remove: () => this.assistant.deleteAll(),
    });
    this.homeFeed = new HomeFeed(store, {
      onKeyWanted: () => this.messages.show("key"),
      onGone: () => this.#onServerLost(),
      onBack: () => this.#onServerFound(),
    });
    this.devicesFeed = new DevicesFeed(store);
    this.#showViews();
    // The browser may show a kept page again. Its streams ended when the user left it.
    addEventListener("pageshow", ({ persisted }) => persisted && this.load());
  }

  #showViews() {
    const { store } = this;
    new Header(store, (changes) => this.#choose(changes));
    new CallQuality(store);
    new HomeView(store, new HomeButtons((error) => this.#onRefused(error)));
    const router = new Router(store);
    new DevicesView(store, this.devicesFeed, router);
    new KioskView(store, router, () => this.assistant.toggle());
    new KeysView(store, router);
    new StudioView(store, router);
    this.settings = new SettingsView(store, router, {
      choose: (changes) => this.#choose(changes),
      audio: () => this.speaker.context(),
      downloads: this.downloads,
    });
    this.assistant.useDevices();
    new Controls(store, this.assistant);
    scrollableByKeyboard(byId("side"));
    const turns = new Turns();
    const medians = new MediansPanel();
    store.watch(["conversation", "language"], ({ conversation, language }) => {
      turns.show(conversation, language);
      medians.show(conversation, language);
    });
  }

  /** Loads the server's data. Called again after the user entered a key. */
  async load() {
    this.homeFeed.watch(this.store.state.choices.language);
    this.devicesFeed.watch();
    this.settings?.load();
    this.downloads.look();
    await this.#loadEngines();
  }

  /** Takes a recogniser that was just fetched, if the present one does not hear the language. @param {string} model */
  async #useRecogniser(model) {
    const wasHeard = this.store.state.choices.isHeard;
    await this.#loadEngines();
    const fetched = this.store.state.choices
      .usable("asr")
      .find(({ name, model: offer }) => name === model || offer?.aliases.includes(model));
    if (fetched && !wasHeard) this.#choose({ asr: fetched.name });
  }

  /** Loads which engines the server offers, and corrects the choices accordingly. */
  async #loadEngines() {
    try {
      const engines = await getJson("/earshot/engines");
      this.#setChoices(this.store.state.choices.offered(engines));
    } catch (/** @type {any} */ error) {
      if (error.status === 403) this.messages.show("error", { reason: error.message });
      else this.messages.show(error.status === 401 ? "key" : "unreachable");
    }
  }

  /** Stores what the user chose, and applies it to the running session. @param {Partial<Choices>} changes */
  #choose(changes) {
    this.#setChoices(this.store.state.choices.with(changes));
    // A running session can change most settings. The others need a new call.
    if ("microphone" in changes || "speaker" in changes) this.assistant.useDevices();
    else if ("llm" in changes || "wakeWord" in changes) this.assistant.redial();
    else if (!("theme" in changes || "pageLanguage" in changes)) this.assistant.updateSession();
  }

  /** Puts the choices into the store. The home is loaded again in a new language. @param {Choices} choices */
  #setChoices(choices) {
    const isOtherLanguage = choices.language !== this.store.state.choices.language;
    this.store.set({ choices, language: choices.shownLanguage });
    // Rooms and lamps have their names in the language in which the user asks for them.
    if (isOtherLanguage) this.homeFeed.watch(choices.language);
  }

  /** @param {import("./server/api.js").Refused} error of a click on the home */
  #onRefused({ status, code, message }) {
    if (status === 401) this.messages.show("key");
    else if (code === "unreachable") this.messages.show("unreachable");
    else this.messages.show("error", { reason: message });
  }

  /** The server's port is closed, or nothing answers there. */
  #onServerLost() {
    this.assistant.connection.endIfSilent();
    if (!MORE_PRECISE.has(this.messages.shown?.code ?? "")) this.messages.show("gone");
  }

  /** The server answers again. It may have been restarted with other engines. */
  #onServerFound() {
    this.messages.clear("gone", "unreachable");
    this.assistant.connection.hurry();
    this.devicesFeed.watch();
    this.#loadEngines();
  }
}

takeKey();
new Page().load();
