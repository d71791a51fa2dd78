// One device in the devices view: what it is, what it does, what can be done with it.

import { h } from "../view/keyed.js";
import { traceOf } from "./device_trace.js";
import { t } from "../words/translate.js";
import { waterfall } from "../view/waterfall.js";

const FIELDS = ["voice", "language", "wake_word"];
const ECHO = ["off", "cancel", "half_duplex"];
const CAN = { update: new Set(["willow", "xiaozhi"]), restart: new Set(["willow", "xiaozhi"]) };

export function deviceCard(device, actions, isOpen) {
  const panel = h("div", { class: "device-panel" });
  const card = h(
    "li",
    {
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
        state(device),
      ),
    ),
    h("p", { class: "device-facts" }, facts(device)),
    claim(device),
    waiting(device),
    lastTurn(device, isOpen),
    h("div", { class: "device-actions" }, ...buttons(device, actions, panel)),
    panel,
  );
  return card;
}

function state({
  standing,
  doing,
  is_connected: isConnected,
  last_seen: seen,
  pairing_code: code,
}) {
  if (standing === "new") {
    return code ? `${t("standing_new")} · ${t("shows_code", { code })}` : t("standing_new");
  }
  if (standing === "blocked") return t("standing_blocked");
  if (isConnected) return t(`doing_${doing ?? "idle"}`);
  return seen ? t("is_away", { when: moment(seen) }) : t("never_seen");
}

function facts({ kind, board, firmware, address, area, hardware_id: id }) {
  const what = [board, firmware].filter(Boolean).join(" ");
  return [kind, area ? t("d_area", { area }) : "", what, address, id === address ? "" : id]
    .filter(Boolean)
    .join(" · ");
}

/** It was approved, and came as another one: reset, or not it at all. */
function claim({ has_new_identity: isClaimed, pairing_code: code }) {
  return isClaimed
    ? h(
        "p",
        { class: "device-waiting", "data-testid": "device-claim" },
        t("new_identity", { code }),
      )
    : null;
}

function waiting({ waiting: n }) {
  if (!n) return null;
  return h(
    "p",
    { class: "device-waiting", "data-testid": "device-waiting" },
    t(n === 1 ? "d_waiting_one" : "d_waiting", { n }),
  );
}

function lastTurn({ timing }, isOpen) {
  const trace = traceOf(timing);
  return trace
    ? h(
        "div",
        { class: "device-turn" },
        h("span", { class: "device-turn-name" }, t("last_turn")),
        waterfall(trace, isOpen),
      )
    : null;
}

function buttons(device, actions, panel) {
  const open = (form) => {
    actions.editing(true);
    panel.replaceChildren(form);
    panel.querySelector("input, select, textarea, button")?.focus();
  };
  const close = () => {
    panel.replaceChildren();
    actions.editing(false);
  };
  const button = (action, handler, style = "quiet") =>
    h(
      "button",
      {
        type: "button",
        class: style,
        "data-action": action,
        "data-testid": `device-${action}`,
        click: handler,
      },
      t(action === "edit" ? "d_edit" : action),
    );
  const forget = button("forget", () => open(sure(actions, close)));
  if (device.standing === "new") {
    return [button("approve", actions.approve, "strong"), button("block", actions.block), forget];
  }
  if (device.standing === "blocked") return [button("approve", actions.approve), forget];
  const can = (what) => device.is_connected && CAN[what].has(device.kind);
  return [
    device.has_new_identity ? button("approve", actions.approve, "strong") : null,
    device.kind === "wyoming"
      ? null
      : button("announce", () => open(announce(device, actions, close))),
    button("edit", () => open(edit(device, actions, close))),
    can("restart") ? button("restart", actions.restart) : null,
    can("update")
      ? button("update", async () => {
          actions.editing(true); // what is drawn meanwhile would take this card away
          const there = await actions.firmware();
          if (there) open(update(device, there, actions, close));
          else close();
        })
      : null,
    button("block", actions.block),
    forget,
  ].filter(Boolean);
}

function sure(actions, close) {
  return h(
    "div",
    { class: "device-form", role: "group", "aria-label": t("forget") },
    h("p", {}, t("forget_sure")),
    h("button", { type: "button", class: "quiet", click: close }, t("keep")),
    h(
      "button",
      {
        type: "button",
        class: "strong danger",
        "data-testid": "device-forget-sure",
        click: () => {
          close();
          actions.forget();
        },
      },
      t("forget"),
    ),
  );
}

function announce(device, actions, close) {
  const text = h("input", {
    type: "text",
    required: true,
    maxlength: "1000",
    "aria-label": t("announce_text", { name: device.name }),
    placeholder: t("announce_text", { name: device.name }),
    "data-testid": "announce-text",
  });
  const everywhere = h("input", { type: "checkbox" });
  const submit = async (event) => {
    event.preventDefault();
    if (await actions.announce(text.value, everywhere.checked)) close();
  };
  return h(
    "form",
    { class: "device-form", submit },
    text,
    device.area
      ? h("label", { class: "check" }, everywhere, t("announce_area", { area: device.area }))
      : null,
    h("button", { type: "button", class: "quiet", click: close }, t("d_cancel")),
    h(
      "button",
      { type: "submit", class: "strong", "data-testid": "announce-send" },
      t("announce_send"),
    ),
  );
}

/** `there`: the images that the server has for this board, and where further ones are to be put. */
function update(device, { images, place }, actions, close) {
  const cancel = h("button", { type: "button", class: "quiet", click: close }, t("d_cancel"));
  if (!images.length) {
    return h(
      "div",
      { class: "device-form", role: "group", "aria-label": t("update") },
      h("p", { "data-testid": "no-firmware" }, t("no_firmware", { place })),
      cancel,
    );
  }
  const named = ({ version }) =>
    version === device.firmware ? t("firmware_now", { version }) : version;
  const version = h(
    "select",
    { "aria-label": t("firmware"), "data-testid": "firmware" },
    ...images.map((one) =>
      h("option", { value: one.version, title: `SHA-256 ${one.sha256}` }, named(one)),
    ),
  );
  const submit = async (event) => {
    event.preventDefault();
    if (await actions.update(version.value)) close();
  };
  return h(
    "form",
    { class: "device-form", submit },
    h("label", {}, h("span", {}, t("firmware")), version),
    cancel,
    h("button", { type: "submit", class: "strong", "data-testid": "update-send" }, t("update")),
  );
}

function edit(device, actions, close) {
  const { profile } = device;
  const inputs = {
    name: h("input", {
      type: "text",
      required: true,
      maxlength: "64",
      value: device.name,
      "data-testid": "edit-name",
    }),
    area: h("input", {
      type: "text",
      maxlength: "64",
      value: device.area,
      "data-testid": "edit-area",
    }),
    volume: h("input", {
      type: "number",
      min: "0",
      max: "100",
      value: profile.volume ?? "",
      placeholder: t("as_everywhere"),
    }),
    instructions: h(
      "textarea",
      { rows: "2", maxlength: "10000", placeholder: t("as_everywhere") },
      profile.instructions,
    ),
  };
  inputs.echo = h(
    "select",
    { "data-testid": "edit-echo" },
    h("option", { value: "" }, t("as_everywhere")),
    ...ECHO.map((mode) =>
      h("option", { value: mode, selected: mode === profile.echo }, t(`echo_${mode}`)),
    ),
  );
  for (const name of FIELDS) {
    inputs[name] = h("input", {
      type: "text",
      maxlength: "64",
      value: profile[name],
      placeholder: t("as_everywhere"),
    });
  }
  const submit = async (event) => {
    event.preventDefault();
    const { name, area, volume, instructions, echo } = inputs;
    const changed = {
      instructions: instructions.value,
      echo: echo.value,
      volume: volume.value === "" ? null : Number(volume.value),
    };
    for (const field of FIELDS) changed[field] = inputs[field].value.trim();
    if (
      await actions.save({ name: name.value.trim(), area: area.value.trim(), profile: changed })
    ) {
      close();
    }
  };
  const field = (key, input) => h("label", {}, h("span", {}, t(key)), input);
  return h(
    "form",
    { class: "device-form edit", submit },
    field("d_name", inputs.name),
    field("d_area_field", inputs.area),
    field("d_voice", inputs.voice),
    field("d_language", inputs.language),
    field("d_wake_word", inputs.wake_word),
    field("d_volume", inputs.volume),
    field("d_echo", inputs.echo),
    field("d_prompt", inputs.instructions),
    h(
      "div",
      { class: "form-end" },
      h("button", { type: "button", class: "quiet", click: close }, t("d_cancel")),
      h("button", { type: "submit", class: "strong", "data-testid": "edit-save" }, t("d_save")),
    ),
  );
}

/** A moment today as its time, an older one as its date. */
function moment(iso) {
  const at = new Date(iso);
  const isToday = at.toDateString() === new Date().toDateString();
  const style = isToday ? { timeStyle: "short" } : { dateStyle: "medium" };
  return new Intl.DateTimeFormat(document.documentElement.lang || "en", style).format(at);
}
