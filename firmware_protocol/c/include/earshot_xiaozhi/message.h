/* The JSON messages that a device writes, and those that it reads. */
#ifndef EARSHOT_XIAOZHI_MESSAGE_H
#define EARSHOT_XIAOZHI_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "earshot_xiaozhi/json.h"
#include "earshot_xiaozhi/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EARSHOT_UNKNOWN_MS (-1) /* a time that the server did not report */

/* How a turn of the user ends. Auto: the server decides when the user has finished. Manual: the
 * device says that the button was released. Realtime: as auto, and the device also sends sound
 * while the server speaks, so that the user can interrupt. */
typedef enum { EARSHOT_MODE_AUTO, EARSHOT_MODE_MANUAL, EARSHOT_MODE_REALTIME } earshot_mode;

typedef struct {
  int version;        /* of the binary frames: 1, 2 or 3 */
  int frame_ms;       /* length of the packets that the device sends; 60 in the firmware */
  bool has_mcp;       /* the device has tools */
  bool has_aec;       /* the server is asked to cancel the echo */
  bool wants_partial; /* Earshot's own: transcripts during speech */
  bool wants_timing;  /* Earshot's own: latency of each answer by stage */
} earshot_hello;

/* Write one message each. `session_id`: from the server's hello; may be empty. */
void earshot_write_hello(earshot_writer *out, const earshot_hello *hello);
void earshot_write_listen_start(earshot_writer *out, const char *session_id, earshot_mode mode);
void earshot_write_listen_stop(earshot_writer *out, const char *session_id);
void earshot_write_listen_detect(earshot_writer *out, const char *session_id, const char *wake_word,
                                 size_t wake_word_len);
void earshot_write_abort(earshot_writer *out, const char *session_id, bool is_wake_word);
/* Write the envelope of a JSON-RPC payload. The caller writes the payload between the two calls. */
void earshot_write_mcp_begin(earshot_writer *out, const char *session_id);
void earshot_write_mcp_end(earshot_writer *out);

typedef enum {
  EARSHOT_MESSAGE_IGNORED, /* an unknown type, `sentence_end`, or `goodbye`, which MQTT needs */
  EARSHOT_MESSAGE_HELLO,
  EARSHOT_MESSAGE_STT,
  EARSHOT_MESSAGE_LLM,
  EARSHOT_MESSAGE_TTS_START,
  EARSHOT_MESSAGE_TTS_SENTENCE,
  EARSHOT_MESSAGE_TTS_STOP,
  EARSHOT_MESSAGE_MCP,
  EARSHOT_MESSAGE_REBOOT,
  EARSHOT_MESSAGE_ALERT,
  EARSHOT_MESSAGE_CUSTOM
} earshot_message_kind;

/* UTF-8, ended with NUL. `data` is NULL where the message has none. */
typedef struct {
  const char *data;
  size_t len;
} earshot_text;

/* Times of an answer, in ms from the end of the user's speech. Earshot sends them with `tts stop`.
 * EARSHOT_UNKNOWN_MS: not reported. */
typedef struct {
  int32_t response_latency_ms; /* to the first sound */
  int32_t transcript_ms;
  int32_t first_text_ms;
  int32_t first_audio_ms;
} earshot_timing;

typedef struct {
  earshot_message_kind kind;
  earshot_text session_id;
  earshot_text text;    /* stt, llm, tts sentence; alert: its message */
  earshot_text emotion; /* llm, alert */
  earshot_text status;  /* alert */
  bool is_partial;      /* stt, Earshot's own: the text may still change */
  earshot_timing timing;
  earshot_json payload;   /* mcp, custom */
  int32_t sample_rate_hz; /* hello: of the sound that the server sends */
  int32_t frame_ms;       /* hello: length of its packets */
} earshot_message;

/* Reads a message and decodes its texts in place: `text` is changed, and `message` points into it.
 * Fails with EARSHOT_TOO_LARGE, EARSHOT_BAD_JSON or EARSHOT_BAD_MESSAGE. */
earshot_status earshot_message_read(char *text, size_t len, earshot_message *message);

#ifdef __cplusplus
}
#endif

#endif
