// One device in the devices view: its facts, its state, and what can be done with it.

import { h } from "../view/keyed.js";
import { waterfall } from "../view/waterfall.js";
import { formatMoment, t } from "../words/translate.js";
import { deviceControls } from "./device_controls.js";
import { traceOf } from "./device_trace.js";

/**
 * @typedef {import("./devices.js").Device} Device
 * @typedef {import("./devices.js").Action} Action
 */

/** Kinds of devices that can do each action. @type {Record<"update" | "restart", Set<string>>} */
const KINDS_BY_ACTION = {
  update: new Set(["willow", "xiaozhi"]),
  restart: new Set(["willow", "xiaozhi"]),
};

/**
 * Returns the list entry of one device.
 *
 * @param {Device} device
 * @param {import("../view/keyed.js").Description | null} form the form that is open in the card
 * @param {(action: Action) => void} act called when the user clicks on an action
 * @param {import("./device_controls.js").Change} change changes the device's own settings
 */
export function deviceCard(device, form, act, change) {
  const buttons = actionsOf(device).map(([action, style]) => {
    const text = t(action === "edit" ? "d_edit" : action);
    const names = { "data-action": action, "data-testid": `device-${action}` };
    const click = () => act(action);
    return h("button", { key: action, type: "button", class: style, ...names, click }, text);
  });
  return h(
    "li",
    {
      key: device.id,
      class: "device",
      "data-id": device.id,
      "data-testid": "device",
      "data-standing": device.standing,
      "data-doing": device.doing ?? "away",
    },
    h(
      "div",
      { class: "device-head" },
      h("h3", {}, device.name),
      h(
        "p",
        { class: "device-state" },
        h("span", { class: "device-dot", "aria-hidden": "true" }),
        stateText(device),
      ),
    ),
    h("p", { class: "device-facts" }, factsText(device)),
    newIdentityNote(device),
    waitingNote(device),
    lastTurn(device),
    deviceControls(device, change),
    h("div", { class: "device-actions" }, ...buttons),
    h("div", { class: "device-panel" }, form),
  );
}

/** Returns in a few words what the device does, or why it may not. @param {Device} device */
function stateText({
  standing,
  doing,
  is_connected: isConnected,
  last_seen: seen,
  pairing_code: code,
}) {
  if (standing === "new" && code) return `${t("standing_new")} · ${t("shows_code", { code })}`;
  if (standing !== "approved") return t(`standing_${standing}`);
  if (isConnected) return t(`doing_${doing ?? "idle"}`);
  return seen ? t("is_away", { when: formatMoment(seen) }) : t("never_seen");
}

/** Returns what the device is and where it is. @param {Device} device */
function factsText({ kind, board, firmware, address, area, hardware_id: hardwareId }) {
  const what = [board, firmware].filter(Boolean).join(" ");
  const where = area ? t("d_area", { area }) : "";
  const id = hardwareId === address ? "" : hardwareId;
  return [kind, where, what, address, id].filter(Boolean).join(" · ");
}

/**
 * Returns a note for an approved device with a new identity: it was reset, or it is another board
 * that uses its name.
 *
 * @param {Device} device
 */
function newIdentityNote({ has_new_identity: hasNewIdentity, pairing_code: code }) {
  if (!hasNewIdentity) return null;
  const props = { key: "claim", class: "device-waiting", "data-testid": "device-claim" };
  return h("p", props, t("new_identity", { code }));
}

/** Returns how many announcements wait until the device is connected. @param {Device} device */
function waitingNote({ waiting: n }) {
  if (!n) return null;
  const props = { key: "notices", class: "device-waiting", "data-testid": "device-waiting" };
  return h("p", props, t(n === 1 ? "d_waiting_one" : "d_waiting", { n }));
}

/** Returns the timing of the device's last turn; null if there is none. @param {Device} device */
function lastTurn({ timing }) {
  const trace = traceOf(timing);
  if (!trace) return null;
  const name = h("span", { class: "device-turn-name" }, t("last_turn"));
  return h("div", { class: "device-turn" }, name, waterfall(trace, false));
}

/**
 * Returns what can be done with a device now, with the class of each button.
 *
 * @param {Device} device
 * @returns {[action: Action, style: string][]}
 */
function actionsOf({
  standing,
  kind,
  has_new_identity: hasNewIdentity,
  is_connected: isConnected,
}) {
  if (standing === "new") {
    return [
      ["approve", "strong"],
      ["block", "quiet"],
      ["forget", "quiet"],
    ];
  }
  if (standing === "blocked") {
    return [
      ["approve", "quiet"],
      ["forget", "quiet"],
    ];
  }
  /** @type {Action[]} */
  const quiet = ["edit"];
  if (kind !== "wyoming") quiet.unshift("announce");
  if (isConnected && KINDS_BY_ACTION.restart.has(kind)) quiet.push("restart");
  if (isConnected && KINDS_BY_ACTION.update.has(kind)) quiet.push("update");
  quiet.push("block", "forget");
  const rest = quiet.map((action) => /** @type {[Action, string]} */ ([action, "quiet"]));
  return hasNewIdentity ? [["approve", "strong"], ...rest] : rest;
}
