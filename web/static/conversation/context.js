// The conversation's messages and tool calls, for a server that does not have them.

/**
 * @typedef {import("./reducer.js").ToolCall} ToolCall
 * @typedef {{ name: string, arguments: string, output?: string }} KeptToolCall
 */

const NAME = /^[\w.-]{1,128}$/; // of a function, for the server

/**
 * Returns the events that add a turn to the server's history.
 *
 * @param {import("./reducer.js").Turn} turn
 */
export function eventsOf({ itemId, responseId, said, reply, heard, tools }) {
  const answer = heard ?? reply;
  /** @type {object[]} */
  const items = [];
  if (itemId && said) items.push(message("user", "input_text", said, itemId));
  wholeCalls(tools).forEach((call, index) => {
    // The ids of models may be of any length, and may repeat.
    items.push(...itemsOfCall(call, `${itemId ?? responseId}_${index}`));
  });
  if (answer) items.push(message("assistant", "output_text", answer));
  return items.map((item) => ({ type: "conversation.item.create", item }));
}

/**
 * Returns the calls that a server takes back. It shows long arguments cut, which are no JSON then,
 * and a model may write a name that no tool can have.
 *
 * @param {ToolCall[]} calls
 */
export const wholeCalls = (calls) =>
  calls.filter((call) => NAME.test(call.name) && isObject(call.arguments));

/**
 * Returns a call in the form in which the server keeps it, and files hold it.
 *
 * @param {ToolCall} call
 * @returns {KeptToolCall}
 */
export const keptCall = ({ name, arguments: sent, output }) =>
  output === null ? { name, arguments: sent } : { name, arguments: sent, output };

/**
 * @param {ToolCall} call
 * @param {string} callId
 */
function itemsOfCall({ name, arguments: sent, output }, callId) {
  const call = { type: "function_call", call_id: callId, name, arguments: sent };
  if (output === null) return [call];
  return [call, { type: "function_call_output", call_id: callId, output }];
}

/**
 * @param {string} role
 * @param {string} type
 * @param {string} text
 * @param {string} [id]
 */
const message = (role, type, text, id) => ({
  type: "message",
  role,
  content: [{ type, text }],
  ...(id ? { id } : {}),
});

/** Returns whether a text is a JSON object. @param {string} json */
function isObject(json) {
  try {
    const value = JSON.parse(json);
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
