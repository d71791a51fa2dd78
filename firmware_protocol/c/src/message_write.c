#include "earshot_xiaozhi/message.h"

static void begin(earshot_writer *out, const char *session_id, const char *type) {
  earshot_put(out, "{\"session_id\":");
  earshot_put_string(out, session_id);
  earshot_put(out, ",\"type\":");
  earshot_put_string(out, type);
}

static void put_feature(earshot_writer *out, bool is_there, const char *name, bool *is_first) {
  if (!is_there) return;
  earshot_put(out, *is_first ? "" : ",");
  earshot_put_string(out, name);
  earshot_put(out, ":true");
  *is_first = false;
}

void earshot_write_hello(earshot_writer *out, const earshot_hello *hello) {
  bool is_first = true;
  earshot_put(out, "{\"type\":\"hello\",\"version\":");
  earshot_put_uint(out, (uint32_t)hello->version);
  earshot_put(out, ",\"transport\":\"websocket\",\"features\":{");
  put_feature(out, hello->has_mcp, "mcp", &is_first);
  put_feature(out, hello->has_aec, "aec", &is_first);
  put_feature(out, hello->wants_partial, "partial", &is_first);
  put_feature(out, hello->wants_timing, "timing", &is_first);
  earshot_put(out,
              "},\"audio_params\":{\"format\":\"opus\",\"sample_rate\":16000,\"channels\":1,"
              "\"frame_duration\":");
  earshot_put_uint(out, (uint32_t)hello->frame_ms);
  earshot_put(out, "}}");
}

void earshot_write_listen_start(earshot_writer *out, const char *session_id, earshot_mode mode) {
  begin(out, session_id, "listen");
  earshot_put(out, ",\"state\":\"start\",\"mode\":");
  earshot_put_string(out, mode == EARSHOT_MODE_AUTO     ? "auto"
                          : mode == EARSHOT_MODE_MANUAL ? "manual"
                                                        : "realtime");
  earshot_put(out, "}");
}

void earshot_write_listen_stop(earshot_writer *out, const char *session_id) {
  begin(out, session_id, "listen");
  earshot_put(out, ",\"state\":\"stop\"}");
}

void earshot_write_listen_detect(earshot_writer *out, const char *session_id, const char *wake_word,
                                 size_t wake_word_len) {
  begin(out, session_id, "listen");
  earshot_put(out, ",\"state\":\"detect\",\"text\":\"");
  earshot_put_escaped_bytes(out, wake_word, wake_word_len);
  earshot_put(out, "\"}");
}

void earshot_write_abort(earshot_writer *out, const char *session_id, bool is_wake_word) {
  begin(out, session_id, "abort");
  earshot_put(out, is_wake_word ? ",\"reason\":\"wake_word_detected\"}" : "}");
}

void earshot_write_mcp_begin(earshot_writer *out, const char *session_id) {
  begin(out, session_id, "mcp");
  earshot_put(out, ",\"payload\":");
}

void earshot_write_mcp_end(earshot_writer *out) { earshot_put(out, "}"); }
