/* A client of the xiaozhi WebSocket protocol for anything that compiles C99.
 *
 * It does no I/O, allocates nothing and reads no clock: you give it what the socket received, it
 * gives you events; you send what it leaves in its output. Opus, TLS and the socket are yours.
 *
 *   while ((len = recv(...)) > 0)
 *     for (used = 0; used < len; handle(&event))
 *       used += xz_client_receive(&client, data + used, len - used, &event);
 *
 * Not for several threads at once: put a lock around it, or one task.
 *
 * The states are the firmware's. IDLE is either not connected or connected without a turn. */
#ifndef EARSHOT_XIAOZHI_H
#define EARSHOT_XIAOZHI_H

#include "earshot_xiaozhi/frame.h"
#include "earshot_xiaozhi/json.h"
#include "earshot_xiaozhi/mcp.h"
#include "earshot_xiaozhi/message.h"
#include "earshot_xiaozhi/status.h"
#include "earshot_xiaozhi/websocket.h"

#define XZ_SESSION_ID_BYTES_MAX 64
#define XZ_CONNECT_TIMEOUT_MS 10000
#define XZ_SILENCE_TIMEOUT_MS 120000 /* without a byte from the server */

typedef struct {
  xz_handshake handshake; /* its `version` 0 becomes 3 */
  xz_hello hello;         /* version and has_mcp are filled in; frame_ms 0 becomes 60 */
  xz_mcp mcp;
  bool checks_accept; /* Sec-WebSocket-Accept, which the firmware does not check */
  uint8_t *rx;        /* the longest message from the server; 16 kB are ample */
  size_t rx_cap;
  uint8_t *tx; /* what waits to be sent; 8 kB hold a second of speech and a page of tools */
  size_t tx_cap;
  uint32_t (*random)(void *context); /* unpredictable: it masks what is sent (RFC 6455, 10.3) */
  void *random_context;
} xz_config;

typedef enum { XZ_STATE_IDLE, XZ_STATE_CONNECTING, XZ_STATE_LISTENING, XZ_STATE_SPEAKING } xz_state;

typedef enum {
  XZ_EVENT_NONE,
  XZ_EVENT_OPEN,           /* hello came: sample_rate_hz and frame_ms of what will be heard */
  XZ_EVENT_TRANSCRIPT,     /* text; is_partial: more words may follow */
  XZ_EVENT_EMOTION,        /* emotion */
  XZ_EVENT_SPEAKING,       /* forget what still waits to be played */
  XZ_EVENT_SENTENCE,       /* text, spoken from here on */
  XZ_EVENT_AUDIO,          /* audio, one Opus packet; only while speaking */
  XZ_EVENT_SPEAKING_ENDED, /* timing; play what waits, then xz_client_listen in mode auto */
  XZ_EVENT_ALERT,          /* status, text, emotion */
  XZ_EVENT_CUSTOM,         /* payload */
  XZ_EVENT_REBOOT,
  XZ_EVENT_SKIPPED, /* error: one message could not be read; the conversation goes on */
  XZ_EVENT_CLOSED,  /* close_code: send what is left, then close the socket */
  XZ_EVENT_FAILED   /* error (and http_status): the same */
} xz_event_kind;

typedef struct {
  xz_event_kind kind;
  xz_text text;
  xz_text emotion;
  xz_text status;
  bool is_partial;
  xz_frame audio;
  xz_timing timing;
  xz_json payload;
  int32_t sample_rate_hz;
  int32_t frame_ms;
  uint16_t close_code;
  int http_status;
  xz_status error;
} xz_event;

typedef struct {
  xz_config config;
  xz_ws ws;
  xz_state state;
  xz_mode mode;
  bool is_open; /* hello came, and no Close */
  bool has_received;
  bool has_clock;
  uint32_t heard_at_ms;
  uint32_t replies_dropped; /* answers to MCP that found no room */
  char session_id[XZ_SESSION_ID_BYTES_MAX + 1];
} xz_client;

/* Copies the configuration; what it points to must outlive the client. */
xz_status xz_client_init(xz_client *client, const xz_config *config);

/* Starts a conversation on a freshly connected socket. XZ_BAD_STATE if one is running. */
xz_status xz_client_open(xz_client *client);

/* Takes received bytes up to the first event; returns how many were taken. Call until all are.
 * What the event points to is valid until the next call. */
size_t xz_client_receive(xz_client *client, const uint8_t *data, size_t len, xz_event *event);

/* The socket was closed by the other side. */
void xz_client_disconnected(xz_client *client, xz_event *event);

/* Call about once a second, with any millisecond counter: fails what lasts too long. */
void xz_client_tick(xz_client *client, uint32_t now_ms, xz_event *event);

/* What is to be sent, and that some of it was. */
const uint8_t *xz_client_output(const xz_client *client, size_t *len);
void xz_client_sent(xz_client *client, size_t len);

/* A turn of the user begins. While the server speaks, xz_client_abort comes first. */
xz_status xz_client_listen(xz_client *client, xz_mode mode);
/* The button was released: only in mode manual. */
xz_status xz_client_listen_stop(xz_client *client);
/* A wake word was heard: after its audio, before xz_client_listen. */
xz_status xz_client_wake_word(xz_client *client, const char *wake_word);
/* One Opus packet of the microphone, 16 kHz mono; also the empty ones of DTX. `timestamp_ms`: v2
 * only, of the answer's audio that plays now. XZ_FULL: the network is slow, drop this packet. */
xz_status xz_client_audio(xz_client *client, const uint8_t *packet, size_t len,
                          uint32_t timestamp_ms);
/* Stop speaking. After a button the state changes when the server says so; after a wake word at
 * once, so that xz_client_listen may follow. */
xz_status xz_client_abort(xz_client *client, bool is_wake_word);
/* Ends the conversation: send what is left, then close the socket. */
void xz_client_close(xz_client *client);

#endif
