// The forms in a device's card: announce, edit, update its firmware, forget.

import { cancel, field, labelled, onSubmit, submit } from "../view/form.js";
import { h } from "../view/keyed.js";
import { t } from "../words/translate.js";

/**
 * @typedef {import("./devices.js").Device} Device
 * @typedef {import("./devices.js").Form} Form
 * @typedef {object} Handlers what the forms call
 * @property {() => void} close drops what was typed
 * @property {(device: Device, changes: object) => void} save
 * @property {(device: Device, text: string, isEverywhere: boolean) => void} announce everywhere: on all
 *   devices in the device's room
 * @property {(device: Device, version: string) => void} update
 * @property {(device: Device) => void} forget
 */

const ECHO_MODES = ["off", "cancel", "half_duplex"];

/**
 * Returns a form. Typed text stays while it is open: the browser keeps it, and it is read on
 * sending.
 *
 * @param {Form} form
 * @param {Handlers} handlers
 */
export const deviceForm = (form, handlers) => FORMS[form.kind](form, handlers);

/** @type {Record<Form["kind"], (form: Form, handlers: Handlers) => import("../view/keyed.js").Description>} */
const FORMS = { announce, edit, update, forget };

/**
 * Asks whether to forget the device: it cannot be undone.
 *
 * @param {Form} form
 * @param {Handlers} handlers
 */
function forget({ device }, { close, forget: confirmed }) {
  const click = () => confirmed(device);
  const sure = {
    type: "button",
    class: "strong danger",
    "data-testid": "device-forget-sure",
    click,
  };
  return h(
    "div",
    { key: "forget", class: "device-form", role: "group", "aria-label": t("forget") },
    h("p", {}, t("forget_sure")),
    cancel("keep", close),
    h("button", sure, t("forget")),
  );
}

/**
 * Asks for a sentence that the device shall say.
 *
 * @param {Form} form
 * @param {Handlers} handlers
 */
function announce({ device }, { close, announce: send }) {
  const label = t("announce_text", { name: device.name });
  const text = {
    type: "text",
    name: "text",
    required: true,
    maxlength: "1000",
    "aria-label": label,
    placeholder: label,
    "data-testid": "announce-text",
  };
  const everywhere = h("input", { type: "checkbox", name: "everywhere" });
  const props = onSubmit("announce", "device-form", (fields) =>
    send(device, fields.text, fields.everywhere === "on"),
  );
  return h(
    "form",
    props,
    h("input", text),
    device.area &&
      h("label", { class: "check" }, everywhere, t("announce_area", { area: device.area })),
    cancel("d_cancel", close),
    submit("announce_send", "announce-send"),
  );
}

/**
 * Asks for the firmware to install. Without an image it says where images are put.
 *
 * @param {Form} form with the server's images for this board, and the folder for more
 * @param {Handlers} handlers
 */
function update({ device, images, place }, { close, update: install }) {
  if (!images.length) {
    return h(
      "div",
      { key: "no-update", class: "device-form", role: "group", "aria-label": t("update") },
      h("p", { "data-testid": "no-firmware" }, t("no_firmware", { place })),
      cancel("d_cancel", close),
    );
  }
  const options = images.map(({ version, sha256 }) => {
    const text = version === device.firmware ? t("firmware_now", { version }) : version;
    return h("option", { key: version, value: version, title: `SHA-256 ${sha256}` }, text);
  });
  const versions = { name: "version", "aria-label": t("firmware"), "data-testid": "firmware" };
  return h(
    "form",
    onSubmit("update", "device-form", ({ version }) => install(device, version)),
    h("label", {}, h("span", {}, t("firmware")), h("select", versions, ...options)),
    cancel("d_cancel", close),
    submit("update", "update-send"),
  );
}

/**
 * Asks for the device's name, room and settings. An empty field means the server's own setting.
 *
 * @param {Form} form
 * @param {Handlers} handlers
 */
function edit({ device }, { close, save }) {
  const { name, area, profile } = device;
  const props = onSubmit("edit", "device-form edit", (fields) => {
    const { volume, instructions, echo } = fields;
    const [voice, language, wakeWord] = [fields.voice, fields.language, fields.wake_word];
    save(device, {
      name: fields.name.trim(),
      area: fields.area.trim(),
      profile: {
        instructions,
        echo,
        volume: volume === "" ? null : Number(volume),
        voice: voice.trim(),
        language: language.trim(),
        wake_word: wakeWord.trim(),
      },
    });
  });
  const text = { type: "text", maxlength: "64" };
  const placeholder = t("as_everywhere");
  const general = { ...text, placeholder };
  const modes = ECHO_MODES.map((mode) =>
    h("option", { value: mode, selected: mode === profile.echo }, t(`echo_${mode}`)),
  );
  const { voice, language, wake_word: wakeWord, volume, instructions } = profile;
  const range = { type: "number", min: "0", max: "100", placeholder };
  const prompt = { name: "instructions", rows: "2", maxlength: "10000", placeholder };
  return h(
    "form",
    props,
    field("d_name", {
      ...text,
      name: "name",
      required: true,
      value: name,
      "data-testid": "edit-name",
    }),
    field("d_area_field", { ...text, name: "area", value: area, "data-testid": "edit-area" }),
    field("d_voice", { ...general, name: "voice", value: voice }),
    field("d_language", { ...general, name: "language", value: language }),
    field("d_wake_word", { ...general, name: "wake_word", value: wakeWord }),
    field("d_volume", { ...range, name: "volume", value: volume ?? "" }),
    labelled(
      "d_echo",
      h(
        "select",
        { name: "echo", "data-testid": "edit-echo" },
        h("option", { value: "" }, placeholder),
        ...modes,
      ),
    ),
    labelled("d_prompt", h("textarea", { ...prompt, value: instructions })),
    h("div", { class: "form-end" }, cancel("d_cancel", close), submit("d_save", "edit-save")),
  );
}
