/* What the tests share: a check that names its line, a server's bytes, and a client to feed. */
#ifndef XZ_TEST_CHECK_H
#define XZ_TEST_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "earshot_xiaozhi.h"

#define CHECK(condition)                                                     \
  do {                                                                       \
    if (!(condition)) {                                                      \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                               \
    }                                                                        \
  } while (0)

#define RX_BYTES 70000
#define TX_BYTES 80000

static const char accepted[] =
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
static const char server_hello[] =
    "{\"type\":\"hello\",\"transport\":\"websocket\",\"session_id\":\"s-1\"}";

/* Predictable on purpose: the same bytes in every run. */
static uint32_t count_up(void *context) {
  uint32_t *last = context;
  return *last = *last * 1664525U + 1013904223U;
}

typedef struct {
  xz_client client;
  uint32_t seed;
  uint8_t *rx;
  uint8_t *tx;
} rig;

static xz_config rig_config(rig *r, int version, size_t rx_cap, size_t tx_cap) {
  xz_config config;
  memset(&config, 0, sizeof config);
  config.handshake.host = "127.0.0.1";
  config.handshake.path = "/xiaozhi/v1/";
  config.handshake.version = version;
  r->seed = 1;
  r->rx = malloc(rx_cap); /* on the heap and exact, so that a byte too far is noticed */
  r->tx = malloc(tx_cap);
  CHECK(r->rx != NULL && r->tx != NULL);
  config.rx = r->rx;
  config.rx_cap = rx_cap;
  config.tx = r->tx;
  config.tx_cap = tx_cap;
  config.random = count_up;
  config.random_context = &r->seed;
  return config;
}

static void rig_free(rig *r) {
  free(r->rx);
  free(r->tx);
}

/* A frame as servers send it: not masked. Returns its length. */
static size_t server_frame(uint8_t *out, unsigned first_byte, const void *payload, size_t len) {
  size_t header = len < 126 ? 2 : len < 65536 ? 4 : 10;
  out[0] = (uint8_t)first_byte;
  out[1] = (uint8_t)(header == 2 ? len : header == 4 ? 126 : 127);
  for (size_t i = 2; i < header; i++)
    out[i] = (uint8_t)((uint64_t)len >> (8 * (header - 1 - i)));
  if (len > 0) memcpy(out + header, payload, len);
  return header + len;
}

#endif
