#include "scene.h"

uint8_t wire[RX_BYTES + 100];

rig r;
sent_frame sent;

earshot_event give(const void *data, size_t len) {
  earshot_event event, extra;
  size_t used = earshot_client_receive(&r.client, data, len, &event);
  while (used < len) {
    used += earshot_client_receive(&r.client, (const uint8_t *)data + used, len - used, &extra);
    CHECK(extra.kind == EARSHOT_EVENT_NONE);
  }
  return event;
}

earshot_event give_frame(unsigned first_byte, const void *payload, size_t len) {
  return give(wire, server_frame(wire, first_byte, payload, len));
}

earshot_event say(const char *json) { return give_frame(0x81, json, strlen(json)); }

bool take_sent(void) {
  size_t len;
  const uint8_t *out = earshot_client_output(&r.client, &len);
  if (len == 0) return false;
  size_t at = 2;
  CHECK(len >= 6 && (out[0] & 0xf0) == 0x80 && (out[1] & 0x80) != 0);
  sent.opcode = out[0] & 0x0f;
  sent.len = out[1] & 0x7f;
  CHECK(sent.len != 127);
  if (sent.len == 126) {
    sent.len = (size_t)(out[2] << 8 | out[3]);
    CHECK(sent.len >= 126); /* RFC 6455, 5.2: the shortest form */
    at = 4;
  }
  const uint8_t *mask = out + at;
  at += 4;
  CHECK(len >= at + sent.len);
  for (size_t i = 0; i < sent.len; i++) sent.payload[i] = out[at + i] ^ mask[i % 4];
  sent.payload[sent.len] = 0;
  earshot_client_sent(&r.client, at + sent.len);
  return true;
}

bool has_sent(const char *text) {
  return take_sent() && sent.opcode == 1 && strcmp((char *)sent.payload, text) == 0;
}

void dial(void) {
  CHECK(earshot_client_open(&r.client) == EARSHOT_OK);
  CHECK(earshot_client_state(&r.client) == EARSHOT_STATE_CONNECTING);
  CHECK(earshot_client_open(&r.client) == EARSHOT_BAD_STATE);
  earshot_client_sent(&r.client, r.client.ws.tx_len);
  CHECK(give(accepted, sizeof accepted - 1).kind == EARSHOT_EVENT_NONE);
  CHECK(take_sent() && strncmp((char *)sent.payload, "{\"type\":\"hello\"", 15) == 0);
}

void shake_hands(int version, size_t rx_cap, size_t tx_cap) {
  earshot_config config = rig_config(&r, version, rx_cap, tx_cap);
  CHECK(earshot_client_init(&r.client, &config) == EARSHOT_OK);
  dial();
}

void open_client(int version) {
  shake_hands(version, 4096, 4096);
  be_greeted();
}

void be_greeted(void) {
  earshot_event event = say(server_hello);
  CHECK(event.kind == EARSHOT_EVENT_OPEN && event.sample_rate_hz == 24000 && event.frame_ms == 60);
  CHECK(earshot_client_state(&r.client) == EARSHOT_STATE_IDLE);
}
