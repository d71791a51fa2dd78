/* A client with its buffers, for tests. */
#ifndef EARSHOT_TEST_RIG_H
#define EARSHOT_TEST_RIG_H

#include "server.h"

/* A response for clients that do not check the accept value. */
static const char accepted[] =
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

#define RX_BYTES 70000
#define TX_BYTES 80000

/* Pseudo-random numbers, the same in every run. */
static inline uint32_t next_random(void *context) {
  uint32_t *last = context;
  return *last = *last * 1664525U + 1013904223U;
}

typedef struct {
  earshot_client client;
  uint32_t seed;
  uint8_t *rx;
  uint8_t *tx;
} rig;

static inline earshot_config rig_config(rig *r, int version, size_t rx_cap, size_t tx_cap) {
  earshot_config config;
  memset(&config, 0, sizeof config);
  config.handshake.host = "127.0.0.1";
  config.handshake.path = "/xiaozhi/v1/";
  config.handshake.version = version;
  r->seed = 1;
  r->rx = malloc(rx_cap); /* on the heap with the exact size, so that an overrun is noticed */
  r->tx = malloc(tx_cap);
  CHECK(r->rx != NULL && r->tx != NULL);
  config.rx = r->rx;
  config.rx_cap = rx_cap;
  config.tx = r->tx;
  config.tx_cap = tx_cap;
  config.skips_accept = true; /* `accepted` is the same for every key */
  config.random = next_random;
  config.random_context = &r->seed;
  return config;
}

static inline void rig_free(rig *r) {
  free(r->rx);
  free(r->tx);
}

#endif
