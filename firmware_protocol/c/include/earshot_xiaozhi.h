/* A client of the xiaozhi WebSocket protocol in C99.
 *
 * It does no I/O, allocates nothing and reads no clock. You pass it the bytes that the socket
 * received, it returns events, and you send the bytes in its output. Opus, TLS and the socket are
 * your part.
 *
 *   while ((len = recv(...)) > 0)
 *     for (used = 0; used < len; handle(&event))
 *       used += earshot_client_receive(&client, data + used, len - used, &event);
 *
 * Only one thread at a time may use a client: use one task, or a lock. A tool (mcp.h) must not call
 * these functions: while a tool runs, all but earshot_client_state and
 * earshot_client_replies_dropped do nothing, and return EARSHOT_BAD_STATE if they return a status.
 * earshot_client_init cannot detect this, so never call it in a tool.
 *
 * Read the state with earshot_client_state. The fields of earshot_client are private. */
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
#define EARSHOT_SILENCE_TIMEOUT_MS 120000 /* time without a byte from the server */

typedef struct {
  earshot_handshake handshake; /* `version` 0 means 3 */
  earshot_hello hello;         /* version and has_mcp are filled in; frame_ms 0 means 60 */
  earshot_mcp mcp;
  bool skips_accept; /* accept any Sec-WebSocket-Accept, as the firmware does (RFC 6455, 4.1) */
  uint8_t *rx;       /* received data; must hold the longest message of the server: 16 kB do */
  size_t rx_cap;
  uint8_t *tx; /* data to send; 8 kB hold a second of speech, or a page of tools */
  size_t tx_cap;
  uint32_t (*random)(void *context); /* must be unpredictable: masks sent data (RFC 6455, 10.3) */
  void *random_context;
} earshot_config;

typedef enum {
  EARSHOT_STATE_CLOSED,     /* no conversation */
  EARSHOT_STATE_CONNECTING, /* the server's hello has not arrived yet */
  EARSHOT_STATE_IDLE,       /* connected; neither side speaks */
  EARSHOT_STATE_LISTENING,  /* the user's turn: microphone audio may be sent */
  EARSHOT_STATE_SPEAKING    /* the server sends an answer's sound */
} earshot_state;

/* Kinds of events, and the fields that each one sets. All other fields are zero or undefined.
 *
 *   kind            fields            meaning
 *   NONE            -                 all bytes were taken, and nothing happened
 *   OPEN            sample_rate_hz,   the server's hello arrived; format of the server's sound
 *                   frame_ms
 *   TRANSCRIPT      text, is_partial  what the user said; if partial, more words may follow
 *   EMOTION         emotion*, text*   for the face on the display
 *   SPEAKING        -                 an answer begins: drop sound that was not played yet
 *   SENTENCE        text              the sentence that the sound after this event speaks
 *   AUDIO           audio             one Opus packet; only while speaking
 *   SPEAKING_ENDED  timing            all sound was sent: play the rest; in mode auto, listen again
 *   ALERT           status, text,     show it at once
 *                   emotion
 *   CUSTOM          payload           an object whose meaning server and device have agreed on
 *   REBOOT          -                 the server asks the device to restart
 *   SKIPPED         error             one message could not be read; the conversation goes on
 *   CLOSED          close_code        the conversation is over: send what the output still holds,
 *                                     then close the socket
 *   FAILED          error,            like CLOSED; http_status only if error is EARSHOT_REFUSED
 *                   http_status
 *
 * `data` of a text is never NULL, except where a star (*) stands: the server may leave it out. */
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
  bool is_answering; /* a tool runs: another write into `tx` would break its answer */
  bool has_received;    /* bytes arrived since the last tick */
  bool has_clock;       /* there was a tick, so `heard_at_ms` is valid */
  uint32_t heard_at_ms; /* silence is counted from here, on the counter of `tick` */
  uint32_t replies_dropped; /* number of MCP answers for which `tx` had no room */
  char session_id[EARSHOT_SESSION_ID_BYTES_MAX + 1];
} earshot_client;

/* Copies the configuration. The data that it points to must live longer than the client.
 * EARSHOT_BAD_CONFIG if a field of it or of a tool is missing or too small. */
earshot_status earshot_client_init(earshot_client *client, const earshot_config *config);

/* Starts a conversation on a freshly connected socket. EARSHOT_BAD_STATE if one is running. */
earshot_status earshot_client_open(earshot_client *client);

/* Takes received bytes up to the first event and returns their number. Call it until all are taken.
 * Pointers in the event are valid until the next call. Inside a tool it takes no bytes, and the
 * event is SKIPPED with EARSHOT_BAD_STATE. */
size_t earshot_client_receive(earshot_client *client, const uint8_t *data, size_t len,
                              earshot_event *event);

/* Call this when the other side closed the socket. */
void earshot_client_disconnected(earshot_client *client, earshot_event *event);

/* Call this about once a second. It ends a conversation from which nothing comes for too long.
 * `now_ms`: any counter of milliseconds; it may overflow. */
void earshot_client_tick(earshot_client *client, uint32_t now_ms, earshot_event *event);

/* Returns the bytes to send; `*len` is their number. */
const uint8_t *earshot_client_output(const earshot_client *client, size_t *len);
/* Removes the first `len` bytes of the output after they were sent. */
void earshot_client_sent(earshot_client *client, size_t len);

/* Begins a turn of the user. While the server speaks, call earshot_client_abort before. */
earshot_status earshot_client_listen(earshot_client *client, earshot_mode mode);
/* Ends the turn, because the button was released. Only in mode manual. */
earshot_status earshot_client_listen_stop(earshot_client *client);
/* Reports a wake word: after its audio, before earshot_client_listen. */
earshot_status earshot_client_wake_word(earshot_client *client, const char *wake_word);
/* Sends one Opus packet of the microphone, 16 kHz mono. Packets that are empty because of DTX
 * (silence) are sent, too. `timestamp_ms`: only in v2: the timestamp of the answer's packet that
 * plays now, for echo cancellation by the server. EARSHOT_FULL: the network is slow; drop this
 * packet. */
earshot_status earshot_client_audio(earshot_client *client, const uint8_t *packet, size_t len,
                                    uint32_t timestamp_ms);
/* Asks the server to stop speaking. If a button was pressed, the state changes when the server
 * confirms it. If a wake word was heard, it changes at once, so that earshot_client_listen can
 * follow. */
earshot_status earshot_client_abort(earshot_client *client, bool is_wake_word);
/* Ends the conversation: send the rest of the output, then close the socket. */
earshot_status earshot_client_close(earshot_client *client);

/* Returns the state of the conversation. */
earshot_state earshot_client_state(const earshot_client *client);
/* Returns how many tool requests got no answer because the output had no room for an error. */
uint32_t earshot_client_replies_dropped(const earshot_client *client);

#ifdef __cplusplus
}
#endif

#endif
