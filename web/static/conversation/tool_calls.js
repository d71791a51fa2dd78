// The server's tools that an answer called, folded: name, arguments, result.

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

/** Returns JSON on several lines; a text that is not JSON stays. @param {string} json */
function indented(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
