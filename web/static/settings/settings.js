// The settings view: a form that the server describes, a preview of the change, and the save. The
// microphone and the speaker are settings of this browser.

import { getJson, request } from "../server/api.js";
import { icon } from "../view/icon.js";
import { byId, h, update } from "../view/keyed.js";
import { t } from "../words/translate.js";
import { browserFields, readDevices } from "./browser_devices.js";
import { HousePanel } from "./home_assistant.js";
import { ModelPanel } from "./language_model.js";
import { OwnVoicesPanel } from "./own_voices.js";
import { PeoplePanel } from "./people.js";
import { RestartPanel } from "./restart.js";
import { idOf, labelOf, settingField } from "./setting_field.js";
import { recogniserList, textModelList } from "./model_list.js";
import { SampleVoice } from "./sample_voice.js";
import { loadSettingTexts } from "./setting_texts.js";
import { samplePath, VoiceList } from "./voice_list.js";

/**
 * @typedef {import("./setting_field.js").Field} Field
 * @typedef {import("./setting_field.js").Value} Value
 * @typedef {{ key: string, message: string }} Problem
 * @typedef {{ file: string, etag: string, read_only: string, fields: Field[] }} Report
 * @typedef {{ etag: string, diff: string, problems: Problem[], applies: Record<string, string>,
 *   fields: Field[] }} Preview
 */

const PATH = "/settings";
const API = "/v1/settings";
const HOUSE = "home_assistant.url";
const VOICE = "assistant.voice";

export class SettingsView {
  /** @type {Report | null} as it is saved */
  #report = null;
  /** @type {Field[]} fields of the form: those of the report, or of the engine that was chosen since */
  #fields = [];
  /** @type {Map<string, Value>} changes that are not saved yet, by key */
  #changes = new Map();
  /** @type {Problem[]} */
  #problems = [];
  /** @type {Preview | null} the change that the user is asked to confirm */
  #preview = null;
  /** @type {{ text: string, isBad: boolean } | null} */
  #note = null;
  #voices = new VoiceList();

  /**
   * @param {import("../app.js").PageStore} store
   * @param {import("../router.js").Router} router
   * @param {object} parts
   * @param {(changes: Partial<import("../state/choices.js").Choices>) => void} parts.choose
   * @param {() => AudioContext} parts.audio returns the page's AudioContext
   * @param {import("../server/downloads.js").Downloads} parts.downloads
   */
  constructor(store, router, { choose, audio, downloads }) {
    this.store = store;
    this.downloads = downloads;
    this.choose = choose;
    this.dialog = /** @type {HTMLDialogElement} */ (byId("settings"));
    this.sample = new SampleVoice(
      audio,
      () => store.state.choices.speaker,
      (error) => this.#showRefused(error),
    );
    this.model = new ModelPanel({
      language: () => store.state.choices.language,
      onChange: () => this.#draw(),
      choose: (engine, values) => this.#chooseModel(engine, values),
      speak: (text) => this.sample.speak(text, this.#voice()),
    });
    this.house = new HousePanel({
      onChange: () => this.#draw(),
      choose: (url) => {
        const field = this.#fields.find((one) => one.key === HOUSE);
        if (field) this.#change(field, url);
      },
    });
    this.people = new PeoplePanel({
      audio,
      microphone: () => store.state.choices.microphone,
      onChange: () => this.#draw(),
    });
    this.ownVoices = new OwnVoicesPanel({
      audio,
      microphone: () => store.state.choices.microphone,
      hear: (path) => this.sample.hear(path),
      onChange: () => this.#draw(),
      onVoices: () => this.#loadVoices(),
    });
    this.restart = new RestartPanel({
      onChange: () => this.#draw(),
      onBack: (report) => {
        this.#take(report);
        this.#say(t("set_restarted"));
        byId("settings-close").focus();
      },
    });
    update(byId("settings-open"), { click: () => router.go(PATH) }, [icon("sliders")]);
    update(byId("settings-close"), { click: () => this.dialog.close() });
    // Changes that are not saved stay for the next time.
    this.dialog.addEventListener("close", () => {
      this.#preview = this.#note = null;
      this.people.close();
      this.ownVoices.close();
      router.leave();
    });
    update(byId("settings-form"), {
      submit: (/** @type {Event} */ event) => {
        event.preventDefault();
        if (this.#preview) this.#save(this.#preview);
        else this.#review();
      },
    });
    store.watch(["language", "choices", "downloads"], () => this.#draw());
    store.watch(["path"], ({ path }) => this.#follow(path));
  }

  /** Asks the server whether it has settings. Without them there is no button. */
  async load() {
    try {
      this.#take(await getJson(API));
    } catch {
      return; // an older server, or one that waits for its key: other parts of the page say so
    }
    update(byId("settings-open"), { hidden: false });
    this.#follow(this.store.state.path);
    this.#draw();
  }

  /** @param {string} path */
  #follow(path) {
    const isOpen = path === PATH && this.#report !== null;
    if (!isOpen && this.dialog.open) this.dialog.close();
    if (!isOpen || this.dialog.open) return;
    this.dialog.showModal();
    this.#reload();
    this.downloads.look();
    readDevices().then(() => this.#draw());
    this.people.load();
    this.ownVoices.load();
    this.#loadVoices();
    loadSettingTexts(this.store.state.language).then(() => this.#draw());
  }

  /** Without the list the settings keep the names that the server gave them. */
  #loadVoices() {
    this.#voices.load().then(
      () => this.#draw(),
      () => undefined,
    );
  }

  async #reload() {
    try {
      this.#take(await getJson(API));
      if (this.#changes.size) await this.#askForFields();
    } catch (error) {
      this.#showRefused(error);
    }
    this.#draw();
  }

  /** @param {Report} report */
  #take(report) {
    this.#report = report;
    this.#fields = report.fields;
  }

  #draw() {
    const report = this.#report;
    if (!report) return;
    const isReview = this.#preview !== null;
    const note = this.#note ?? (report.read_only ? { text: report.read_only, isBad: true } : null);
    const noteProps = { hidden: note === null, "data-bad": String(note?.isBad ?? false) };
    update(byId("settings-note"), noteProps, [note?.text]);
    update(byId("settings-fields"), { hidden: isReview }, isReview ? [] : this.#sections(report));
    update(byId("settings-review"), { hidden: !isReview }, this.#preview ? this.#reviewed() : []);
    const count = this.#changes.size;
    const label = isReview ? t("set_save") : t("set_review");
    update(byId("settings-send"), { disabled: count === 0 || Boolean(report.read_only) }, [label]);
    update(
      byId("settings-undo"),
      {
        hidden: count === 0,
        click: () => (this.#preview ? this.#back() : this.#undo()),
      },
      [isReview ? t("set_back") : t("set_undo")],
    );
    const text = count === 1 ? t("set_change") : t("set_changes", { n: count });
    update(byId("settings-count"), { hidden: count === 0 }, [text]);
  }

  /** @param {Report} report */
  #sections(report) {
    const fields = this.#fields;
    const common = fields.filter((one) => one.is_common);
    const groups = grouped(fields.filter((one) => !one.is_common));
    const others = [...groups].map(([group, inside]) => {
      const isWrong = inside.some(({ key }) => this.#problems.some((one) => one.key === key));
      return h(
        "details",
        { key: `group-${group}`, class: "setting-group", ...(isWrong ? { open: true } : {}) },
        h("summary", {}, t(`set_group_${group || "general"}`)),
        ...inside.flatMap((one) => [this.#field(one), ...this.#beside(one)]),
      );
    });
    return [
      this.restart.panel(report),
      ...common.flatMap((one) => [this.#field(one), ...this.#beside(one)]),
      h(
        "fieldset",
        { key: "browser", class: "setting-group" },
        h("legend", {}, t("set_browser")),
        ...browserFields(this.store.state.choices, this.choose),
      ),
      this.people.panel(),
      this.ownVoices.panel(),
      ...others,
      h("p", { key: "file", class: "setting-help" }, t("set_file", { file: report.file })),
    ];
  }

  /** @param {Field} field */
  #field(field) {
    const problem = this.#problems.find((one) => one.key === field.key);
    const isVoice = field.key === VOICE;
    return settingField(isVoice ? this.#voices.described(field) : field, {
      value: this.#changes.get(field.key),
      isChanged: this.#changes.has(field.key),
      problem: problem?.message ?? "",
      change: (value) => this.#change(field, value),
      action: isVoice
        ? h(
            "button",
            {
              type: "button",
              class: "quiet",
              "data-testid": "voice-sample",
              click: () => this.#hearVoice(),
            },
            t("set_hear"),
          )
        : null,
    });
  }

  /** Returns what stands below a field. @param {Field} field */
  #beside(field) {
    const { key } = field;
    if (key === "asr.model") {
      return [
        recogniserList(this.store.state.downloads, {
          pull: (model) => this.downloads.pull(model),
          cancel: (model) => this.downloads.cancel(model),
          remove: (model) => this.downloads.remove(model),
          use: (model) => this.#change(field, model),
        }),
        textModelList(this.store.state.downloads, {
          pull: (model) => this.downloads.pull(model),
          cancel: (model) => this.downloads.cancel(model),
          remove: (model) => this.downloads.remove(model),
        }),
      ];
    }
    if (key === "llm.engine") return [this.model.search()];
    if (key === HOUSE) return [this.house.search()];
    if (key.startsWith("llm.options.") && key.endsWith(".api_key")) {
      return [this.model.test(this.#modelNow(key.slice(0, -"api_key".length)))];
    }
    return [];
  }

  /** @param {string} prefix of the model's options */
  #modelNow(prefix) {
    const key = this.#changes.get(`${prefix}api_key`);
    return {
      base_url: String(this.#valueOf(`${prefix}base_url`) ?? ""),
      model: String(this.#valueOf(`${prefix}model`) ?? ""),
      ...(typeof key === "string" ? { api_key: key } : {}),
    };
  }

  #hearVoice() {
    const { voice, speed } = this.#voice();
    return this.sample.hear(samplePath(voice, speed));
  }

  #voice() {
    const speed = Number(this.#valueOf("assistant.speed")) || 1;
    return { voice: String(this.#valueOf(VOICE) || "default"), speed };
  }

  /** @param {string} key */
  #valueOf(key) {
    const field = this.#fields.find((one) => one.key === key);
    return this.#changes.has(key) ? (this.#changes.get(key) ?? field?.default) : field?.value;
  }

  /**
   * @param {Field} field
   * @param {Value | undefined} value undefined: as it was
   */
  #change(field, value) {
    if (value === undefined) this.#changes.delete(field.key);
    else this.#changes.set(field.key, value);
    this.#problems = this.#problems.filter((one) => one.key !== field.key);
    this.#note = null;
    if (field.key.endsWith(".engine")) this.#askForFields();
    this.#draw();
  }

  /**
   * @param {string} engine
   * @param {{ base_url: string, model: string }} values
   */
  async #chooseModel(engine, values) {
    const chosen = String(this.#valueOf("llm.engine"));
    const kept = chosen === "openai" || chosen === "hybrid" ? chosen : engine;
    if (kept !== chosen) this.#changes.set("llm.engine", kept);
    const prefix = kept === "openai" ? "llm.options." : "llm.options.model.options.";
    this.#changes.set(`${prefix}base_url`, values.base_url);
    this.#changes.set(`${prefix}model`, values.model);
    await this.#askForFields();
  }

  /** Asks for the form with the present changes: another engine has other options. */
  async #askForFields() {
    const preview = await this.#ask();
    if (!preview || !this.#report) return;
    const saved = new Map(this.#report.fields.map((one) => [one.key, one]));
    this.#fields = preview.fields.map((one) => saved.get(one.key) ?? unset(one));
    const keys = new Set(this.#fields.map(({ key }) => key));
    for (const key of this.#changes.keys()) if (!keys.has(key)) this.#changes.delete(key);
    this.#draw();
  }

  /** @returns {Promise<Preview | null>} null: refused; the reason is shown */
  async #ask() {
    try {
      return await post(`${API}/preview`, { changes: Object.fromEntries(this.#changes) });
    } catch (error) {
      this.#showRefused(error);
      return null;
    }
  }

  async #review() {
    const preview = await this.#ask();
    if (!preview) return;
    this.#problems = preview.problems;
    this.#note = null;
    if (preview.problems.length) {
      const [{ key, message }] = preview.problems;
      this.#note = { text: t("set_wrong", { n: preview.problems.length }), isBad: true };
      this.#draw();
      const field = document.getElementById(idOf(key));
      if (field) field.focus();
      else this.#say(message, true);
      return;
    }
    this.#preview = preview;
    this.#draw();
    byId("settings-diff").focus();
  }

  #reviewed() {
    const { diff, applies } = /** @type {Preview} */ (this.#preview);
    const rows = Object.entries(applies).map(([key, when]) => {
      const field = this.#fields.find((one) => one.key === key);
      return h(
        "li",
        { key },
        h("strong", {}, field ? labelOf(field) : key),
        ` ${t(`set_applies_${when}`)}`,
      );
    });
    const lines = diff.split("\n").slice(2);
    return [
      h("h3", {}, t("set_would_change")),
      h(
        "pre",
        {
          id: "settings-diff",
          class: "settings-diff",
          tabindex: "0",
          "aria-label": t("set_would_change"),
          "data-testid": "settings-diff",
        },
        ...(diff ? lines : [t("set_nothing")]).map((line, index) =>
          h("span", { key: index, "data-sign": line[0] === "@" ? "" : line[0] }, `${line}\n`),
        ),
      ),
      h("ul", { class: "settings-applies" }, ...rows),
    ];
  }

  #back() {
    this.#preview = null;
    this.#draw();
    byId("settings-send").focus();
  }

  #undo() {
    this.#changes.clear();
    this.#problems = [];
    this.#note = null;
    this.#reload();
    byId("settings-close").focus();
  }

  /** @param {Preview} preview */
  async #save({ etag }) {
    try {
      const changes = Object.fromEntries(this.#changes);
      const saved = await post(API, { changes, etag });
      this.#changes.clear();
      this.#preview = null;
      if (this.#report) this.#take({ ...this.#report, ...saved });
      this.#say(t(saved.needs_restart ? "set_saved_restart" : "set_saved"));
      byId("settings-close").focus();
    } catch (/** @type {any} */ error) {
      this.#preview = null;
      if (error.code === "settings_changed") {
        await this.#reload();
        this.#say(t("set_changed_meanwhile"), true);
      } else this.#showRefused(error);
    }
  }

  /** @param {any} error */
  #showRefused(error) {
    this.#say(t("d_failed", { reason: error.message || error.code }), true);
  }

  /**
   * @param {string} text
   * @param {boolean} isBad
   */
  #say(text, isBad = false) {
    this.#note = { text, isBad };
    this.#draw();
  }
}

/** Returns a field of an engine that is not saved yet. @param {Field} field */
const unset = (field) => ({ ...field, value: field.default, is_set: false, is_pending: false });

/** @param {Field[]} fields */
function grouped(fields) {
  /** @type {Map<string, Field[]>} */
  const groups = new Map();
  for (const field of fields) groups.set(field.group, [...(groups.get(field.group) ?? []), field]);
  return groups;
}

/**
 * @param {string} path
 * @param {object} body
 * @returns {Promise<any>} rejects with `Refused`
 */
async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  const response = await request(path, { method: "POST", body: JSON.stringify(body), headers });
  return response.json();
}
