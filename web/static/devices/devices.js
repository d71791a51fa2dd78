// The devices view: shows which devices are connected and what each does now, and lets the user approve,
// edit, update and block them, and announce something on them.

import { getJson } from "../server/api.js";
import { icon } from "../view/icon.js";
import { byId, h, update } from "../view/keyed.js";
import { t } from "../words/translate.js";
import { deviceCard } from "./device_card.js";
import { deviceForm } from "./device_forms.js";
import { FoundSatellites } from "./found_satellites.js";

/**
 * @typedef {{ voice: string, language: string, wake_word: string, volume: number | null,
 *   instructions: string, echo: string }} Profile
 * @typedef {{ id: string, kind: string, name: string, area: string, board: string, firmware: string,
 *   address: string, hardware_id: string, standing: "new" | "approved" | "blocked",
 *   has_new_identity: boolean, pairing_code: string | null, is_connected: boolean,
 *   doing: string | null, last_seen: string | null, waiting: number, profile: Profile,
 *   timing: Record<string, number> | null,
 *   controls: import("./device_controls.js").Controls | null }} Device
 *   as the server sends it. `standing`: whether a person approved it; `has_new_identity`: it must be
 *   approved again; `doing`: what an approved device does, null while it is away; `waiting`: number of
 *   announcements that it has not played yet; `timing`: of its last turn, in ms; `controls`: null
 *   while it is away, or if it has none
 * @typedef {"approve" | "announce" | "edit" | "restart" | "update" | "block" | "forget"} Action
 * @typedef {{ version: string, sha256: string }} Image
 * @typedef {{ kind: "announce" | "edit" | "update" | "forget", device: Device,
 *   images: Image[], place: string }} Form
 *   an open form. `device` is as it was when the form opened, so that typed text is not overwritten;
 *   `images`, `place`: firmware for the device, and the server's folder for it
 */

const PATH = "/devices";

export class DevicesView {
  /** @type {Form | null} */
  #form = null;
  /** @type {{ text: string, isBad: boolean } | null} */
  #note = null;

  /**
   * @param {import("../app.js").PageStore} store
   * @param {import("./devices_feed.js").DevicesFeed} feed
   * @param {import("../router.js").Router} router
   */
  constructor(store, feed, router) {
    this.store = store;
    this.feed = feed;
    this.dialog = /** @type {HTMLDialogElement} */ (byId("devices"));
    this.found = new FoundSatellites(feed, store, (text, isBad) => this.#showNote(text, isBad));
    update(byId("devices-open"), { click: () => router.go(PATH) });
    update(byId("devices-icon"), {}, [icon("speaker")]);
    update(byId("devices-close"), { click: () => this.dialog.close() });
    // The dialog is closed by its button or by Esc. Text typed into an open form is dropped.
    this.dialog.addEventListener("close", () => {
      this.#note = null;
      this.found.leave();
      this.#openForm(null);
      router.leave();
    });
    update(byId("pair-form"), {
      submit: (/** @type {Event} */ event) => {
        event.preventDefault();
        this.#pair();
      },
    });
    store.watch(["devices", "areDevicesLive", "language"], (state, before) => {
      if (state.areDevicesLive !== before?.areDevicesLive) this.#note = null;
      this.#draw();
    });
    store.watch(["devices", "path"], ({ devices, path }) => {
      const isOpen = path === PATH && devices !== null;
      if (isOpen && !this.dialog.open) {
        this.dialog.showModal();
        this.found.follow();
      }
      if (!isOpen && this.dialog.open) this.dialog.close();
    });
  }

  #draw() {
    const { devices, areDevicesLive } = this.store.state;
    if (!devices) return;
    const unapproved = devices.filter((one) => one.standing === "new" || one.has_new_identity);
    const count = unapproved.length;
    update(byId("devices-open"), { hidden: false });
    update(byId("devices-badge"), { hidden: count === 0 }, [t("devices_waiting", { n: count })]);
    update(byId("pair-form"), { hidden: count === 0 });
    const lost = areDevicesLive ? null : { text: t("devices_lost"), isBad: false };
    const note = this.#note ?? lost;
    const noteProps = { hidden: note === null, "data-bad": String(note?.isBad ?? false) };
    update(byId("devices-note"), noteProps, [note?.text]);
    const cards = devices.map((one) =>
      deviceCard(
        one,
        this.#formOf(one),
        (action) => this.#perform(action, one),
        async (changes) => (await this.#post(one, "/controls", changes)) !== null,
      ),
    );
    const none = h("li", { class: "nothing" }, t("no_devices"));
    update(byId("device-list"), {}, cards.length ? cards : [none]);
  }

  /** Returns the form that is open for this device; null if there is none. @param {Device} device */
  #formOf({ id }) {
    if (this.#form?.device.id !== id) return null;
    return deviceForm(this.#form, {
      close: () => this.#openForm(null),
      save: async (device, changes) =>
        this.#closeFormIf(await this.#post(device, "", changes, t("was_saved"))),
      announce: async (device, words, isEverywhere) =>
        this.#closeFormIf(await this.#announce(device, words, isEverywhere)),
      update: async (device, firmware) => {
        const done = t("was_updated", { name: device.name });
        this.#closeFormIf(await this.#post(device, "/update", { firmware }, done));
      },
      forget: (device) => {
        this.#openForm(null);
        this.#send("DELETE", pathOf(device));
      },
    });
  }

  /** Opens a form, and moves the focus into it. Null closes the open form. @param {Form | null} form */
  #openForm(form) {
    this.#form = form;
    this.#draw();
    if (!form) return;
    const panel = document.querySelector(`[data-id="${CSS.escape(form.device.id)}"] .device-panel`);
    const field = panel?.querySelector("input, select, textarea, button");
    if (field instanceof HTMLElement) field.focus();
  }

  /** @param {unknown} isDone */
  #closeFormIf(isDone) {
    if (isDone) this.#openForm(null);
  }

  /**
   * Does what the user clicked on, or opens the form for it.
   *
   * @param {Action} action
   * @param {Device} device
   */
  #perform(action, device) {
    const { name, pairing_code: code } = device;
    switch (action) {
      case "approve": // with the code that the card shows: the server may know a newer device by now
        return this.#post(device, "/approve", code ? { code } : {}, t("was_approved", { name }));
      case "block":
        return this.#post(device, "/block", {});
      case "restart":
        return this.#post(device, "/restart", {}, t("was_restarted", { name }));
      case "update":
        return this.#openUpdate(device);
      default:
        return this.#openForm({ kind: action, device, images: [], place: "" });
    }
  }

  /** @param {Device} device */
  async #openUpdate(device) {
    try {
      const { images, place } = await getJson(`${pathOf(device)}/firmware`);
      this.#openForm({ kind: "update", device, images, place });
    } catch (error) {
      this.#showRefused(error);
    }
  }

  /**
   * Announces the text. Returns whether the server accepted it.
   *
   * @param {Device} device
   * @param {string} text
   * @param {boolean} isEverywhere on all devices in the room
   */
  async #announce(device, text, isEverywhere) {
    const { name, area } = device;
    if (isEverywhere) {
      const path = `/v1/areas/${encodeURIComponent(area)}/notify`;
      const answer = await this.#send("POST", path, { text });
      if (!answer) return false;
      const isHeard = answer.devices.length > 0;
      this.#showNote(isHeard ? t("was_heard", { name: area }) : t("nobody_there", { area }));
      return true;
    }
    const answer = await this.#post(device, "/notify", { text });
    if (!answer) return false;
    this.#showNote(answer.is_heard ? t("was_heard", { name }) : t("is_waiting", { name }));
    return true;
  }

  /** Approves the device that shows the code which the user typed in. */
  async #pair() {
    const field = /** @type {HTMLInputElement} */ (byId("pair-code"));
    const device = await this.#send("POST", "/v1/devices/pair", { code: field.value });
    if (!device) return;
    field.value = "";
    this.#showNote(t("was_approved", { name: device.name }));
  }

  /**
   * Sends a request about a device.
   *
   * @param {Device} device
   * @param {string} path below the device's path
   * @param {object} body
   * @param {string} [done] message after success
   */
  #post(device, path, body, done) {
    return this.#send("POST", `${pathOf(device)}${path}`, body, done);
  }

  /**
   * Sends a request and shows its outcome.
   *
   * @param {string} method
   * @param {string} path
   * @param {object} [body]
   * @param {string} [done] message after success
   * @returns {Promise<any>} the answer; null if the server refused
   */
  async #send(method, path, body, done) {
    try {
      const answer = await this.feed.send(method, path, body);
      if (done) this.#showNote(done);
      return answer;
    } catch (error) {
      this.#showRefused(error);
      return null;
    }
  }

  /** @param {any} error */
  #showRefused(error) {
    this.#showNote(t("d_failed", { reason: error.message || error.code }), true);
  }

  /**
   * @param {string} text
   * @param {boolean} isBad
   */
  #showNote(text, isBad = false) {
    this.#note = { text, isBad };
    this.#draw();
  }
}

/** @param {Device} device */
const pathOf = ({ id }) => `/v1/devices/${id}`;
