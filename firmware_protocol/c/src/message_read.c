#include <string.h>

#include "earshot_xiaozhi/message.h"

/* Decodes the string of a key in place. Afterwards no key can be looked up in the text. */
static bool take_text(earshot_json value, earshot_text *text) {
  char *place = (char *)(uintptr_t)value.data; /* part of the caller's text, which may change */
  if (!earshot_json_to_text(value, place, value.len, &text->len)) return false;
  text->data = place;
  return true;
}

typedef struct {
  earshot_json session_id, text, emotion, status;
} strings; /* strings that were found and are not decoded yet */

/* Accepts a string, or a missing value that is not required. Rejects any other value. */
static bool find_string(earshot_json object, const char *key, bool is_required,
                        earshot_json *value) {
  if (!earshot_json_get(object, key, value)) return !is_required;
  return earshot_json_is_string(*value);
}

static bool is_frame_duration(int32_t ms) {
  static const int32_t allowed[] = {5, 10, 20, 40, 60, 80, 100, 120};
  for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
    if (ms == allowed[i]) return true;
  return false;
}

static bool is_opus_rate(int32_t hz) {
  return hz == 8000 || hz == 12000 || hz == 16000 || hz == 24000 || hz == 48000;
}

static bool read_int(earshot_json object, const char *key, int32_t *result) {
  earshot_json value;
  return !earshot_json_get(object, key, &value) || earshot_json_to_int(value, result);
}

static bool read_hello(earshot_json object, earshot_message *message) {
  earshot_json value;
  int32_t channels = 1;
  message->kind = EARSHOT_MESSAGE_HELLO;
  message->sample_rate_hz = 24000;
  message->frame_ms = 60;
  if (!earshot_json_get(object, "transport", &value) || !earshot_json_equals(value, "websocket"))
    return false;
  if (!earshot_json_get(object, "audio_params", &value)) return true;
  if (!earshot_json_is_object(value)) return false;
  return read_int(value, "sample_rate", &message->sample_rate_hz) &&
         read_int(value, "frame_duration", &message->frame_ms) &&
         read_int(value, "channels", &channels) && channels == 1 &&
         is_opus_rate(message->sample_rate_hz) && is_frame_duration(message->frame_ms);
}

static bool read_stt(earshot_json object, earshot_message *message, strings *found) {
  earshot_json value;
  message->kind = EARSHOT_MESSAGE_STT;
  if (earshot_json_get(object, "partial", &value) &&
      !earshot_json_to_bool(value, &message->is_partial))
    return false;
  return find_string(object, "text", true, &found->text);
}

/* A time that cannot be read stays unknown: that is no reason to end the conversation. */
static void read_timing(earshot_json object, earshot_timing *timing) {
  earshot_json value;
  if (!earshot_json_get(object, "timing", &value)) return;
  read_int(value, "response_latency_ms", &timing->response_latency_ms);
  read_int(value, "transcript_ms", &timing->transcript_ms);
  read_int(value, "first_text_ms", &timing->first_text_ms);
  read_int(value, "first_audio_ms", &timing->first_audio_ms);
}

static bool read_tts(earshot_json object, earshot_message *message, strings *found) {
  earshot_json state;
  if (!find_string(object, "state", true, &state)) return false;
  if (earshot_json_equals(state, "start")) {
    message->kind = EARSHOT_MESSAGE_TTS_START;
  } else if (earshot_json_equals(state, "stop")) {
    message->kind = EARSHOT_MESSAGE_TTS_STOP;
    read_timing(object, &message->timing);
  } else if (earshot_json_equals(state, "sentence_start")) {
    message->kind = EARSHOT_MESSAGE_TTS_SENTENCE;
    return find_string(object, "text", true, &found->text);
  }
  return true;
}

static bool read_alert(earshot_json object, earshot_message *message, strings *found) {
  message->kind = EARSHOT_MESSAGE_ALERT;
  return find_string(object, "status", true, &found->status) &&
         find_string(object, "message", true, &found->text) &&
         find_string(object, "emotion", true, &found->emotion);
}

static bool read_payload(earshot_json object, earshot_message *message, earshot_message_kind kind) {
  message->kind = kind;
  return earshot_json_get(object, "payload", &message->payload) &&
         earshot_json_is_object(message->payload);
}

static bool read_system(earshot_json object, earshot_message *message) {
  earshot_json command;
  if (!find_string(object, "command", true, &command)) return false;
  if (earshot_json_equals(command, "reboot")) message->kind = EARSHOT_MESSAGE_REBOOT;
  return true;
}

static bool read_llm(earshot_json object, earshot_message *message, strings *found) {
  message->kind = EARSHOT_MESSAGE_LLM;
  return find_string(object, "emotion", false, &found->emotion) &&
         find_string(object, "text", false, &found->text);
}

static bool read_fields(earshot_json object, earshot_message *message, strings *found) {
  earshot_json type;
  if (!find_string(object, "type", true, &type)) return false;
  if (!find_string(object, "session_id", false, &found->session_id)) return false;
  if (earshot_json_equals(type, "hello")) return read_hello(object, message);
  if (earshot_json_equals(type, "stt")) return read_stt(object, message, found);
  if (earshot_json_equals(type, "llm")) return read_llm(object, message, found);
  if (earshot_json_equals(type, "tts")) return read_tts(object, message, found);
  if (earshot_json_equals(type, "mcp")) return read_payload(object, message, EARSHOT_MESSAGE_MCP);
  if (earshot_json_equals(type, "custom"))
    return read_payload(object, message, EARSHOT_MESSAGE_CUSTOM);
  if (earshot_json_equals(type, "alert")) return read_alert(object, message, found);
  if (earshot_json_equals(type, "system")) return read_system(object, message);
  return true;
}

earshot_status earshot_message_read(char *text, size_t len, earshot_message *message) {
  static const earshot_timing unknown = {EARSHOT_UNKNOWN_MS, EARSHOT_UNKNOWN_MS, EARSHOT_UNKNOWN_MS,
                                         EARSHOT_UNKNOWN_MS};
  strings found;
  earshot_json object;
  memset(message, 0, sizeof *message);
  memset(&found, 0, sizeof found);
  message->timing = unknown;
  if (len > EARSHOT_TEXT_BYTES_MAX) return EARSHOT_TOO_LARGE;
  if (!earshot_json_check(text, len, &object)) return EARSHOT_BAD_JSON;
  if (!earshot_json_is_object(object) || !read_fields(object, message, &found))
    return EARSHOT_BAD_MESSAGE;
  take_text(found.session_id, &message->session_id);
  take_text(found.text, &message->text);
  take_text(found.emotion, &message->emotion);
  take_text(found.status, &message->status);
  return EARSHOT_OK;
}
