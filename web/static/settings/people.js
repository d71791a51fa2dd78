// People whose voices the server knows: learn a voice by three sentences, try it, rename, forget.

import { getJson, request } from "../server/api.js";
import { h } from "../view/keyed.js";
import { t } from "../words/translate.js";
import { button, noteLine } from "./panel.js";
import { canRecord, VoiceTake } from "./voice_take.js";

/**
 * @typedef {{
 *   id: string, name: string, samples: number, must_teach_again?: boolean,
 *   profile: { follow_voice: boolean }, telephone_numbers: string[],
 * }} Person
 * @typedef {{ speech_ms: number, level_dbfs: number, snr_db: number }} Quality
 * @typedef {{ kind: "learn" | "try", name: string, step: number }} Task what the voice is wanted for;
 *   `step`: number of the sentence, from 0
 * @typedef {{ kind: "rename" | "numbers" | "remove", id: string }} Question
 */

const API = "/v1/speakers";
const ANSWER_MS = 60_000; // the first recording may have to wait until the model is loaded
const LEARNING_MINUTES = 5; // `people_allowed` names them
const ENOUGH_MS = 2_000; // speech in a recording that the server learns from

export class PeoplePanel {
  /** @type {Person[] | null} null: the server knows no voices at all */
  #people = null;
  /** @type {Task | null} */
  #task = null;
  /** @type {VoiceTake | null} while it records */
  #take = null;
  /** @type {Quality | null} of the recording so far */
  #quality = null;
  /** @type {Question | null} */
  #question = null;
  /** @type {{ text: string, isBad: boolean } | null} */
  #note = null;
  #isBusy = false;
  #isJudging = false;

  /**
   * @param {object} parts
   * @param {() => AudioContext} parts.audio returns the page's AudioContext
   * @param {() => string} parts.microphone returns the id of the microphone; empty: the system's choice
   * @param {() => void} parts.onChange called when the panel must be drawn again
   */
  constructor({ audio, microphone, onChange }) {
    this.audio = audio;
    this.microphone = microphone;
    this.onChange = onChange;
  }

  /** Asks for the people. A server without voices has no such path. */
  async load() {
    try {
      this.#people = (await getJson(API)).speakers;
    } catch {
      this.#people = null;
    }
    this.onChange();
  }

  /** Stops a recording: the dialog is closed. */
  close() {
    this.#take?.cancel();
    this.#take = this.#task = this.#quality = this.#question = this.#note = null;
  }

  panel() {
    if (!this.#people) return null;
    const rows = this.#people.map((person) => this.#row(person));
    return h(
      "details",
      { key: "people", class: "setting-group", "data-testid": "people" },
      h("summary", {}, t("people")),
      h("p", { class: "setting-help" }, t("people_help")),
      h(
        "ul",
        { class: "recognisers", "aria-label": t("people") },
        ...(rows.length ? rows : [h("li", { key: "none" }, t("people_none"))]),
      ),
      this.#task ? this.#recording(this.#task) : this.#start(),
      noteLine(this.#note, "people-note"),
    );
  }

  /** @param {Person} person */
  #row(person) {
    const { id, name, samples, profile, must_teach_again, telephone_numbers: numbers } = person;
    const follow = { profile: { follow_voice: !profile.follow_voice } };
    const again = must_teach_again ? ` ${t("people_again")}` : "";
    const recordings = t("people_recordings", { n: samples });
    const known = [`${recordings}${again && "."}${again}`, ...numbers].join(" · ");
    const facts = h("span", { class: "setting-help" }, known);
    const asked = this.#question?.id === id ? this.#question.kind : null;
    const actions = asked
      ? [this.#form(asked, person)]
      : [
          button("people_more", "person-more", () => this.#begin("learn", name)),
          button(profile.follow_voice ? "people_unfollow" : "people_follow", "person-follow", () =>
            this.#do(() => change(id, "PATCH", follow)),
          ),
          button("people_rename", "person-rename", () => this.#ask({ kind: "rename", id })),
          button("people_numbers", "person-numbers", () => this.#ask({ kind: "numbers", id })),
          button("people_delete", "person-delete", () => this.#ask({ kind: "remove", id })),
        ];
    const props = { key: id, "data-testid": "person", "data-name": name };
    return h("li", props, h("strong", {}, name), facts, ...(this.#task ? [] : actions));
  }

  /** @param {Question["kind"]} kind @param {Person} person */
  #form(kind, person) {
    const { id, name, telephone_numbers: numbers } = person;
    switch (kind) {
      case "rename":
        return this.#editing(kind, person, t("people_name"), nameField, name, (text) =>
          change(id, "PATCH", { name: text }),
        );
      case "numbers":
        return this.#editing(
          kind,
          person,
          t("people_numbers_label"),
          textField,
          numbers.join(", "),
          (text) => {
            const given = text.split(",").map((one) => one.trim());
            const body = { telephone_numbers: given.filter(Boolean) };
            return change(id, "PUT", body, "/telephone_numbers");
          },
        );
      case "remove":
        return this.#removing(person);
    }
  }

  /**
   * @param {string} kind
   * @param {Person} person
   * @param {string} label
   * @param {typeof textField} input returns the props of the field
   * @param {string} value
   * @param {(text: string) => Promise<unknown>} act saves the text
   */
  #editing(kind, { id }, label, input, value, act) {
    const field = `person-${kind}-${id}`;
    const save = () => {
      const { value: text } = /** @type {HTMLInputElement} */ (document.getElementById(field));
      this.#do(() => act(text.trim()));
    };
    return h(
      "span",
      { key: kind, class: "person-form" },
      h("label", { for: field }, label),
      h("input", { ...input(save), id: field, value, "data-testid": `person-${kind}-text` }),
      button("d_save", `person-${kind}-save`, save, "strong"),
      button("d_cancel", "person-cancel", () => this.#ask(null)),
    );
  }

  /** @param {Person} person */
  #removing({ id, name }) {
    const group = { role: "group", "aria-label": t("people_delete") };
    return h(
      "span",
      { key: "remove", class: "person-form", ...group },
      t("people_sure", { name }),
      button("keep", "person-cancel", () => this.#ask(null)),
      button("people_delete", "person-delete-sure", () => this.#do(() => change(id, "DELETE"))),
    );
  }

  #start() {
    if (!canRecord()) return null;
    const learn = () => {
      const input = /** @type {HTMLInputElement} */ (document.getElementById("person-name"));
      const name = input.value.trim();
      if (name) this.#begin("learn", name);
      else input.focus();
    };
    return h(
      "div",
      { key: "start", class: "person-form" },
      h("label", { for: "person-name" }, t("people_name")),
      h("input", { ...nameField(learn), id: "person-name", "data-testid": "person-name" }),
      button("people_learn", "person-learn", learn, "strong"),
      button("people_try", "person-try", () => this.#begin("try", "")),
      button("people_allow", "people-allow", () => this.#allow()),
    );
  }

  /** Lets the assistant learn voices in conversations, for some minutes. */
  async #allow() {
    try {
      await change("learning", "POST", { minutes: LEARNING_MINUTES });
      this.#say(t("people_allowed"));
    } catch (error) {
      this.#refused(error);
    }
  }

  /** @param {Task} task */
  #recording({ kind, name, step }) {
    const sentences = t("people_sentences");
    const isRecording = this.#take !== null;
    const text =
      kind === "try"
        ? [h("p", {}, t("people_say"))]
        : [
            h("p", {}, t("people_read", { name, n: step + 1, all: sentences.length })),
            h("blockquote", { "data-testid": "person-sentence" }, sentences[step]),
          ];
    return h(
      "div",
      { key: "recording", class: "person-recording" },
      ...text,
      meters(this.#quality),
      h(
        "div",
        { class: "person-form" },
        h(
          "button",
          {
            key: "record",
            id: "person-record",
            type: "button",
            class: "strong",
            "aria-disabled": String(this.#isBusy), // a disabled button would lose the focus
            "data-testid": "person-record",
            click: () => this.#isBusy || (isRecording ? this.#finish() : this.#record()),
          },
          t(isRecording ? "people_stop" : "people_record"),
        ),
        button("d_cancel", "person-cancel", () => {
          this.close();
          this.onChange();
        }),
      ),
    );
  }

  /**
   * @param {Task["kind"]} kind
   * @param {string} name
   */
  #begin(kind, name) {
    this.close();
    this.#task = { kind, name, step: 0 };
    this.onChange();
    document.getElementById("person-record")?.focus();
  }

  /** @param {Question | null} question */
  #ask(question) {
    this.#question = question;
    this.#note = null;
    this.onChange();
    if (question) document.getElementById(`person-${question.kind}-${question.id}`)?.focus();
  }

  async #record() {
    const take = new VoiceTake(this.audio, this.microphone(), (soFar) => this.#judge(take, soFar));
    this.#quality = this.#note = null;
    this.#isBusy = true;
    this.onChange();
    try {
      await take.start();
      this.#take = take;
    } catch (/** @type {any} */ error) {
      this.#say(t(`m_${error.code}`), true);
    }
    this.#isBusy = false;
    if (!this.#task) take.cancel(); // the dialog was closed meanwhile
    this.onChange();
  }

  /** Shows the quality of a recording that goes on. @param {VoiceTake} take @param {Blob} soFar */
  async #judge(take, soFar) {
    if (this.#isJudging) return;
    this.#isJudging = true;
    try {
      const { quality } = await send(`${API}/try`, soFar);
      if (this.#take === take) this.#quality = quality;
    } catch {
      // It is only the meter. What matters is said when the recording ends.
    }
    this.#isJudging = false;
    this.onChange();
  }

  async #finish() {
    const [take, task] = [this.#take, this.#task];
    if (!take || !task) return;
    this.#take = null;
    this.#isBusy = true;
    this.onChange();
    try {
      const file = await take.stop();
      if (task.kind === "try") await this.#try(file);
      else await this.#learn(task, file);
    } catch (error) {
      this.#refused(error);
    }
    this.#isBusy = false;
    this.onChange();
  }

  /** @param {Blob} file */
  async #try(file) {
    const { speaker, quality } = await send(`${API}/try`, file);
    this.#quality = quality;
    const score = speaker?.score.toFixed(2);
    this.#say(speaker ? t("people_is", { name: speaker.name, score }) : t("people_guest"));
  }

  /**
   * @param {Task} task
   * @param {Blob} file
   */
  async #learn({ name, step }, file) {
    const { quality } = await send(API, file, name);
    this.#quality = quality;
    const isLast = step + 1 === t("people_sentences").length;
    this.#task = isLast ? null : { kind: "learn", name, step: step + 1 };
    this.#say(isLast ? t("people_learned", { name }) : t("people_next"));
    await this.load();
  }

  /** Changes a person, then loads the list again. @param {() => Promise<unknown>} act */
  async #do(act) {
    this.#note = null;
    try {
      await act();
      this.#question = null;
    } catch (error) {
      this.#refused(error);
    }
    await this.load();
  }

  /** @param {any} error */
  #refused(error) {
    this.#say(t("d_failed", { reason: error.message || error.code }), true);
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

/** Shows speech, level and noise of a recording. @param {Quality | null} quality */
function meters(quality) {
  const speech = quality ? quality.speech_ms / 1000 : 0;
  const bar = { min: "0", max: "5", low: "1.99", high: "2", optimum: "5" };
  const isEnough = quality !== null && quality.speech_ms >= ENOUGH_MS;
  const values = {
    speech: speech.toFixed(1),
    level: quality ? quality.level_dbfs.toFixed(0) : "–",
    snr: quality ? quality.snr_db.toFixed(0) : "–",
  };
  return h(
    "div",
    { key: "meters", class: "person-meters", "data-testid": "person-quality" },
    h("meter", { ...bar, value: String(Math.min(5, speech)), "aria-label": t("people_speech") }),
    h("span", { "data-enough": String(isEnough) }, t("people_quality", values)),
  );
}

/** Returns the props of a field for a name. @param {() => void} enter */
const nameField = (enter) => ({ ...textField(enter), maxlength: "40" });

/** Returns the props of a field. Enter would send the form around it. @param {() => void} enter */
const textField = (enter) => ({
  type: "text",
  maxlength: "200",
  autocomplete: "off",
  keydown: (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    enter();
  },
});

/**
 * @param {string} path
 * @param {Blob} file
 * @param {string} [name] of the person
 */
async function send(path, file, name) {
  const body = new FormData();
  if (name !== undefined) body.set("name", name);
  body.set("file", file, "voice");
  return (await request(path, { method: "POST", body, limitMs: ANSWER_MS })).json();
}

/**
 * @param {string} id
 * @param {"PATCH" | "PUT" | "DELETE" | "POST"} method
 * @param {object} [body]
 * @param {string} [part] path below the person
 */
const change = (id, method, body, part = "") =>
  request(`${API}/${encodeURIComponent(id)}${part}`, {
    method,
    ...(body && {
      body: JSON.stringify(body),
      headers: { "Content-Type": "application/json" },
    }),
  });
