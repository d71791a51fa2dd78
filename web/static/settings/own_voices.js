// Voices of one's own: record or choose a recording, hear it, agree, save; hear a voice, delete it.

import { getJson, request } from "../server/api.js";
import { h } from "../view/keyed.js";
import { languageName, t } from "../words/translate.js";
import { button, noteLine } from "./panel.js";
import { samplePath } from "./voice_list.js";
import { canRecord, VoiceTake } from "./voice_take.js";

/**
 * @typedef {{ id: string, name: string, language: string }} OwnVoice
 * @typedef {{ voices: OwnVoice[], languages: string[], consent: string, min_recording_s: number,
 *   max_recording_s: number }} OwnVoices
 * @typedef {{ file: Blob, sound: AudioBuffer }} Recording
 */

const VOICES = "/v1/audio/voices";
const ANSWER_MS = 120_000; // the engine may have to load first

export class OwnVoicesPanel {
  /** @type {OwnVoices | null} null: the server makes no voices */
  #own = null;
  /** @type {VoiceTake | null} while it records */
  #take = null;
  /** @type {Recording | null} of the voice that is not saved yet */
  #recording = null;
  /** @type {AudioBufferSourceNode | null} */
  #playing = null;
  /** Id of the voice that the user is asked about; empty: none. */
  #asked = "";
  /** @type {{ text: string, isBad: boolean } | null} */
  #note = null;
  #isBusy = false;
  #lengthS = 0; // of the recording that goes on: its pieces come every second

  /**
   * @param {object} parts
   * @param {() => AudioContext} parts.audio returns the page's AudioContext
   * @param {() => string} parts.microphone returns the id of the microphone; empty: the system's choice
   * @param {(path: string) => void} parts.hear plays a sound file of the server
   * @param {() => void} parts.onChange called when the panel must be drawn again
   * @param {() => void} parts.onVoices called when the server has other voices
   */
  constructor({ audio, microphone, hear, onChange, onVoices }) {
    this.audio = audio;
    this.microphone = microphone;
    this.hear = hear;
    this.onChange = onChange;
    this.onVoices = onVoices;
  }

  /** Asks for the voices. A server that makes none says so. */
  async load() {
    try {
      this.#own = await getJson(`${VOICES}/own`);
    } catch {
      this.#own = null;
    }
    this.onChange();
  }

  /** Forgets a recording that is not saved: the dialog is closed. */
  close() {
    this.#take?.cancel();
    this.#playing?.stop();
    this.#take = this.#recording = this.#playing = this.#note = null;
    this.#asked = "";
  }

  panel() {
    const own = this.#own;
    if (!own) return null;
    const rows = own.voices.map((voice) => this.#row(voice));
    return h(
      "details",
      { key: "own-voices", class: "setting-group", "data-testid": "own-voices" },
      h("summary", {}, t("own")),
      h("p", { class: "setting-help" }, t("own_help")),
      h(
        "ul",
        { class: "recognisers", "aria-label": t("own") },
        ...(rows.length ? rows : [h("li", { key: "none" }, t("people_none"))]),
      ),
      this.#recording ? this.#form(own, this.#recording) : this.#start(own),
      noteLine(this.#note, "own-note"),
    );
  }

  /** @param {OwnVoice} voice */
  #row({ id, name, language }) {
    const actions =
      this.#asked === id
        ? [
            t("own_sure", { name }),
            button("keep", "own-keep", () => this.#ask("")),
            button("own_delete", "own-delete-sure", () => this.#delete(id)),
          ]
        : [
            button("set_hear", "own-hear", () => this.hear(samplePath(id, 1))),
            button("own_delete", "own-delete", () => this.#ask(id)),
          ];
    const props = { key: id, "data-testid": "own-voice", "data-name": name };
    const facts = h("span", { class: "setting-help" }, languageName(language));
    return h("li", props, h("strong", {}, name), facts, ...actions);
  }

  /** @param {OwnVoices} own */
  #start(own) {
    const isRecording = this.#take !== null;
    const limits = { min: own.min_recording_s, max: own.max_recording_s };
    return h(
      "div",
      { key: "start", class: "person-recording" },
      h("p", {}, t("own_read", limits)),
      h("blockquote", {}, t("people_sentences").join(" ")),
      h(
        "div",
        { class: "person-form" },
        ...(canRecord()
          ? [
              h(
                "button",
                {
                  key: "record",
                  type: "button",
                  class: "strong",
                  "aria-disabled": String(this.#isBusy),
                  "data-testid": "own-record",
                  click: () => this.#isBusy || (isRecording ? this.#stop() : this.#record(own)),
                },
                t(isRecording ? "people_stop" : "people_record"),
              ),
            ]
          : []),
        isRecording ? h("span", { key: "so-far" }, t("own_so_far", { n: this.#lengthS })) : null,
        h("label", { key: "file-label", for: "own-file" }, t("own_file")),
        h("input", {
          key: "file",
          id: "own-file",
          type: "file",
          accept: "audio/*",
          disabled: isRecording,
          "data-testid": "own-file",
          change: (/** @type {Event} */ event) => {
            const [file] = /** @type {HTMLInputElement} */ (event.target).files ?? [];
            if (file) this.#keep(file);
          },
        }),
      ),
    );
  }

  /**
   * @param {OwnVoices} own
   * @param {Recording} recording
   */
  #form(own, recording) {
    const length = recording.sound.duration.toFixed(1);
    return h(
      "div",
      { key: "form", class: "person-recording" },
      h(
        "div",
        { class: "person-form" },
        h("span", {}, t("own_length", { n: length })),
        button("set_hear", "own-listen", () => this.#play(recording.sound)),
        button("own_again", "own-again", () => {
          this.close();
          this.onChange();
        }),
      ),
      h(
        "div",
        { class: "person-form" },
        h("label", { for: "own-name" }, t("people_name")),
        h("input", {
          id: "own-name",
          type: "text",
          maxlength: "32",
          pattern: "[A-Za-z0-9_\\-]+",
          title: t("own_name_rule"),
          autocomplete: "off",
          "data-testid": "own-name",
        }),
        h("label", { for: "own-language" }, t("st_language")),
        h(
          "select",
          { id: "own-language", "data-testid": "own-language" },
          ...own.languages.map((code) =>
            h("option", { key: code, value: code }, languageName(code)),
          ),
        ),
      ),
      h(
        "label",
        { class: "own-consent" },
        h("input", { id: "own-consent", type: "checkbox", "data-testid": "own-consent" }),
        h("span", { lang: "en" }, own.consent),
      ),
      h(
        "button",
        {
          type: "button",
          class: "strong",
          "aria-disabled": String(this.#isBusy),
          "data-testid": "own-save",
          click: () => this.#isBusy || this.#save(own, recording),
        },
        t("own_save"),
      ),
    );
  }

  /** @param {OwnVoices} own */
  async #record(own) {
    this.#note = null;
    this.#lengthS = 0;
    /** @type {VoiceTake} */
    const take = new VoiceTake(this.audio, this.microphone(), () => {
      if (this.#take !== take) return;
      this.#lengthS += 1;
      if (this.#lengthS + 1 >= own.max_recording_s) this.#stop();
      this.onChange();
    });
    this.#isBusy = true;
    this.onChange();
    try {
      await take.start();
      this.#take = take;
    } catch (/** @type {any} */ error) {
      this.#say(t(`m_${error.code}`), true);
    }
    this.#isBusy = false;
    this.onChange();
  }

  async #stop() {
    const take = this.#take;
    this.#take = null;
    if (take) await this.#keep(await take.stop());
  }

  /** Takes a recording, which is heard before it is saved. @param {Blob} file */
  async #keep(file) {
    this.#note = null;
    try {
      const sound = await this.audio().decodeAudioData(await file.arrayBuffer());
      this.#recording = { file, sound };
    } catch {
      this.#say(t("own_no_sound"), true);
    }
    this.onChange();
    document.getElementById("own-name")?.focus();
  }

  /** @param {AudioBuffer} sound */
  #play(sound) {
    this.#playing?.stop();
    const context = this.audio();
    const source = context.createBufferSource();
    source.buffer = sound;
    source.connect(context.destination);
    source.start();
    this.#playing = source;
  }

  /**
   * @param {OwnVoices} own
   * @param {Recording} recording
   */
  async #save(own, { file }) {
    const [name, consent] = [input("own-name"), input("own-consent")];
    if (!name.value.trim() || !name.checkValidity()) {
      this.#say(t("own_name_rule"), true);
      name.focus();
      return;
    }
    if (!consent.checked) {
      this.#say(t("own_consent_missing"), true);
      consent.focus();
      return;
    }
    const body = new FormData();
    body.set("name", name.value.trim());
    body.set("language", input("own-language").value);
    body.set("consent", own.consent);
    body.set("audio_sample", file, "voice");
    await this.#do(async () => {
      await request(VOICES, { method: "POST", body, limitMs: ANSWER_MS });
      this.close();
      this.#say(t("own_saved", { name: name.value.trim() }));
    });
  }

  /** @param {string} id */
  #ask(id) {
    this.#asked = id;
    this.#note = null;
    this.onChange();
  }

  /** @param {string} id */
  #delete(id) {
    return this.#do(async () => {
      const path = id.split("/").map(encodeURIComponent).join("/");
      await request(`${VOICES}/${path}`, { method: "DELETE" });
      this.#asked = "";
    });
  }

  /** Changes the voices, then loads them again. @param {() => Promise<void>} act */
  async #do(act) {
    this.#isBusy = true;
    this.#note = null;
    this.onChange();
    try {
      await act();
      this.onVoices();
    } catch (/** @type {any} */ error) {
      this.#say(t("d_failed", { reason: error.message || error.code }), true);
    }
    this.#isBusy = false;
    await this.load();
  }

  /**
   * @param {string} text
   * @param {boolean} isBad
   */
  #say(text, isBad = false) {
    this.#note = { text, isBad };
    this.onChange();
  }
}

/** @param {string} id @returns {HTMLInputElement} */
const input = (id) => /** @type {HTMLInputElement} */ (document.getElementById(id));
