// Requests to the server, with the key, and its refusals as one kind of error.

import { authorization } from "./key.js";

/** The server said no: `status` (0: not reached), stable `code`, seconds to wait before a retry. */
export class Refused extends Error {
  constructor(status, code, message, retryAfterS = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfterS = retryAfterS;
  }
}

/** A response with status 2xx; anything else becomes `Refused`. */
export async function request(path, options = {}) {
  const headers = { ...authorization(), ...options.headers };
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "unreachable", "");
  }
  if (response.ok) return response;
  throw await refusal(response);
}

export async function getJson(path, options) {
  return (await request(path, options)).json();
}

/** Server-sent events as {event, data}; EventSource cannot send the key. Ends with the stream. */
export async function* serverSent(path, signal) {
  const response = await request(path, { signal, headers: { Accept: "text/event-stream" } });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    const blocks = buffer.split("\n\n");
    buffer = blocks.pop();
    for (const block of blocks) {
      const event = parseBlock(block);
      if (event.data) yield event;
    }
  }
}

function parseBlock(block) {
  const event = { event: "message", data: "" };
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) event.event = line.slice(7);
    else if (line.startsWith("data: ")) event.data += line.slice(6);
  }
  return event;
}

async function refusal(response) {
  const retryAfter = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // Not our JSON (a proxy's page): the status alone has to do.
  }
  return new Refused(
    response.status,
    error.code ?? `http_${response.status}`,
    error.message ?? response.statusText,
    Number.isFinite(retryAfter) ? retryAfter : null,
  );
}
