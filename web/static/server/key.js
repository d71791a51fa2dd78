// The server's key: taken from the address once, kept for this tab, sent as a Bearer token.

import { read, write } from "../state/storage.js";

const STORED = "earshot.key";

/** Move a `#key=...` from the address bar, where it would be seen and bookmarked, into this tab. */
export function takeKey() {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (!key) return;
  setKey(key);
  history.replaceState(null, "", location.pathname + location.search);
}

/** @param {string} key */
export const setKey = (key) => write("tab", STORED, key.trim());

/**
 * Headers for every request to the server; empty without a key.
 *
 * @returns {Record<string, string>}
 */
export function authorization() {
  const key = read("tab", STORED);
  return key ? { Authorization: `Bearer ${key}` } : {};
}
