/* Messages and frames of servers. */
#ifndef EARSHOT_TEST_SERVER_H
#define EARSHOT_TEST_SERVER_H

#include "check.h"

static const char server_hello[] =
    "{\"type\":\"hello\",\"transport\":\"websocket\",\"session_id\":\"s-1\"}";

/* Writes a frame without mask, as servers send it. Returns its length. */
static inline size_t server_frame(uint8_t *out, unsigned first_byte, const void *payload,
                                  size_t len) {
  size_t header = len < 126 ? 2 : len < 65536 ? 4 : 10;
  out[0] = (uint8_t)first_byte;
  out[1] = (uint8_t)(header == 2 ? len : header == 4 ? 126 : 127);
  for (size_t i = 2; i < header; i++) out[i] = (uint8_t)((uint64_t)len >> (8 * (header - 1 - i)));
  if (len > 0) memcpy(out + header, payload, len);
  return header + len;
}

#endif
