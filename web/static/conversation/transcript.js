// The conversation as a text and as JSON, to copy or to download.

import { t } from "../words/translate.js";
import { keptCall } from "./context.js";
import { isShown } from "./reducer.js";

/** @typedef {import("./reducer.js").Turn} Turn */

/** Returns what was said, with the names of both. @param {Turn[]} turns */
export const asText = (turns) =>
  turns
    .filter(isShown)
    .map((turn) => [line("you", turn.said), line("assistant", answerOf(turn))].join(""))
    .join("\n");

/**
 * Returns the turns as JSON: question, calls of the server's tools with their results, answer, and
 * how it ended. The calls have the form in which the server keeps them.
 *
 * @param {Turn[]} turns
 */
export const asJson = (turns) =>
  JSON.stringify(
    turns.filter(isShown).map(({ source, said, tools, reply, heard, status }) => ({
      source,
      said,
      tool_calls: tools.map(keptCall),
      reply,
      ...(status === "cut" ? { heard: heard ?? "" } : {}),
      status,
    })),
    null,
    2,
  );

/** @param {Turn} turn */
function answerOf({ status, reason, heard, reply }) {
  if (status === "failed") return t("failed", { reason });
  if (status === "lost") return t("lost");
  return status === "cut" ? `${heard ?? ""} [${t("cut")}]`.trim() : reply;
}

/**
 * @param {string} who
 * @param {string} text
 */
const line = (who, text) => (text ? `${t(who)}: ${text}\n` : "");
