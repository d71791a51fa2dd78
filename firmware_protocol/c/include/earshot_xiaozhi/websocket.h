/* The client's side of RFC 6455 without I/O. It takes bytes and returns events; bytes to send are
 * collected in `tx`.
 *
 * It has no extensions and no subprotocols. Fragments are joined in `rx`, so no message may be
 * longer than `rx`. It answers a ping with a pong and a Close with a Close. After an error it
 * queues a Close with the code of the error. */
#ifndef EARSHOT_XIAOZHI_WEBSOCKET_H
#define EARSHOT_XIAOZHI_WEBSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "earshot_xiaozhi/json.h"
#include "earshot_xiaozhi/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EARSHOT_WS_CONTROL_BYTES_MAX 125
#define EARSHOT_WS_HEADER_BYTES_MAX 8 /* of a frame that we send: at most 65535 bytes, masked */
#define EARSHOT_WS_RESERVED_BYTES 160 /* of `tx`, for pongs and one Close */
#define EARSHOT_WS_BUFFER_BYTES_MIN \
  512 /* of `rx` and of `tx` each; an HTTP response must fit `rx` */

typedef enum { EARSHOT_WS_TEXT = 1, EARSHOT_WS_BINARY = 2 } earshot_ws_opcode;

typedef struct {
  const char *host; /* value of the header `Host`: with the port, unless it is 80, or 443 with TLS;
                     * an IPv6 address in brackets */
  const char *path;
  const char *token;     /* key; "Bearer " is put before it if it has no space; NULL or "": none */
  const char *device_id; /* MAC address, lower case, with colons */
  const char *client_id; /* UUID */
  int version;           /* of the binary frames */
} earshot_handshake;

typedef enum {
  EARSHOT_WS_NONE,
  EARSHOT_WS_OPENED,
  EARSHOT_WS_MESSAGE, /* data, len, is_text; valid until the next call */
  EARSHOT_WS_CLOSED,  /* close_code */
  EARSHOT_WS_FAILED   /* status; http_status if that is EARSHOT_REFUSED */
} earshot_ws_event_kind;

typedef struct {
  earshot_ws_event_kind kind;
  uint8_t *data;
  size_t len;
  bool is_text;
  uint16_t close_code; /* 1005: the server gave none */
  earshot_status status;
  int http_status;
} earshot_ws_event;

/* shut: not connected; shaking: the handshake was sent and is not answered yet. */
typedef enum { EARSHOT_WS_SHUT, EARSHOT_WS_SHAKING, EARSHOT_WS_OPEN } earshot_ws_state;

typedef struct {
  uint8_t *rx;
  size_t rx_cap;
  size_t rx_len;
  uint8_t *tx;
  size_t tx_cap;
  size_t tx_len;
  uint32_t (*random)(void *context);
  void *random_context;
  earshot_ws_state state;
  bool skips_accept;
  char key[25];         /* Sec-WebSocket-Key of the handshake */
  uint8_t header[10];   /* of the frame that is arriving */
  uint8_t header_len;   /* bytes of it that have arrived */
  uint8_t header_need;  /* bytes that it has in all */
  size_t payload_left;  /* bytes of the frame's payload that have not arrived */
  uint8_t control[EARSHOT_WS_CONTROL_BYTES_MAX]; /* payload of a ping, pong or Close */
  size_t control_len;
  uint8_t message_opcode; /* 0: between messages */
} earshot_ws;

/* Writes the request; the state becomes EARSHOT_WS_SHAKING. */
earshot_status earshot_ws_open(earshot_ws *ws, const earshot_handshake *handshake);

/* Takes bytes up to the first event and returns their number. Call it until all are taken. */
size_t earshot_ws_receive(earshot_ws *ws, const uint8_t *data, size_t len, earshot_ws_event *event);

/* Returns a writer for a message. It writes into the free part of `tx`. */
earshot_writer earshot_ws_begin(earshot_ws *ws);
/* Sends what was written as one message. EARSHOT_FULL if it did not fit. */
earshot_status earshot_ws_commit(earshot_ws *ws, earshot_ws_opcode opcode,
                                 const earshot_writer *message);

/* Queues a Close. After it nothing more is queued, and what arrives is ignored. */
void earshot_ws_close(earshot_ws *ws, uint16_t code);

/* Removes `len` bytes from `tx` after they were sent. */
void earshot_ws_sent(earshot_ws *ws, size_t len);

#ifdef __cplusplus
}
#endif

#endif
