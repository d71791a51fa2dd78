/* The client's side of RFC 6455 without I/O: bytes in, events out; bytes to send pile up in `tx`.
 *
 * No extensions, no subprotocols. Fragments are put together in `rx`, so the longest message is
 * what `rx` holds. Pings are answered, a Close is echoed, errors queue a Close with their code. */
#ifndef EARSHOT_XIAOZHI_WEBSOCKET_H
#define EARSHOT_XIAOZHI_WEBSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "earshot_xiaozhi/json.h"
#include "earshot_xiaozhi/status.h"

#define XZ_WS_CONTROL_BYTES_MAX 125
#define XZ_WS_HEADER_BYTES_MAX 8   /* of what we send: at most 65535 bytes each, masked */
#define XZ_WS_RESERVED_BYTES 160   /* of `tx`, for pongs and one Close */
#define XZ_WS_BUFFER_BYTES_MIN 512 /* of `rx` and of `tx` each; an HTTP response must fit `rx` */

typedef enum { XZ_WS_TEXT = 1, XZ_WS_BINARY = 2 } xz_ws_opcode;

typedef struct {
  const char *host; /* as sent in `Host` */
  const char *path;
  const char *token;     /* "Bearer " is put before it if it has no space; NULL or "": none */
  const char *device_id; /* MAC address, lower case, with colons */
  const char *client_id; /* UUID */
  int version;           /* of the binary frames */
} xz_handshake;

typedef enum {
  XZ_WS_NONE,
  XZ_WS_OPENED,
  XZ_WS_MESSAGE, /* data, len, is_text; valid until the next call */
  XZ_WS_CLOSED,  /* close_code */
  XZ_WS_FAILED   /* status; http_status if that is XZ_REFUSED */
} xz_ws_event_kind;

typedef struct {
  xz_ws_event_kind kind;
  uint8_t *data;
  size_t len;
  bool is_text;
  uint16_t close_code; /* 1005: the server gave none */
  xz_status status;
  int http_status;
} xz_ws_event;

typedef enum { XZ_WS_SHUT, XZ_WS_SHAKING, XZ_WS_OPEN } xz_ws_state;

typedef struct {
  uint8_t *rx;
  size_t rx_cap;
  size_t rx_len;
  uint8_t *tx;
  size_t tx_cap;
  size_t tx_len;
  uint32_t (*random)(void *context);
  void *random_context;
  xz_ws_state state;
  bool checks_accept;
  char key[25];
  uint8_t header[10]; /* of the frame that is arriving */
  uint8_t header_len;
  uint8_t header_need;
  size_t payload_left;
  uint8_t control[XZ_WS_CONTROL_BYTES_MAX];
  size_t control_len;
  uint8_t message_opcode; /* 0: between messages */
} xz_ws;

/* Writes the request; the state becomes XZ_WS_SHAKING. */
xz_status xz_ws_open(xz_ws *ws, const xz_handshake *handshake);

/* Takes bytes up to the first event; returns how many. Call until all are taken. */
size_t xz_ws_receive(xz_ws *ws, const uint8_t *data, size_t len, xz_ws_event *event);

/* A message is written into the writer that `begin` gives and sent by `commit`. */
xz_writer xz_ws_begin(xz_ws *ws);
xz_status xz_ws_commit(xz_ws *ws, xz_ws_opcode opcode, const xz_writer *message);

/* Queues a Close; nothing is sent or received afterwards. */
void xz_ws_close(xz_ws *ws, uint16_t code);

/* `len` bytes of `tx` were sent. */
void xz_ws_sent(xz_ws *ws, size_t len);

#endif
