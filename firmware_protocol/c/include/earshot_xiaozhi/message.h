/* The JSON messages: those a device writes, and those it reads. */
#ifndef EARSHOT_XIAOZHI_MESSAGE_H
#define EARSHOT_XIAOZHI_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "earshot_xiaozhi/json.h"
#include "earshot_xiaozhi/status.h"

#define XZ_UNKNOWN_MS (-1)

typedef enum { XZ_MODE_AUTO, XZ_MODE_MANUAL, XZ_MODE_REALTIME } xz_mode;

typedef struct {
  int version;        /* of the binary frames: 1, 2 or 3 */
  int frame_ms;       /* of the uplink; 60 in the firmware */
  bool has_mcp;       /* there are tools */
  bool has_aec;       /* the server shall cancel the echo */
  bool wants_partial; /* ours: transcripts while one speaks */
  bool wants_timing;  /* ours: where the milliseconds of an answer went */
} xz_hello;

void xz_write_hello(xz_writer *out, const xz_hello *hello);
void xz_write_listen_start(xz_writer *out, const char *session_id, xz_mode mode);
void xz_write_listen_stop(xz_writer *out, const char *session_id);
void xz_write_listen_detect(xz_writer *out, const char *session_id, const char *wake_word,
                            size_t wake_word_len);
void xz_write_abort(xz_writer *out, const char *session_id, bool is_wake_word);
/* Around a JSON-RPC payload that the caller writes between the two. */
void xz_write_mcp_begin(xz_writer *out, const char *session_id);
void xz_write_mcp_end(xz_writer *out);

typedef enum {
  XZ_MESSAGE_IGNORED, /* fine, and nothing to do: an unknown type, `sentence_end`, `goodbye` (MQTT's) */
  XZ_MESSAGE_HELLO,
  XZ_MESSAGE_STT,
  XZ_MESSAGE_LLM,
  XZ_MESSAGE_TTS_START,
  XZ_MESSAGE_TTS_SENTENCE,
  XZ_MESSAGE_TTS_STOP,
  XZ_MESSAGE_MCP,
  XZ_MESSAGE_REBOOT,
  XZ_MESSAGE_ALERT,
  XZ_MESSAGE_CUSTOM
} xz_message_kind;

/* UTF-8, ended with NUL. `data` is NULL where the message has none. */
typedef struct {
  const char *data;
  size_t len;
} xz_text;

/* Ours, on `tts stop`: milliseconds from the end of speech, XZ_UNKNOWN_MS where not told. */
typedef struct {
  int32_t response_latency_ms; /* to the first sound */
  int32_t transcript_ms;
  int32_t first_text_ms;
  int32_t first_audio_ms;
} xz_timing;

typedef struct {
  xz_message_kind kind;
  xz_text session_id;
  xz_text text;    /* stt, llm, tts sentence; alert: its message */
  xz_text emotion; /* llm, alert */
  xz_text status;  /* alert */
  bool is_partial; /* stt, ours: not the last word yet */
  xz_timing timing;
  xz_json payload;        /* mcp, custom */
  int32_t sample_rate_hz; /* hello: of the downlink */
  int32_t frame_ms;
} xz_message;

/* Reads a message and decodes its texts where they lie: `text` changes, and `message` points into
 * it. XZ_TOO_LARGE, XZ_BAD_JSON or XZ_BAD_MESSAGE otherwise. */
xz_status xz_message_read(char *text, size_t len, xz_message *message);

#endif
