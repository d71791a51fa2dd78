/* A client of the xiaozhi WebSocket protocol for anything that compiles C99.
 *
 * It does no I/O, allocates nothing and reads no clock: you give it what the socket received, it
 * gives you events; you send what it leaves in its output. Opus, TLS and the socket are yours.
 *
 *   while ((len = recv(...)) > 0)
 *     for (used = 0; used < len; handle(&event))
 *       used += earshot_client_receive(&client, data + used, len - used, &event);
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

#define EARSHOT_SESSION_ID_BYTES_MAX 64
#define EARSHOT_CONNECT_TIMEOUT_MS 10000
#define EARSHOT_SILENCE_TIMEOUT_MS 120000 /* without a byte from the server */

typedef struct {
  earshot_handshake handshake; /* its `version` 0 becomes 3 */
  earshot_hello hello;         /* version and has_mcp are filled in; frame_ms 0 becomes 60 */
  earshot_mcp mcp;
  bool checks_accept; /* Sec-WebSocket-Accept, which the firmware does not check */
  uint8_t *rx;        /* the longest message from the server; 16 kB are ample */
  size_t rx_cap;
  uint8_t *tx; /* what waits to be sent; 8 kB hold a second of speech and a page of tools */
  size_t tx_cap;
  uint32_t (*random)(void *context); /* unpredictable: it masks what is sent (RFC 6455, 10.3) */
  void *random_context;
} earshot_config;

typedef enum {
  EARSHOT_STATE_IDLE,
  EARSHOT_STATE_CONNECTING,
  EARSHOT_STATE_LISTENING,
  EARSHOT_STATE_SPEAKING
} earshot_state;

typedef enum {
  EARSHOT_EVENT_NONE,
  EARSHOT_EVENT_OPEN,           /* hello came: sample_rate_hz and frame_ms of what will be heard */
  EARSHOT_EVENT_TRANSCRIPT,     /* text; is_partial: more words may follow */
  EARSHOT_EVENT_EMOTION,        /* emotion */
  EARSHOT_EVENT_SPEAKING,       /* forget what still waits to be played */
  EARSHOT_EVENT_SENTENCE,       /* text, spoken from here on */
  EARSHOT_EVENT_AUDIO,          /* audio, one Opus packet; only while speaking */
  EARSHOT_EVENT_SPEAKING_ENDED, /* timing; play what waits, then listen again in mode auto */
  EARSHOT_EVENT_ALERT,          /* status, text, emotion */
  EARSHOT_EVENT_CUSTOM,         /* payload */
  EARSHOT_EVENT_REBOOT,
  EARSHOT_EVENT_SKIPPED, /* error: one message could not be read; the conversation goes on */
  EARSHOT_EVENT_CLOSED,  /* close_code: send what is left, then close the socket */
  EARSHOT_EVENT_FAILED   /* error (and http_status): the same */
} earshot_event_kind;

typedef struct {
  earshot_event_kind kind;
  earshot_text text;
  earshot_text emotion;
  earshot_text status;
  bool is_partial;
  earshot_frame audio;
  earshot_timing timing;
  earshot_json payload;
  int32_t sample_rate_hz;
  int32_t frame_ms;
  uint16_t close_code;
  int http_status;
  earshot_status error;
} earshot_event;

typedef struct {
  earshot_config config;
  earshot_ws ws;
  earshot_state state;
  earshot_mode mode;
  bool is_open; /* hello came, and no Close */
  bool has_received;
  bool has_clock;
  uint32_t heard_at_ms;
  uint32_t replies_dropped; /* answers to MCP that found no room */
  char session_id[EARSHOT_SESSION_ID_BYTES_MAX + 1];
} earshot_client;

/* Copies the configuration; what it points to must outlive the client. */
earshot_status earshot_client_init(earshot_client *client, const earshot_config *config);

/* Starts a conversation on a freshly connected socket. EARSHOT_BAD_STATE if one is running. */
earshot_status earshot_client_open(earshot_client *client);

/* Takes received bytes up to the first event; returns how many were taken. Call until all are.
 * What the event points to is valid until the next call. */
size_t earshot_client_receive(earshot_client *client, const uint8_t *data, size_t len,
                              earshot_event *event);

/* The socket was closed by the other side. */
void earshot_client_disconnected(earshot_client *client, earshot_event *event);

/* Call about once a second, with any millisecond counter: fails what lasts too long. */
void earshot_client_tick(earshot_client *client, uint32_t now_ms, earshot_event *event);

/* What is to be sent, and that some of it was. */
const uint8_t *earshot_client_output(const earshot_client *client, size_t *len);
void earshot_client_sent(earshot_client *client, size_t len);

/* A turn of the user begins. While the server speaks, earshot_client_abort comes first. */
earshot_status earshot_client_listen(earshot_client *client, earshot_mode mode);
/* The button was released: only in mode manual. */
earshot_status earshot_client_listen_stop(earshot_client *client);
/* A wake word was heard: after its audio, before earshot_client_listen. */
earshot_status earshot_client_wake_word(earshot_client *client, const char *wake_word);
/* One Opus packet of the microphone, 16 kHz mono; also the empty ones of DTX. `timestamp_ms`: v2
 * only, of the answer's audio that plays now. EARSHOT_FULL: the network is slow, drop this
 * packet. */
earshot_status earshot_client_audio(earshot_client *client, const uint8_t *packet, size_t len,
                                    uint32_t timestamp_ms);
/* Stop speaking. After a button the state changes when the server says so; after a wake word at
 * once, so that earshot_client_listen may follow. */
earshot_status earshot_client_abort(earshot_client *client, bool is_wake_word);
/* Ends the conversation: send what is left, then close the socket. */
void earshot_client_close(earshot_client *client);

#endif
