// One device in the devices view: its facts, its state, and what can be done with it.

import { h } from "../view/keyed.js";
import { waterfall } from "../view/waterfall.js";
import { t } from "../words/translate.js";
import { traceOf } from "./device_trace.js";

/**
 * @typedef {import("./devices.js").Device} Device
 * @typedef {import("./devices.js").Action} Action
 */

/** Kinds of devices that can do each action. @type {Record<"update" | "restart", Set<string>>} */
const CAN = { update: new Set(["willow", "xiaozhi"]), restart: new Set(["willow", "xiaozhi"]) };

/**
 * @param {Device} device
 * @param {import("../view/keyed.js").Description | null} form the form that is open in the card
 * @param {(action: Action) => void} act
 */
export function deviceCard(device, form, act) {
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
        stateOf(device),
      ),
    ),
    h("p", { class: "device-facts" }, factsOf(device)),
    claimOf(device),
    waitingOf(device),
    lastTurnOf(device),
    h("div", { class: "device-actions" }, ...buttons),
    h("div", { class: "device-panel" }, form),
  );
}

/** @param {Device} device */
function stateOf({
  standing,
  doing,
  is_connected: isConnected,
  last_seen: seen,
  pairing_code: code,
}) {
  if (standing === "new" && code) return `${t("standing_new")} · ${t("shows_code", { code })}`;
  if (standing !== "approved") return t(`standing_${standing}`);
  if (isConnected) return t(`doing_${doing ?? "idle"}`);
  return seen ? t("is_away", { when: moment(seen) }) : t("never_seen");
}

/** @param {Device} device */
function factsOf({ kind, board, firmware, address, area, hardware_id: hardwareId }) {
  const what = [board, firmware].filter(Boolean).join(" ");
  const where = area ? t("d_area", { area }) : "";
  const id = hardwareId === address ? "" : hardwareId;
  return [kind, where, what, address, id].filter(Boolean).join(" · ");
}

/**
 * Returns a note for an approved device with a new identity: it was reset, or is another board.
 *
 * @param {Device} device
 */
function claimOf({ has_new_identity: isClaimed, pairing_code: code }) {
  if (!isClaimed) return null;
  const props = { key: "claim", class: "device-waiting", "data-testid": "device-claim" };
  return h("p", props, t("new_identity", { code }));
}

/** @param {Device} device */
function waitingOf({ waiting: n }) {
  if (!n) return null;
  const props = { key: "notices", class: "device-waiting", "data-testid": "device-waiting" };
  return h("p", props, t(n === 1 ? "d_waiting_one" : "d_waiting", { n }));
}

/** @param {Device} device */
function lastTurnOf({ timing }) {
  const trace = traceOf(timing);
  if (!trace) return null;
  const name = h("span", { class: "device-turn-name" }, t("last_turn"));
  return h("div", { class: "device-turn" }, name, waterfall(trace, false));
}

/** @param {Device} device @returns {[action: Action, style: string][]} */
function actionsOf({ standing, kind, has_new_identity: isClaimed, is_connected: isConnected }) {
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
  if (isConnected && CAN.restart.has(kind)) quiet.push("restart");
  if (isConnected && CAN.update.has(kind)) quiet.push("update");
  quiet.push("block", "forget");
  const rest = quiet.map((action) => /** @type {[Action, string]} */ ([action, "quiet"]));
  return isClaimed ? [["approve", "strong"], ...rest] : rest;
}

/** Returns a moment today as its time, an older one as its date. @param {string} iso */
function moment(iso) {
  const at = new Date(iso);
  const isToday = at.toDateString() === new Date().toDateString();
  /** @type {Intl.DateTimeFormatOptions} */
  const style = isToday ? { timeStyle: "short" } : { dateStyle: "medium" };
  return new Intl.DateTimeFormat(document.documentElement.lang || "en", style).format(at);
}
