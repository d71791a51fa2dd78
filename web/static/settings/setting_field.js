// One setting as a form field: label, input, help, where its value comes from, what is wrong.

import { h } from "../view/keyed.js";
import { languageName, t } from "../words/translate.js";
import { settingText } from "./setting_texts.js";

/**
 * @typedef {string | number | boolean | string[] | null} Value null: the default
 * @typedef {{ key: string, group: string, label: string, help: string, allowed: string,
 *   type: "text" | "long_text" | "secret" | "integer" | "number" | "boolean" | "choice" | "list",
 *   applies: "new_sessions" | "restart", source: string, value?: Value, default?: Value,
 *   is_set?: boolean, is_locked?: boolean, is_common?: boolean, is_optional?: boolean,
 *   is_pending?: boolean, choices?: { value: string, label: string }[], minimum?: number,
 *   maximum?: number, max_length?: number }} Field as the server describes it
 * @typedef {object} Shown
 * @property {Value | undefined} value what the user chose
 * @property {boolean} isChanged whether the user chose a value
 * @property {string} problem empty if there is none
 * @property {(value: Value | undefined) => void} change called with what the user chose; undefined: as
 *   it was
 * @property {import("../view/keyed.js").Description | null} action a button beside the input
 */

/** Id of a setting's input. @param {string} key */
export const idOf = (key) => `setting-${key.replaceAll(".", "-")}`;

/** Returns a setting's name in the page's language; the server's English one if there is none. @param {Field} field */
export function labelOf({ key, label }) {
  const name = key.startsWith("llm.options.") ? key.split(".").at(-1) : key.replaceAll(".", "_");
  const word = t(`set_${name}`);
  return word === `set_${name}` ? settingText(label) : word;
}

/**
 * @param {Field} field
 * @param {Shown} shown
 */
export function settingField(field, shown) {
  const id = idOf(field.key);
  const { problem, action } = shown;
  const about = [`${id}-help`, `${id}-facts`, ...(problem ? [`${id}-problem`] : [])].join(" ");
  const props = {
    id,
    key: "input",
    disabled: Boolean(field.is_locked),
    "aria-describedby": about,
    "aria-invalid": problem ? "true" : null,
    "data-testid": `setting ${field.key}`,
  };
  const isCheck = field.type === "boolean";
  const label = h("label", { key: "label", for: id }, labelOf(field));
  const made = INPUTS[field.type](field, shown, props);
  return h(
    "div",
    { key: field.key, class: isCheck ? "setting check" : "setting" },
    ...(isCheck ? [made, label] : [label, h("div", { class: "setting-row" }, made, action)]),
    h("p", { key: "help", id: `${id}-help`, class: "setting-help" }, settingText(field.help)),
    facts(field, shown, `${id}-facts`),
    problem && h("p", { key: "problem", id: `${id}-problem`, class: "setting-problem" }, problem),
  );
}

/**
 * @param {Field} field
 * @param {Shown} shown
 * @param {string} id
 */
function facts(field, { change, isChanged, value }, id) {
  const { source, is_locked: isLocked, is_set: isSet, is_pending: isPending, type } = field;
  const isReset = isChanged && value === null;
  const parts = [
    isLocked && t("set_locked", { name: source }),
    type === "secret" && !isLocked && t(isSet ? "set_secret_set" : "set_secret_none"),
    t(`set_applies_${field.applies}`),
    isPending && t("set_pending"),
    isReset && t("set_to_default"),
  ];
  const hasDefault = field.default !== undefined || field.is_optional || type === "secret";
  const canReset = isSet && hasDefault && !isLocked && !isReset;
  return h(
    "p",
    { key: "facts", id, class: "setting-facts" },
    parts.filter(Boolean).join(" · "),
    canReset &&
      h(
        "button",
        { type: "button", class: "link", click: () => change(null) },
        t(type === "secret" ? "set_forget" : "set_default"),
      ),
  );
}

/**
 * @typedef {(field: Field, shown: Shown, props: import("../view/keyed.js").Props) =>
 *   import("../view/keyed.js").Description} Input
 * @type {Record<Field["type"], Input>}
 */
const INPUTS = {
  text: (field, shown, props) =>
    h("input", {
      ...props,
      ...typed(field, shown),
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      maxlength: field.max_length ?? null,
    }),
  long_text: (field, shown, props) =>
    h("textarea", {
      ...props,
      ...typed(field, shown),
      rows: "4",
      maxlength: field.max_length ?? null,
    }),
  secret: (field, { value, change }, props) =>
    h("input", {
      ...props,
      type: "password",
      autocomplete: "new-password",
      value: typeof value === "string" ? value : "",
      placeholder: field.is_set ? "••••••••" : null,
      input: (/** @type {any} */ { target }) => change(target.value || undefined),
    }),
  integer: (field, shown, props) => number(field, shown, { ...props, step: "1" }),
  number: (field, shown, props) => number(field, shown, { ...props, step: "any" }),
  boolean: (field, { value, isChanged, change }, props) =>
    h("input", {
      ...props,
      type: "checkbox",
      checked: Boolean(isChanged ? (value ?? field.default) : field.value),
      change: (/** @type {any} */ { target }) =>
        change(target.checked === field.value ? undefined : target.checked),
    }),
  choice: (field, { value, isChanged, change }, props) => {
    const chosen = isChanged ? (value ?? field.default) : field.value;
    const options = (field.choices ?? []).map((one) =>
      h(
        "option",
        { key: one.value, value: one.value, selected: one.value === chosen },
        named(field, one),
      ),
    );
    return h(
      "select",
      {
        ...props,
        change: (/** @type {any} */ { target }) =>
          change(target.value === field.value ? undefined : target.value),
      },
      ...options,
    );
  },
  list: (field, shown, props) =>
    h("input", {
      ...props,
      type: "text",
      autocomplete: "off",
      value: listed(shown.isChanged ? shown.value : field.value),
      placeholder: t("set_list"),
      input: (/** @type {any} */ { target }) => {
        const parts = target.value.split(",").map((/** @type {string} */ one) => one.trim());
        const value = parts.filter(Boolean);
        const isSame = listed(value) === listed(field.value);
        shown.change(isSame ? undefined : value.length ? value : null);
      },
    }),
};

/**
 * @param {Field} field
 * @param {Shown} shown
 */
const typed = (field, { value, isChanged, change }) => ({
  value: String((isChanged ? value : field.value) ?? ""),
  placeholder: field.default ? String(field.default) : null,
  input: (/** @type {any} */ { target }) => {
    const isSame = target.value === String(field.value ?? "");
    change(isSame ? undefined : target.value || null);
  },
});

/**
 * @param {Field} field
 * @param {Shown} shown
 * @param {import("../view/keyed.js").Props} props
 */
const number = (field, { value, isChanged, change }, props) =>
  h("input", {
    ...props,
    type: "number",
    inputmode: "decimal",
    min: field.minimum ?? null,
    max: field.maximum ?? null,
    value: String((isChanged ? value : field.value) ?? ""),
    placeholder:
      field.default === null || field.default === undefined ? null : String(field.default),
    input: (/** @type {any} */ { target }) => {
      const wanted = target.value === "" ? null : Number(target.value);
      change(wanted === (field.value ?? null) ? undefined : wanted);
    },
  });

/** @param {any} value */
const listed = (value) => (Array.isArray(value) ? value.join(", ") : "");

/**
 * @param {Field} field
 * @param {{ value: string, label: string }} choice
 */
function named({ key }, { value, label }) {
  if (key === "language") return languageName(value);
  if (value === "auto" || value === "default") return t("automatic");
  if (key === "assistant.wake_word" && value === "") return t("wake_off");
  const word = t(`set_choice_${value}`);
  return word === `set_choice_${value}` ? settingText(label) : word;
}
