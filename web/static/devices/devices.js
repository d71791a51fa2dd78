// The devices view: who is connected and what each does, live; approve, edit, announce, update.

import { getJson, pause, request, serverSent } from "../server/api.js";
import { byId, h, setText } from "../view/keyed.js";
import { deviceCard } from "./device_card.js";
import { t } from "../words/translate.js";

const RETRY_MS = 3_000;
const MAX_ABSENT_MS = 60_000; // a server without devices has no list; nor has a proxy whose server restarts
const ACTION_MS = 60_000; // the server waits 20 s for a device to take a notice

export class DevicesView {
  constructor() {
    this.devices = null;
    this.editing = null; // id of the device whose form is open: it is not drawn over
    this.dialog = byId("devices");
    byId("devices-open").addEventListener("click", () => this.dialog.showModal());
    byId("devices-close").addEventListener("click", () => this.dialog.close());
    // Closed with a form open, by its button or by Esc: what was typed in it is given up.
    this.dialog.addEventListener("close", () => this.#edited());
    byId("pair-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#pair();
    });
  }

  /** Follow the server's list; again after a key was given. */
  watch() {
    this.aborter?.abort();
    this.aborter = new AbortController();
    this.#follow(this.aborter.signal);
  }

  translate() {
    if (this.devices) this.show(this.devices);
  }

  show(devices) {
    this.devices = devices;
    const waiting = devices.filter((one) => one.standing === "new" || one.has_new_identity).length;
    byId("devices-open").hidden = false;
    byId("devices-badge").hidden = waiting === 0;
    setText(byId("devices-badge"), t("devices_waiting", { n: waiting }));
    byId("pair-form").hidden = waiting === 0;
    if (this.editing) return; // what is being typed stays; drawn when it is done
    const open = new Set(
      [...byId("device-list").querySelectorAll("details[open]")].map(
        (one) => one.closest("[data-id]").dataset.id,
      ),
    );
    const focused = document.activeElement?.closest?.("[data-id]")?.dataset.id;
    const action = document.activeElement?.dataset?.action;
    const drawn = devices.map((one) => deviceCard(one, this.#actions(one), open.has(one.id)));
    byId("device-list").replaceChildren(
      ...(drawn.length ? drawn : [h("li", { class: "nothing" }, t("no_devices"))]),
    );
    // Live updates must not throw the keyboard's place away.
    if (focused && action) {
      byId("device-list")
        .querySelector(`[data-id="${focused}"] [data-action="${action}"]`)
        ?.focus();
    }
  }

  async #follow(signal) {
    let waitMs = RETRY_MS;
    while (!signal.aborted) {
      try {
        for await (const { event, data } of serverSent("/v1/devices/events", signal)) {
          if (event !== "devices") continue;
          waitMs = RETRY_MS;
          byId("devices-note").hidden = true;
          this.show(JSON.parse(data).devices);
        }
      } catch (error) {
        if (signal.aborted) return;
        if ([401, 403].includes(error.status)) return; // the page asks for the key elsewhere
        if (error.status === 404 && !this.devices) waitMs = Math.min(2 * waitMs, MAX_ABSENT_MS);
      }
      if (this.devices) this.#note(t("devices_lost"));
      await pause(waitMs, signal);
    }
  }

  #edited() {
    if (this.editing === null) return;
    this.editing = null;
    this.show(this.devices);
  }

  #actions(device) {
    const path = `/v1/devices/${device.id}`;
    const { name, area, pairing_code: code } = device;
    return {
      // With the code that this card shows: another one may have come since.
      approve: () =>
        this.#post(`${path}/approve`, code ? { code } : {}, t("was_approved", { name })),
      block: () => this.#post(`${path}/block`, {}),
      forget: () => this.#send("DELETE", path),
      save: (changes) => this.#post(path, changes, t("was_saved")),
      restart: () => this.#post(`${path}/restart`, {}, t("was_restarted", { name })),
      firmware: () => this.#ask(`${path}/firmware`),
      update: (firmware) => this.#post(`${path}/update`, { firmware }, t("was_updated", { name })),
      announce: async (text, isEverywhere) => {
        const told = await this.#post(
          isEverywhere ? `/v1/areas/${encodeURIComponent(area)}/notify` : `${path}/notify`,
          { text },
        );
        if (!told) return false;
        const isHeard = isEverywhere ? told.devices.length > 0 : told.is_heard;
        const missed = isEverywhere ? t("nobody_there", { area }) : t("is_waiting", { name });
        this.#note(isHeard ? t("was_heard", { name: isEverywhere ? area : name }) : missed);
        return true;
      },
      editing: (isOpen) => {
        if (isOpen) this.editing = device.id;
        else this.#edited();
      },
    };
  }

  async #pair() {
    const field = byId("pair-code");
    const device = await this.#post("/v1/devices/pair", { code: field.value });
    if (!device) return;
    field.value = "";
    this.#note(t("was_approved", { name: device.name }));
  }

  /** The answer, or null; unlike #send it draws nothing, so an open form stays. */
  async #ask(path) {
    try {
      return await getJson(path);
    } catch (error) {
      this.#refused(error);
      return null;
    }
  }

  #post(path, body, done = "") {
    return this.#send("POST", path, body, done);
  }

  /** The answer, or null when the server refused; then its reason is shown. */
  async #send(method, path, body, done = "") {
    const options = { method, limitMs: ACTION_MS };
    if (body) {
      Object.assign(options, {
        body: JSON.stringify(body),
        headers: { "Content-Type": "application/json" },
      });
    }
    try {
      const response = await request(path, options);
      const answer = response.status === 204 ? {} : await response.json();
      if (done) this.#note(done);
      this.show((await getJson("/v1/devices")).devices);
      return answer;
    } catch (error) {
      this.#refused(error);
      return null;
    }
  }

  #refused(error) {
    this.#note(t("d_failed", { reason: error.message || error.code }), true);
  }

  #note(text, isBad = false) {
    const note = byId("devices-note");
    note.hidden = false;
    note.dataset.bad = String(isBad);
    setText(note, text);
  }
}
