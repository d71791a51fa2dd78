// The studio: a person types a text, chooses a voice, hears the text, and saves its sound.

import { SampleVoice } from "../settings/sample_voice.js";
import { samplePath, VoiceList } from "../settings/voice_list.js";
import { byId, h, update } from "../view/keyed.js";
import { save } from "../view/saving.js";
import { formatNumber, t } from "../words/translate.js";
import { idOf, languageField, listedField, speedField, textField, voiceField } from "./fields.js";
import { againText, measured, refusal, stateText } from "./outcome.js";
import { Reading } from "./reading.js";
import { RATE_HZ } from "./sound.js";
import { Waveform } from "./waveform.js";

/**
 * @typedef {import("../settings/voice_list.js").Voice} Voice
 * @typedef {import("./fields.js").FieldName} FieldName
 * @typedef {AudioContext & { setSinkId?: (id: string) => Promise<void> }} Context
 */

const PATH = "/studio";
const DEFAULT = "default"; // the voice that the server chooses
const MAX_CHARS = 4096; // the server's limit for the text of a request

export class StudioView {
  #voices = new VoiceList();
  #text = "";
  /** Language whose voices are listed; empty: all. Null: not chosen yet. @type {string | null} */
  #listed = null;
  #voice = DEFAULT;
  /** Language of the text, as the user chose it; empty: not chosen. */
  #language = "";
  #speed = 1;
  /** What is wrong, by field. @type {Partial<Record<FieldName, string>>} */
  #problems = {};
  /** What is wrong and concerns no field. */
  #failure = "";
  /** @type {Reading | null} */
  #reading = null;
  /** @type {Context | null} */
  #context = null;

  /**
   * @param {import("../app.js").PageStore} store
   * @param {import("../router.js").Router} router
   */
  constructor(store, router) {
    this.store = store;
    this.dialog = /** @type {HTMLDialogElement} */ (byId("studio"));
    this.waveform = new Waveform(byId("studio-wave"));
    this.sample = new SampleVoice(
      () => this.#audio(),
      () => store.state.choices.speaker,
      (error) => this.#refused(error),
    );
    update(byId("studio-open"), { click: () => router.go(PATH) });
    update(byId("studio-close"), { click: () => this.dialog.close() });
    update(byId("studio-form"), {
      submit: (/** @type {Event} */ event) => {
        event.preventDefault();
        if (this.#isBusy) this.#reading?.stop();
        else this.#speak();
      },
    });
    this.dialog.addEventListener("close", () => {
      this.#silence();
      router.leave();
    });
    store.watch(["language"], () => this.#draw());
    store.watch(["path"], ({ path }) => {
      const isOpen = path === PATH;
      if (isOpen && !this.dialog.open) {
        this.dialog.showModal();
        this.#load();
      }
      if (!isOpen && this.dialog.open) this.dialog.close();
    });
  }

  get #isBusy() {
    return this.#reading !== null && !this.#reading.isOver;
  }

  /** The voices in the chosen language. The server's own choice speaks every language. */
  get #shown() {
    const all = this.#voices.all();
    return all.filter(({ languages }) => !this.#listed || languages.includes(this.#listed));
  }

  /** Languages of the chosen voice. */
  get #spoken() {
    return this.#voices.all().find(({ id }) => id === this.#voice)?.languages ?? [];
  }

  /** Language of the text for the request; empty: that of the voice, or the server looks at the text. */
  get #textLanguage() {
    const spoken = this.#spoken;
    if (spoken.length < 2) return "";
    if (spoken.includes(this.#language)) return this.#language;
    if (this.#voice === DEFAULT) return "";
    return this.#listed && spoken.includes(this.#listed) ? this.#listed : spoken[0];
  }

  async #load() {
    try {
      await this.#voices.load();
      const spoken = this.#voices.all().flatMap(({ languages }) => languages);
      const { language } = this.store.state.choices;
      this.#listed ??= spoken.includes(language) ? language : "";
      this.#keepShownVoice();
    } catch (error) {
      this.#problems.voice ??= refusal(error).text;
    }
    this.#draw();
  }

  #draw() {
    this.#drawText();
    this.#drawVoices();
    this.#drawSound();
  }

  #drawText() {
    const change = (/** @type {string} */ text) => {
      this.#text = text;
      delete this.#problems.text;
      this.#drawText();
    };
    const shown = { chars: this.#chars, most: MAX_CHARS, problem: this.#problems.text, change };
    update(byId("studio-text"), {}, textField(shown));
  }

  #drawVoices() {
    const problems = this.#problems;
    const actions = {
      choose: (/** @type {string} */ id) => this.#change({ voice: id }),
      hear: (/** @type {string} */ id) => this.#hear(id),
    };
    const shown = { chosen: this.#voice, namesLanguage: !this.#listed };
    update(byId("studio-voices"), {}, [
      ...listedField(this.#voices.all(), this.#listed ?? "", (listed) => this.#change({ listed })),
      ...voiceField(this.#shown, shown, actions, problems.voice),
    ]);
    const spoken = this.#spoken;
    const isDefault = this.#voice === DEFAULT;
    const choose = (/** @type {string} */ language) => this.#change({ language });
    update(byId("studio-manner"), {}, [
      spoken.length > 1 &&
        languageField(spoken, this.#textLanguage, isDefault, choose, problems.language),
      speedField(this.#speed, (speed) => this.#change({ speed }), problems.speed),
    ]);
  }

  /** Draws what becomes of the text. */
  #drawSound() {
    const reading = this.#reading;
    const speak = { key: "speak", type: "submit", class: "strong", "data-testid": "studio-speak" };
    const click = () => reading && save("wav", "audio/wav", reading.sound.wav());
    const download = { type: "button", class: "quiet", "data-testid": "studio-save", click };
    update(byId("studio-buttons"), {}, [
      h("button", speak, t(this.#isBusy ? "st_stop" : "st_speak")),
      reading?.isWhole && h("button", { key: "save", ...download }, t("save_sound")),
    ]);
    const text = this.#failure || (reading && stateText(reading)) || "";
    update(byId("studio-state"), { "data-bad": String(this.#failure !== "") }, [text]);
    update(byId("studio-again"), {}, [reading && againText(reading)]);
    update(byId("studio-marks"), {}, reading ? measured(reading) : []);
  }

  /**
   * Notes what the user chose.
   *
   * @param {{ listed?: string, voice?: string, language?: string, speed?: number }} changes
   */
  #change({ listed, voice, language, speed }) {
    this.#listed = listed ?? this.#listed;
    this.#voice = voice ?? this.#voice;
    this.#language = language ?? this.#language;
    this.#speed = speed ?? this.#speed;
    this.#problems = { text: this.#problems.text };
    this.#keepShownVoice();
    this.#drawVoices();
  }

  /** Leaves the choice to the server if the chosen voice is not in the list. */
  #keepShownVoice() {
    if (!this.#shown.some(({ id }) => id === this.#voice)) this.#voice = DEFAULT;
  }

  /** Number of characters as the server counts them. */
  get #chars() {
    return [...this.#text].length;
  }

  async #speak() {
    this.#silence();
    [this.#problems, this.#failure] = [{}, ""];
    const text = this.#problemOfText();
    if (text) {
      this.#refusedField("text", text);
      return;
    }
    const context = this.#audio();
    const language = this.#textLanguage;
    const wanted = { input: this.#text, voice: this.#voice, speed: this.#speed };
    const reading = new Reading(context, { ...wanted, ...(language && { language }) }, () =>
      this.#changed(reading),
    );
    this.#reading = reading;
    this.waveform.show(reading);
    this.#draw();
    // Without the chosen speaker, as in Firefox, the system's is heard.
    await context.setSinkId?.(this.store.state.choices.speaker).catch(() => undefined);
    await reading.run();
  }

  #problemOfText() {
    const values = { n: formatNumber(this.#chars), most: formatNumber(MAX_CHARS) };
    if (this.#chars > MAX_CHARS) return t("st_too_long", values);
    return this.#text.trim() ? "" : t("st_empty");
  }

  /** @param {Reading} reading */
  #changed(reading) {
    if (reading !== this.#reading) return;
    if (reading.isOver) this.#context?.suspend(); // silence, too, takes processor time
    if (reading.error) this.#refused(reading.error, reading.firstMs !== null);
    else this.#drawSound();
  }

  /** Lets a voice say its sentence. @param {string} id */
  #hear(id) {
    this.#silence();
    this.#failure = "";
    this.#change({ voice: id });
    return this.sample.hear(samplePath(id, this.#speed, this.#textLanguage));
  }

  /**
   * Shows why something was refused, beside its field if there is one.
   *
   * @param {any} error
   * @param {boolean} [hasBegun] whether sound had come before
   */
  async #refused(error, hasBegun) {
    const { field, text } = refusal(error, hasBegun);
    if (error.code === "voice_not_found") await this.#load();
    if (field) {
      this.#refusedField(field, text);
      return;
    }
    this.#failure = text;
    this.#draw();
  }

  /**
   * @param {FieldName} field
   * @param {string} text
   */
  #refusedField(field, text) {
    this.#problems[field] = text;
    this.#draw();
    document.getElementById(idOf(field))?.focus();
  }

  /** Ends all sound. */
  #silence() {
    this.#reading?.stop();
    this.sample.stop();
    this.#context?.suspend();
  }

  /** Returns the studio's own AudioContext: pieces of sound meet without a seam at their own rate. */
  #audio() {
    this.#context ??= new AudioContext({ sampleRate: RATE_HZ });
    this.#context.resume().catch(() => undefined); // not allowed yet; the next click tries again
    return this.#context;
  }
}
