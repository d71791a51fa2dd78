// Models that can be fetched: how large each is, which languages it knows, how far its download is.

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
 * Lists the recognisers.
 *
 * @param {DownloadsReport | null} report
 * @param {Actions} actions
 */
export const recogniserList = (report, actions) =>
  modelList("recognisers", "set_recognisers", ["asr"], report, actions);

/**
 * Lists the models for embeddings and reranking. Clients of the API name them, so none is chosen.
 *
 * @param {DownloadsReport | null} report
 * @param {Omit<Actions, "use">} actions
 */
export const textModelList = (report, actions) =>
  modelList("text-models", "set_text_models", ["embed", "rerank", "clip"], report, actions);

/**
 * @param {string} key
 * @param {string} title key of its text
 * @param {Available["kind"][]} kinds
 * @param {DownloadsReport | null} report
 * @param {Omit<Actions, "use"> & Partial<Actions>} actions
 */
function modelList(key, title, kinds, report, actions) {
  if (!report) return null;
  const models = report.available.filter(({ kind }) => kinds.includes(kind));
  return h(
    "details",
    { key, class: "setting-group", "data-testid": key },
    h("summary", {}, t(title)),
    h("p", { class: "setting-help" }, t("set_free", { size: formatBytes(report.free_bytes) })),
    h(
      "ul",
      { class: "recognisers" },
      ...models.map((one) => model(one, pullOf(report, one.name), actions)),
    ),
  );
}

/**
 * @param {Available} available
 * @param {Pull | undefined} pull
 * @param {Omit<Actions, "use"> & Partial<Actions>} actions
 */
function model(available, pull, { pull: fetchIt, cancel, remove, use }) {
  const { name } = available;
  const isRunning = pull?.state === "running";
  const buttons = isRunning
    ? [button(name, "fetch_cancel", () => cancel(name))]
    : available.is_installed
      ? [
          use ? button(name, "set_use", () => use(name)) : null,
          button(name, "set_remove", () => remove(name)),
        ]
      : [button(name, "set_get", () => fetchIt(name))];
  return h(
    "li",
    { key: name, "data-testid": `model ${name}` },
    h("strong", {}, name),
    h(
      "span",
      { class: "setting-facts" },
      `${formatBytes(available.size_bytes)} · ${available.languages}`,
    ),
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
