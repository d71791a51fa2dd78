// The keys view: who may use the server with a key of their own; add and revoke.

import { getJson, request } from "../server/api.js";
import { icon } from "../view/icon.js";
import { byId, h, update } from "../view/keyed.js";
import { formatMoment, t } from "../words/translate.js";
import { keySettings } from "./key_settings.js";

/**
 * @typedef {{ name: string, scopes: string[], max_sessions: number | null,
 *   requests_per_minute: number | null, last_used: string | null, sessions: number,
 *   profile: import("./key_settings.js").KeyProfile }} Key
 */

/** @typedef {import("./key_settings.js").KeyProfile} KeyProfile */

const PATH = "/keys";
const API = "/v1/keys";
const SCOPES = ["talk", "manage", "models"];

export class KeysView {
  /** @type {Key[]} */
  #keys = [];
  /** @type {{ name: string, key: string, isCopied: boolean } | null} the key that was just made */
  #made = null;
  /** @type {{ text: string, isBad: boolean } | null} */
  #note = null;
  /** Name of the key that the user is asked about before it is revoked. */
  #asked = "";
  /** Name of the key whose settings are open. */
  #edited = "";

  /**
   * @param {import("../app.js").PageStore} store
   * @param {import("../router.js").Router} router
   */
  constructor(store, router) {
    this.store = store;
    this.dialog = /** @type {HTMLDialogElement} */ (byId("keys"));
    update(byId("keys-open"), { click: () => router.go(PATH) });
    update(byId("keys-icon"), {}, [icon("key")]);
    update(byId("keys-close"), { click: () => this.dialog.close() });
    this.dialog.addEventListener("close", () => {
      [this.#made, this.#note, this.#asked, this.#edited] = [null, null, "", ""];
      this.#draw();
      router.leave();
    });
    store.watch(["devices", "language"], () => this.#draw());
    // The list of devices needs the same scope: who gets it may manage keys, too.
    store.watch(["devices", "path"], ({ devices, path }) => {
      const isOpen = path === PATH && devices !== null;
      if (isOpen && !this.dialog.open) {
        this.dialog.showModal();
        this.#load();
      }
      if (!isOpen && this.dialog.open) this.dialog.close();
    });
  }

  #draw() {
    update(byId("keys-open"), { hidden: this.store.state.devices === null });
    const note = { hidden: this.#note === null, "data-bad": String(this.#note?.isBad ?? false) };
    update(byId("keys-note"), note, [this.#note?.text]);
    update(byId("key-made"), { hidden: this.#made === null }, this.#newKey());
    const submit = (/** @type {SubmitEvent} */ event) => {
      event.preventDefault();
      this.#add(/** @type {HTMLFormElement} */ (event.currentTarget));
    };
    update(byId("key-form"), { submit }, formFields());
    const rows = this.#keys.map((key) => this.#row(key));
    const none = h("li", { class: "nothing" }, t("no_keys"));
    update(byId("key-list"), {}, rows.length ? rows : [none]);
  }

  #newKey() {
    if (!this.#made) return [];
    const { name, key, isCopied } = this.#made;
    const click = () => this.#copy(key);
    const button = { type: "button", class: "strong", "data-testid": "key-copy", click };
    return [
      h("p", {}, t("key_made", { name })),
      h("code", { "data-testid": "key-value", tabindex: "0" }, key),
      h("button", button, t(isCopied ? "key_copied" : "key_copy")),
    ];
  }

  /** @param {Key} key */
  #row(key) {
    const { name } = key;
    const props = { key: name, class: "device key", "data-testid": "key", "data-name": name };
    return h(
      "li",
      props,
      h("h3", {}, name),
      h("p", { class: "key-scopes" }, key.scopes.map((scope) => t(`scope_${scope}`)).join(" · ")),
      h("p", { class: "device-facts" }, facts(key).join(" · ")),
      ...this.#actions(key),
    );
  }

  /** @param {Key} key */
  #actions({ name, profile }) {
    if (this.#asked === name) return [this.#question(name)];
    const close = () => this.#edit("");
    const save = (/** @type {KeyProfile} */ changed) => this.#save(name, changed);
    if (this.#edited === name) return [keySettings(profile, { close, save })];
    const click = () => this.#edit(name);
    const button = { type: "button", class: "quiet", "data-testid": "key-edit", click };
    return [h("button", { key: "edit", ...button }, t("d_edit")), this.#revokeButton(name)];
  }

  /** @param {string} name */
  #revokeButton(name) {
    const click = () => this.#ask(name);
    const button = { type: "button", class: "quiet", "data-testid": "key-revoke", click };
    return h("button", { key: "revoke", ...button }, t("key_revoke"));
  }

  /** @param {string} name */
  #question(name) {
    const sure = {
      type: "button",
      class: "strong danger",
      "data-testid": "key-revoke-sure",
      click: () => this.#revoke(name),
    };
    return h(
      "div",
      { key: "sure", class: "device-form", role: "group", "aria-label": t("key_revoke") },
      h("p", {}, t("key_sure")),
      h("button", { type: "button", class: "quiet", click: () => this.#ask("") }, t("keep")),
      h("button", sure, t("key_revoke")),
    );
  }

  /** @param {string} name */
  #edit(name) {
    this.#edited = name;
    this.#draw();
  }

  /**
   * @param {string} name
   * @param {KeyProfile} profile
   */
  async #save(name, profile) {
    await this.#do(async () => {
      const headers = { "Content-Type": "application/json" };
      const asked = { method: "POST", body: JSON.stringify({ profile }), headers };
      await request(`${API}/${encodeURIComponent(name)}`, asked);
      this.#edited = "";
    });
  }

  /** @param {string} name */
  #ask(name) {
    this.#asked = name;
    this.#draw();
  }

  /** @param {string} key */
  async #copy(key) {
    try {
      await navigator.clipboard.writeText(key);
      if (this.#made) this.#made = { ...this.#made, isCopied: true };
    } catch {
      // Browsers give the clipboard only to secure pages: the user can still select the text.
      getSelection()?.selectAllChildren(
        /** @type {Element} */ (byId("key-made").querySelector("code")),
      );
    }
    this.#draw();
  }

  /** @param {HTMLFormElement} form */
  async #add(form) {
    const fields = new FormData(form);
    const number = (/** @type {string} */ name) => Number(fields.get(name)) || null;
    const name = String(fields.get("name")).trim();
    const body = {
      name,
      scopes: SCOPES.filter((scope) => fields.get(scope)),
      max_sessions: number("sessions"),
      requests_per_minute: number("requests"),
    };
    await this.#do(async () => {
      const headers = { "Content-Type": "application/json" };
      const asked = { method: "POST", body: JSON.stringify(body), headers };
      const { key } = await (await request(API, asked)).json();
      this.#made = { name, key, isCopied: false };
      form.reset();
      /** @type {HTMLInputElement} */ (form.elements.namedItem("talk")).checked = true;
    });
  }

  /** @param {string} name */
  async #revoke(name) {
    this.#asked = "";
    await this.#do(async () => {
      await request(`${API}/${encodeURIComponent(name)}`, { method: "DELETE" });
      if (this.#made?.name === name) this.#made = null;
      this.#note = { text: t("key_revoked", { name }), isBad: false };
    });
  }

  /** Does something, then loads the list again. A refusal is shown. @param {() => Promise<void>} act */
  async #do(act) {
    this.#note = null;
    try {
      await act();
    } catch (/** @type {any} */ error) {
      this.#refused(error);
    }
    await this.#load();
  }

  async #load() {
    try {
      this.#keys = (await getJson(API)).keys;
    } catch (/** @type {any} */ error) {
      this.#refused(error);
    }
    this.#draw();
  }

  /** @param {any} error */
  #refused(error) {
    this.#note = { text: t("d_failed", { reason: error.message || error.code }), isBad: true };
  }
}

/** @param {Key} key */
function facts({ sessions, max_sessions: most, requests_per_minute: requests, last_used: used }) {
  return [
    used ? t("key_used", { when: formatMoment(used) }) : t("key_unused"),
    most === null
      ? t("key_sessions", { n: sessions })
      : t("key_sessions_of", { n: sessions, most }),
    ...(requests === null ? [] : [t("key_requests", { n: requests })]),
  ];
}

function formFields() {
  const name = {
    name: "name",
    required: true,
    maxlength: "64",
    pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*",
    autocomplete: "off",
    title: t("key_name_rule"),
    "data-testid": "key-name",
  };
  const scopes = SCOPES.map((scope) => {
    const box = { type: "checkbox", name: scope, checked: scope === "talk" };
    const props = { ...box, "data-testid": `key-scope-${scope}` };
    return h("label", { key: scope, class: "check" }, h("input", props), t(`scope_${scope}`));
  });
  return [
    h("label", { key: "name" }, h("span", {}, t("key_name")), h("input", name)),
    h("fieldset", {}, h("legend", {}, t("key_scopes")), ...scopes),
    limit("sessions", "key_max_sessions"),
    limit("requests", "key_max_requests"),
    h("button", { type: "submit", class: "strong", "data-testid": "key-add" }, t("key_add")),
  ];
}

/**
 * @param {string} name
 * @param {string} label
 */
function limit(name, label) {
  const field = { type: "number", name, min: "1", max: "100000", placeholder: t("key_no_limit") };
  const props = { ...field, "data-testid": `key-${name}` };
  return h("label", { key: name }, h("span", {}, t(label)), h("input", props));
}
