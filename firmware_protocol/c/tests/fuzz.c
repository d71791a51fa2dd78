/* A libFuzzer target: for any bytes of a server the client stays within its buffers and states. */
#include "rig.h"

static const char *echo(void *context, earshot_json arguments, earshot_writer *result) {
  earshot_client *client = context;
  CHECK(earshot_client_listen(client, EARSHOT_MODE_AUTO) == EARSHOT_BAD_STATE);
  CHECK(earshot_client_close(client) == EARSHOT_BAD_STATE);
  earshot_put_escaped_bytes(result, arguments.data, arguments.len);
  return arguments.len % 2 ? "odd" : NULL;
}

static void check_event(const earshot_event *event) {
  CHECK(event->kind >= EARSHOT_EVENT_NONE && event->kind <= EARSHOT_EVENT_FAILED);
  CHECK(event->text.data == NULL || event->text.data[event->text.len] == '\0');
  CHECK(event->audio.payload_len <= EARSHOT_PAYLOAD_BYTES_MAX);
  CHECK(event->payload.data == NULL || earshot_json_is_object(event->payload));
}

static void give(earshot_client *client, const uint8_t *data, size_t len) {
  uint8_t *copy = malloc(len > 0 ? len : 1);
  CHECK(copy != NULL);
  if (len > 0) memcpy(copy, data, len);
  for (size_t used = 0; used < len;) {
    earshot_event event;
    size_t taken = earshot_client_receive(client, copy + used, len - used, &event);
    CHECK(taken > 0 && taken <= len - used);
    CHECK(client->ws.tx_len <= client->ws.tx_cap && client->ws.rx_len <= client->ws.rx_cap);
    CHECK((client->ws.state == EARSHOT_WS_OPEN) >= (client->state > EARSHOT_STATE_CONNECTING));
    check_event(&event);
    used += taken;
  }
  free(copy);
}

static void act(earshot_client *client, unsigned what, const uint8_t *data, size_t len) {
  earshot_event event;
  switch (what % 8) {
    case 0: earshot_client_listen(client, (earshot_mode)(what / 8 % 3)); break;
    case 1: earshot_client_audio(client, data, len, what); break;
    case 2: earshot_client_abort(client, what >= 128); break;
    case 3: earshot_client_listen_stop(client); break;
    case 4: earshot_client_sent(client, what); break;
    case 5: earshot_client_wake_word(client, "hi"); break;
    case 6:
      earshot_client_tick(client, what << 12, &event);
      check_event(&event);
      break;
    default:
      if (what == 7) earshot_client_close(client);
  }
}

/* The input is a script: a byte chooses raw bytes, a server frame or a call as the next step. */
static void talk(const uint8_t *data, size_t len, int version) {
  static uint8_t wire[70000];
  rig r;
  earshot_tool tools[] = {{"self.audio_speaker.set_volume", "Echo.", NULL, false, echo, &r.client}};
  earshot_config config = rig_config(&r, version, 2048, 2048);
  config.mcp.name = config.mcp.version = "x";
  config.mcp.tools = tools;
  config.mcp.tools_len = 1;
  CHECK(earshot_client_init(&r.client, &config) == EARSHOT_OK &&
        earshot_client_open(&r.client) == EARSHOT_OK);
  earshot_client_sent(&r.client, 2048);
  give(&r.client, (const uint8_t *)accepted, sizeof accepted - 1);
  give(&r.client, wire, server_frame(wire, 0x81, server_hello, sizeof server_hello - 1));
  while (len >= 3) {
    unsigned what = data[0];
    size_t size = (((size_t)data[1] << 8) | data[2]) % 4096;
    data += 3;
    len -= 3;
    size = size < len ? size : len;
    if (what < 64) give(&r.client, wire, server_frame(wire, 0x80 | (what & 15), data, size));
    else if (what < 96) give(&r.client, wire, server_frame(wire, what & 15, data, size));
    else if (what < 128) give(&r.client, data, size);
    else act(&r.client, what & 127, data, size), size = 0;
    data += size;
    len -= size;
  }
  rig_free(&r);
}

static void check_json(const uint8_t *data, size_t len) {
  char *copy = malloc(len + 1), *room = malloc(6 * len + 3);
  earshot_message message;
  earshot_json value;
  size_t text_len;
  CHECK(copy != NULL && room != NULL);
  if (len > 0) memcpy(copy, data, len);
  earshot_writer out = earshot_writer_to(room, 6 * len + 3); /* any bytes make a good string */
  earshot_put(&out, "\"");
  earshot_put_escaped_bytes(&out, copy, len);
  earshot_put(&out, "\"");
  CHECK(!out.is_full && earshot_json_check(room, out.len, &value));
  CHECK(earshot_json_to_text(value, room, out.len, &text_len)); /* in place, as messages are */
  earshot_json raw = {copy, len}; /* unchecked text must be safe, too */
  earshot_json_get(raw, "a", &value);
  earshot_json_equals(raw, "a");
  earshot_status status = earshot_message_read(copy, len, &message);
  CHECK(status == EARSHOT_OK || status == EARSHOT_BAD_JSON || status == EARSHOT_BAD_MESSAGE ||
        status == EARSHOT_TOO_LARGE);
  free(copy);
  free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  earshot_frame frame;
  if (len < 1) return 0;
  int version = 1 + data[0] % 3;
  switch (data[0] / 3 % 4) {
    case 0: earshot_frame_decode(version, data + 1, len - 1, &frame); break;
    case 1: check_json(data + 1, len - 1); break;
    default: talk(data + 1, len - 1, version);
  }
  return 0;
}
