// Recognisers that can be fetched: how large each is, what it hears, how far its download is.

import { pullOf } from "../server/downloads.js";
import { h } from "../view/keyed.js";
import { formatBytes, formatSeconds, t } from "../words/translate.js";

/**
 * @typedef {import("../server/downloads.js").DownloadsReport} DownloadsReport
 * @typedef {import("../server/downloads.js").Available} Available
 * @typedef {import("../server/downloads.js").Pull} Pull
 * @typedef {object} Actions
 * @property {(model: string) => void} pull
 * @property {(model: string) => void} cancel
 * @property {(model: string) => void} remove
 * @property {(model: string) => void} use
 */

/** Says how far a download is. @param {Pull} pull */
export function progressOf({ model, state, done_bytes: done, total_bytes: total, ...pull }) {
  if (state === "failed") return t("fetch_failed", { model, reason: pull.message });
  if (state !== "running") return "";
  if (!total) return t("fetching", { model });
  const left = pull.seconds_left === null ? "…" : formatSeconds(pull.seconds_left);
  return t("fetching_bytes", { model, done: formatBytes(done), size: formatBytes(total), left });
}

/**
 * @param {DownloadsReport | null} report
 * @param {Actions} actions
 */
export function recogniserList(report, actions) {
  if (!report) return null;
  return h(
    "details",
    { key: "recognisers", class: "setting-group", "data-testid": "recognisers" },
    h("summary", {}, t("set_recognisers")),
    h("p", { class: "setting-help" }, t("set_free", { size: formatBytes(report.free_bytes) })),
    h(
      "ul",
      { class: "recognisers" },
      ...report.available.map((one) => recogniser(one, pullOf(report, one.name), actions)),
    ),
  );
}

/**
 * @param {Available} model
 * @param {Pull | undefined} pull
 * @param {Actions} actions
 */
function recogniser(model, pull, { pull: fetchIt, cancel, remove, use }) {
  const { name } = model;
  const isRunning = pull?.state === "running";
  const buttons = isRunning
    ? [button(name, "fetch_cancel", () => cancel(name))]
    : model.is_installed
      ? [button(name, "set_use", () => use(name)), button(name, "set_remove", () => remove(name))]
      : [button(name, "set_get", () => fetchIt(name))];
  return h(
    "li",
    { key: name, "data-testid": `recogniser ${name}` },
    h("strong", {}, name),
    h("span", { class: "setting-facts" }, `${formatBytes(model.size_bytes)} · ${model.languages}`),
    h("span", { class: "recogniser-buttons" }, ...buttons),
    h(
      "p",
      { class: "model-result", role: "status", "data-bad": String(pull?.state === "failed") },
      pull && progressOf(pull),
    ),
  );
}

/**
 * @param {string} model
 * @param {string} key of its text
 * @param {() => void} click
 */
const button = (model, key, click) =>
  h(
    "button",
    { key, type: "button", class: "quiet", "aria-label": `${t(key)}: ${model}`, click },
    t(key),
  );
