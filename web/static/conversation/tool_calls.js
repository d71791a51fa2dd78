// The server's tools that an answer called, folded: name, what changed, arguments, result.

import { stateInWords } from "../home/home.js";
import { h } from "../view/keyed.js";
import { t } from "../words/translate.js";

/** @typedef {import("./reducer.js").ToolCall} ToolCall */

/** @param {ToolCall[]} calls */
export const toolCalls = (calls) =>
  h(
    "details",
    { class: "tools", "data-testid": "tools" },
    h("summary", {}, t("tools_called", { names: calls.map(({ name }) => name).join(", ") })),
    ...calls.map((call, index) =>
      h(
        "dl",
        { key: index },
        h("dt", { key: "name" }, h("code", {}, call.name)),
        ...changes(call.output ?? ""),
        ...row("tool_arguments", call.arguments),
        ...row("tool_result", call.output ?? ""),
      ),
    ),
  );

/**
 * @param {string} name
 * @param {string} json
 */
function row(name, json) {
  if (!json) return [];
  return [
    h("dt", { key: `${name} term` }, t(name)),
    h("dd", { key: name }, h("pre", { tabindex: "0", "aria-label": t(name) }, indented(json))),
  ];
}

/** Returns the row that names the devices which a call has changed. @param {string} output */
function changes(output) {
  const targets = parsed(output)?.targets;
  if (!Array.isArray(targets)) return [];
  const devices = targets.filter((target) => typeof target?.name === "string").map(deviceText);
  if (!devices.length) return [];
  return [
    h("dt", { key: "changed term" }, t("tool_changed")),
    h("dd", { key: "changed", "data-testid": "tool-changed" }, devices.join("; ")),
  ];
}

/**
 * Returns a device with its new state. Home Assistant does not tell the state, and a tool of another
 * author may call anything a target.
 *
 * @param {{ name: string, kind: string, state: string, attributes: any }} device
 */
function deviceText({ name, kind, state, attributes }) {
  const isKnown = t(`s_${state}`) !== `s_${state}`;
  if (!isKnown) return name;
  return `${name}: ${stateInWords({ kind, state, attributes: attributes ?? {} })}`;
}

/** Returns JSON on several lines; a text that is not JSON stays. @param {string} json */
function indented(json) {
  const value = parsed(json);
  return value === undefined ? json : JSON.stringify(value, null, 2);
}

/** Returns the value of a JSON text; undefined if it is none. @param {string} json */
function parsed(json) {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
