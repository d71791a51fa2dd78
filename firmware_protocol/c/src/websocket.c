#include "earshot_xiaozhi/websocket.h"

#include <string.h>

#include "handshake.h"
#include "sha1.h"

enum { CONTINUATION = 0, CLOSE = 8, PING = 9, PONG = 10 };

enum { CLOSE_PROTOCOL = 1002, CLOSE_NO_CODE = 1005, CLOSE_TOO_LARGE = 1009 };

#define FIN 0x80U
#define MASKED 0x80U
#define CLOSE_BYTES 8 /* header, mask and code of a Close: a pong leaves this free */

static uint32_t draw(earshot_ws *ws) { return ws->random(ws->random_context); }

static void put_u32(uint8_t *out, uint32_t value) {
  for (int i = 0; i < 4; i++) out[i] = (uint8_t)(value >> (24 - 8 * i));
}

earshot_status earshot_ws_open(earshot_ws *ws, const earshot_handshake *handshake) {
  uint8_t nonce[16];
  for (size_t i = 0; i < sizeof nonce; i += 4) put_u32(nonce + i, draw(ws));
  earshot_base64(nonce, sizeof nonce, ws->key);
  earshot_writer out = earshot_writer_to(ws->tx, ws->tx_cap);
  earshot_handshake_write(&out, handshake, ws->key);
  if (out.is_full) return EARSHOT_BAD_CONFIG;
  ws->tx_len = out.len;
  ws->rx_len = 0;
  ws->header_len = 0;
  ws->header_need = 2;
  ws->message_opcode = 0;
  ws->state = EARSHOT_WS_SHAKING;
  return EARSHOT_OK;
}

earshot_writer earshot_ws_begin(earshot_ws *ws) {
  size_t used = ws->tx_len + EARSHOT_WS_HEADER_BYTES_MAX + EARSHOT_WS_RESERVED_BYTES;
  size_t room = ws->tx_cap > used ? ws->tx_cap - used : 0;
  return earshot_writer_to(ws->tx + ws->tx_len + (room > 0 ? EARSHOT_WS_HEADER_BYTES_MAX : 0),
                           room < EARSHOT_TEXT_BYTES_MAX ? room : EARSHOT_TEXT_BYTES_MAX);
}

/* Adds the header and the mask to `len` bytes (<= 65535) at `payload`, which may lie in `tx`. */
static void append_frame(earshot_ws *ws, unsigned opcode, const uint8_t *payload, size_t len) {
  uint8_t *out = ws->tx + ws->tx_len;
  uint8_t mask[4];
  size_t header = len < 126 ? 2 : 4;
  put_u32(mask, draw(ws));
  if (len > 0) memmove(out + header + sizeof mask, payload, len);
  out[0] = (uint8_t)(FIN | opcode);
  out[1] = (uint8_t)(MASKED | (len < 126 ? len : 126));
  if (header == 4) {
    out[2] = (uint8_t)(len >> 8);
    out[3] = (uint8_t)(len & 0xffU);
  }
  memcpy(out + header, mask, sizeof mask);
  out += header + sizeof mask;
  for (size_t i = 0; i < len; i++) out[i] ^= mask[i % 4];
  ws->tx_len += header + sizeof mask + len;
}

earshot_status earshot_ws_commit(earshot_ws *ws, earshot_ws_opcode opcode,
                                 const earshot_writer *message) {
  if (ws->state != EARSHOT_WS_OPEN) return EARSHOT_BAD_STATE;
  if (message->is_full || message->cap == 0) return EARSHOT_FULL;
  append_frame(ws, opcode, (const uint8_t *)message->data, message->len);
  return EARSHOT_OK;
}

void earshot_ws_close(earshot_ws *ws, uint16_t code) {
  uint8_t payload[2] = {(uint8_t)(code >> 8), (uint8_t)(code & 0xffU)};
  size_t len = code == CLOSE_NO_CODE ? 0 : sizeof payload;
  bool has_room = ws->tx_cap - ws->tx_len >= CLOSE_BYTES;
  if (ws->state == EARSHOT_WS_OPEN && has_room) append_frame(ws, CLOSE, payload, len);
  ws->state = EARSHOT_WS_SHUT;
}

void earshot_ws_sent(earshot_ws *ws, size_t len) {
  if (len > ws->tx_len) len = ws->tx_len;
  ws->tx_len -= len;
  if (ws->tx_len > 0) memmove(ws->tx, ws->tx + len, ws->tx_len);
}

static void fail(earshot_ws *ws, earshot_status status, earshot_ws_event *event) {
  earshot_ws_close(ws, status == EARSHOT_TOO_LARGE ? CLOSE_TOO_LARGE : CLOSE_PROTOCOL);
  event->kind = EARSHOT_WS_FAILED;
  event->status = status;
}

static size_t receive_head(earshot_ws *ws, const uint8_t *data, size_t len,
                           earshot_ws_event *event) {
  for (size_t i = 0; i < len; i++) {
    if (ws->rx_len == ws->rx_cap) {
      fail(ws, EARSHOT_TOO_LARGE, event);
      return i;
    }
    ws->rx[ws->rx_len++] = data[i];
    if (ws->rx_len < 4 || memcmp(ws->rx + ws->rx_len - 4, "\r\n\r\n", 4) != 0) continue;
    earshot_status status = earshot_handshake_check((const char *)ws->rx, ws->rx_len, ws->key,
                                                    ws->skips_accept, &event->http_status);
    ws->rx_len = 0;
    if (status == EARSHOT_OK) {
      ws->state = EARSHOT_WS_OPEN;
      event->kind = EARSHOT_WS_OPENED;
    } else {
      fail(ws, status, event);
    }
    return i + 1;
  }
  return len;
}

/* Returns the payload length of the frame whose header is complete. */
static bool read_length(earshot_ws *ws, uint64_t *length) {
  *length = ws->header[1] & 0x7fU;
  if (*length < 126) return true;
  *length = 0;
  for (size_t i = 2; i < ws->header_need; i++) *length = (*length << 8) | ws->header[i];
  return *length >> 63 == 0; /* RFC 6455, 5.2 */
}

/* Checks what a server may send (RFC 6455, 5.2 to 5.5). */
static earshot_status begin_frame(earshot_ws *ws) {
  unsigned opcode = ws->header[0] & 0x0fU;
  bool is_final = (ws->header[0] & FIN) != 0;
  uint64_t length;
  if ((ws->header[0] & 0x70U) != 0 || (ws->header[1] & MASKED) != 0) return EARSHOT_PROTOCOL;
  if (!read_length(ws, &length)) return EARSHOT_PROTOCOL;
  if (opcode >= CLOSE) {
    if (opcode > PONG || !is_final || length > EARSHOT_WS_CONTROL_BYTES_MAX)
      return EARSHOT_PROTOCOL;
    ws->control_len = 0;
  } else {
    if (opcode > EARSHOT_WS_BINARY) return EARSHOT_PROTOCOL;
    if ((opcode == CONTINUATION) != (ws->message_opcode != 0)) return EARSHOT_PROTOCOL;
    if (length > ws->rx_cap - ws->rx_len) return EARSHOT_TOO_LARGE;
    if (opcode != CONTINUATION) ws->message_opcode = (uint8_t)opcode;
  }
  ws->payload_left = (size_t)length;
  return EARSHOT_OK;
}

static bool is_close_code(uint32_t code) { /* RFC 6455, 7.4 */
  return (code >= 3000 && code <= 4999) ||
         (code >= 1000 && code <= 1014 && (code < 1004 || code > 1006));
}

static void end_close(earshot_ws *ws, earshot_ws_event *event) {
  uint32_t code = CLOSE_NO_CODE;
  if (ws->control_len > 0) {
    code = ws->control_len < 2 ? 0 : ((uint32_t)ws->control[0] << 8) | ws->control[1];
    if (!is_close_code(code)) {
      fail(ws, EARSHOT_PROTOCOL, event);
      return;
    }
  }
  earshot_ws_close(ws, (uint16_t)code);
  event->kind = EARSHOT_WS_CLOSED;
  event->close_code = (uint16_t)code;
}

static void end_frame(earshot_ws *ws, earshot_ws_event *event) {
  unsigned opcode = ws->header[0] & 0x0fU;
  if (opcode == CLOSE) {
    end_close(ws, event);
  } else if (opcode == PING) {
    /* Without room the pong is dropped: the server will ping again. */
    size_t need = 2 + 4 + ws->control_len + CLOSE_BYTES;
    if (ws->tx_cap - ws->tx_len >= need) append_frame(ws, PONG, ws->control, ws->control_len);
  } else if (opcode != PONG && (ws->header[0] & FIN) != 0) {
    event->kind = EARSHOT_WS_MESSAGE;
    event->data = ws->rx;
    event->len = ws->rx_len;
    event->is_text = ws->message_opcode == EARSHOT_WS_TEXT;
    ws->message_opcode = 0;
    ws->rx_len = 0;
  }
  ws->header_len = 0;
  ws->header_need = 2;
}

static size_t receive_header(earshot_ws *ws, uint8_t byte, earshot_ws_event *event) {
  ws->header[ws->header_len++] = byte;
  if (ws->header_len == 2) {
    unsigned length = byte & 0x7fU;
    ws->header_need = length == 127 ? 10 : length == 126 ? 4 : 2;
  }
  if (ws->header_len == ws->header_need) {
    earshot_status status = begin_frame(ws);
    if (status != EARSHOT_OK) fail(ws, status, event);
    else if (ws->payload_left == 0) end_frame(ws, event);
  }
  return 1;
}

static size_t receive_payload(earshot_ws *ws, const uint8_t *data, size_t len,
                              earshot_ws_event *event) {
  bool is_control = (ws->header[0] & 0x0fU) >= CLOSE;
  size_t taken = len < ws->payload_left ? len : ws->payload_left;
  if (is_control) {
    memcpy(ws->control + ws->control_len, data, taken);
    ws->control_len += taken;
  } else {
    memcpy(ws->rx + ws->rx_len, data, taken);
    ws->rx_len += taken;
  }
  ws->payload_left -= taken;
  if (ws->payload_left == 0) end_frame(ws, event);
  return taken;
}

size_t earshot_ws_receive(earshot_ws *ws, const uint8_t *data, size_t len,
                          earshot_ws_event *event) {
  size_t used = 0;
  memset(event, 0, sizeof *event);
  while (used < len && event->kind == EARSHOT_WS_NONE) {
    if (ws->state == EARSHOT_WS_SHUT) return len; /* ignore data after the end */
    if (ws->state == EARSHOT_WS_SHAKING) used += receive_head(ws, data + used, len - used, event);
    else if (ws->header_len < ws->header_need) used += receive_header(ws, data[used], event);
    else used += receive_payload(ws, data + used, len - used, event);
  }
  return used;
}
