/* A client of the xiaozhi WebSocket protocol for anything that compiles C99.
 *
 * It does no I/O, allocates nothing and reads no clock: you give it what the socket received, it
 * gives you events; you send what it leaves in its output. Opus, TLS and the socket are yours.
 *
 *   while ((len = recv(...)) > 0)
 *     for (used = 0; used < len; handle(&event))
 *       used += earshot_client_receive(&client, data + used, len - used, &event);
 *
 * Not for several threads at once: put a lock around it, or one task. Nor from inside a tool
 * (mcp.h): while one works, all functions but earshot_client_state and
 * earshot_client_replies_dropped do nothing and say EARSHOT_BAD_STATE, where they can say
 * something. earshot_client_init cannot know it, and must not be called there at all.
 *
 * Read the state with earshot_client_state; the fields of earshot_client are not for you. */
#ifndef EARSHOT_XIAOZHI_H
#define EARSHOT_XIAOZHI_H

#include "earshot_xiaozhi/frame.h"
#include "earshot_xiaozhi/json.h"
#include "earshot_xiaozhi/mcp.h"
#include "earshot_xiaozhi/message.h"
#include "earshot_xiaozhi/status.h"
#include "earshot_xiaozhi/websocket.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EARSHOT_SESSION_ID_BYTES_MAX 64
#define EARSHOT_CONNECT_TIMEOUT_MS 10000
#define EARSHOT_SILENCE_TIMEOUT_MS 120000 /* without a byte from the server */

typedef struct {
  earshot_handshake handshake; /* its `version` 0 becomes 3 */
  earshot_hello hello;         /* version and has_mcp are filled in; frame_ms 0 becomes 60 */
  earshot_mcp mcp;
  bool skips_accept; /* takes any Sec-WebSocket-Accept, as the firmware does (RFC 6455, 4.1) */
  uint8_t *rx;       /* the longest message from the server; 16 kB are ample */
  size_t rx_cap;
  uint8_t *tx; /* what waits to be sent; 8 kB hold a second of speech and a page of tools */
  size_t tx_cap;
  uint32_t (*random)(void *context); /* unpredictable: it masks what is sent (RFC 6455, 10.3) */
  void *random_context;
} earshot_config;

typedef enum {
  EARSHOT_STATE_CLOSED,     /* no conversation: not begun, or over */
  EARSHOT_STATE_CONNECTING, /* until the server's hello */
  EARSHOT_STATE_IDLE,       /* connected, and nobody's turn */
  EARSHOT_STATE_LISTENING,
  EARSHOT_STATE_SPEAKING
} earshot_state;

/* What happened, and which fields of the event tell more. All others are zero or mean nothing.
 *
 *   kind            fields            meaning
 *   NONE            -                 all bytes are taken, nothing happened
 *   OPEN            sample_rate_hz,   the server's hello came; of the sound that will be heard
 *                   frame_ms
 *   TRANSCRIPT      text, is_partial  what the user said; if partial, more words may follow
 *   EMOTION         emotion*, text*   of the face on the display
 *   SPEAKING        -                 an answer begins: forget what still waits to be played
 *   SENTENCE        text              spoken from here on
 *   AUDIO           audio             one Opus packet; comes only while speaking
 *   SPEAKING_ENDED  timing            play what waits; in mode auto, listen again
 *   ALERT           status, text,     to be shown at once
 *                   emotion
 *   CUSTOM          payload           an object
 *   REBOOT          -                 the server asks the device to restart
 *   SKIPPED         error             one message could not be read; the conversation goes on
 *   CLOSED          close_code        the conversation is over: send what is left, close the socket
 *   FAILED          error,            the same; http_status only if error is EARSHOT_REFUSED
 *                   http_status
 *
 * `data` of a text is never NULL, but where there is a star: the server may leave that out. */
typedef enum {
  EARSHOT_EVENT_NONE,
  EARSHOT_EVENT_OPEN,
  EARSHOT_EVENT_TRANSCRIPT,
  EARSHOT_EVENT_EMOTION,
  EARSHOT_EVENT_SPEAKING,
  EARSHOT_EVENT_SENTENCE,
  EARSHOT_EVENT_AUDIO,
  EARSHOT_EVENT_SPEAKING_ENDED,
  EARSHOT_EVENT_ALERT,
  EARSHOT_EVENT_CUSTOM,
  EARSHOT_EVENT_REBOOT,
  EARSHOT_EVENT_SKIPPED,
  EARSHOT_EVENT_CLOSED,
  EARSHOT_EVENT_FAILED
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
  bool is_answering; /* a tool works: what it would write into `tx` would break its own answer */
  bool has_received;
  bool has_clock;
  uint32_t heard_at_ms;
  uint32_t replies_dropped; /* answers to MCP that found no room */
  char session_id[EARSHOT_SESSION_ID_BYTES_MAX + 1];
} earshot_client;

/* Copies the configuration; what it points to must outlive the client. EARSHOT_BAD_CONFIG if a
 * field is missing or too small, those of each tool too. */
earshot_status earshot_client_init(earshot_client *client, const earshot_config *config);

/* Starts a conversation on a freshly connected socket. EARSHOT_BAD_STATE if one is running. */
earshot_status earshot_client_open(earshot_client *client);

/* Takes received bytes up to the first event; returns how many were taken. Call until all are.
 * What the event points to is valid until the next call. From inside a tool it takes none, and
 * the event is SKIPPED with EARSHOT_BAD_STATE. */
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
earshot_status earshot_client_close(earshot_client *client);

/* Where the conversation stands. */
earshot_state earshot_client_state(const earshot_client *client);
/* How many requests for tools got no answer, because the output had no room even for an error. */
uint32_t earshot_client_replies_dropped(const earshot_client *client);

#ifdef __cplusplus
}
#endif

#endif
