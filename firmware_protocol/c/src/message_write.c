#include "earshot_xiaozhi/message.h"

static void begin(xz_writer *out, const char *session_id, const char *type) {
  xz_put(out, "{\"session_id\":");
  xz_put_string(out, session_id);
  xz_put(out, ",\"type\":");
  xz_put_string(out, type);
}

static void put_feature(xz_writer *out, bool is_there, const char *name, bool *is_first) {
  if (!is_there) return;
  xz_put(out, *is_first ? "" : ",");
  xz_put_string(out, name);
  xz_put(out, ":true");
  *is_first = false;
}

void xz_write_hello(xz_writer *out, const xz_hello *hello) {
  bool is_first = true;
  xz_put(out, "{\"type\":\"hello\",\"version\":");
  xz_put_uint(out, (uint32_t)hello->version);
  xz_put(out, ",\"transport\":\"websocket\",\"features\":{");
  put_feature(out, hello->has_mcp, "mcp", &is_first);
  put_feature(out, hello->has_aec, "aec", &is_first);
  put_feature(out, hello->wants_partial, "partial", &is_first);
  put_feature(out, hello->wants_timing, "timing", &is_first);
  xz_put(out, "},\"audio_params\":{\"format\":\"opus\",\"sample_rate\":16000,\"channels\":1,"
              "\"frame_duration\":");
  xz_put_uint(out, (uint32_t)hello->frame_ms);
  xz_put(out, "}}");
}

void xz_write_listen_start(xz_writer *out, const char *session_id, xz_mode mode) {
  begin(out, session_id, "listen");
  xz_put(out, ",\"state\":\"start\",\"mode\":");
  xz_put_string(out, mode == XZ_MODE_AUTO ? "auto" : mode == XZ_MODE_MANUAL ? "manual" : "realtime");
  xz_put(out, "}");
}

void xz_write_listen_stop(xz_writer *out, const char *session_id) {
  begin(out, session_id, "listen");
  xz_put(out, ",\"state\":\"stop\"}");
}

void xz_write_listen_detect(xz_writer *out, const char *session_id, const char *wake_word,
                            size_t wake_word_len) {
  begin(out, session_id, "listen");
  xz_put(out, ",\"state\":\"detect\",\"text\":\"");
  xz_put_escaped_bytes(out, wake_word, wake_word_len);
  xz_put(out, "\"}");
}

void xz_write_abort(xz_writer *out, const char *session_id, bool is_wake_word) {
  begin(out, session_id, "abort");
  xz_put(out, is_wake_word ? ",\"reason\":\"wake_word_detected\"}" : "}");
}

void xz_write_mcp_begin(xz_writer *out, const char *session_id) {
  begin(out, session_id, "mcp");
  xz_put(out, ",\"payload\":");
}

void xz_write_mcp_end(xz_writer *out) { xz_put(out, "}"); }
