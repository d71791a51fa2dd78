// The microphone, the speaker and the room of this browser. They are kept here, not on the server.

import { h } from "../view/keyed.js";
import { t } from "../words/translate.js";

/** @typedef {import("../state/choices.js").Choices} Choices */

/** @type {MediaDeviceInfo[]} */
let known = [];

/** True if the browser lets a page choose the speaker; Safari and Firefox for Android do not. */
const canChooseSpeaker = () => "setSinkId" in HTMLMediaElement.prototype;

/** Reads the list of devices. They have names once the user allowed the microphone. */
export async function readDevices() {
  known = (await navigator.mediaDevices?.enumerateDevices?.()) ?? [];
}

/**
 * Describes the fields.
 *
 * @param {Choices} choices
 * @param {(changes: Partial<Choices>) => void} choose
 */
export function browserFields(choices, choose) {
  return [
    field("microphone", "audioinput", choices.microphone, (microphone) => choose({ microphone })),
    canChooseSpeaker() &&
      field("speaker", "audiooutput", choices.speaker, (speaker) => choose({ speaker })),
    room(choices.area, (area) => choose({ area })),
  ];
}

/**
 * @param {string} area name of the room; empty: unknown
 * @param {(area: string) => void} choose
 */
function room(area, choose) {
  const id = "setting-room";
  return h(
    "div",
    { key: "room", class: "setting" },
    h("label", { for: id }, t("set_room")),
    h("input", {
      id,
      type: "text",
      value: area,
      maxlength: "64",
      autocomplete: "off",
      "data-testid": "setting room",
      change: (/** @type {any} */ { target }) => choose(target.value.trim()),
    }),
    h("p", { class: "setting-help" }, t("set_room_help")),
  );
}

/**
 * @param {"microphone" | "speaker"} name
 * @param {MediaDeviceKind} kind
 * @param {string} chosen id of a device; empty: the system's choice
 * @param {(id: string) => void} choose
 */
function field(name, kind, chosen, choose) {
  const id = `setting-${name}`;
  // Before the user allowed the microphone, devices have neither id nor name.
  const devices = known.filter(
    (one) => one.kind === kind && one.deviceId && one.deviceId !== "default",
  );
  const options = devices.map(({ deviceId, label }, index) =>
    h(
      "option",
      { key: deviceId, value: deviceId, selected: deviceId === chosen },
      label || `${t(`set_${name}`)} ${index + 1}`,
    ),
  );
  return h(
    "div",
    { key: name, class: "setting" },
    h("label", { for: id }, t(`set_${name}`)),
    h(
      "select",
      {
        id,
        "data-testid": `setting ${name}`,
        change: (/** @type {any} */ { target }) => choose(target.value),
      },
      h(
        "option",
        { key: "", value: "", selected: !devices.some((one) => one.deviceId === chosen) },
        t("set_system"),
      ),
      ...options,
    ),
  );
}
