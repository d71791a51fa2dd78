#include "earshot_xiaozhi.h"

#include <string.h>

enum { CLOSE_NORMAL = 1000 };

static bool is_config_good(const xz_config *config) {
  int version = config->handshake.version;
  return config->handshake.host != NULL && config->handshake.path != NULL && version >= 0 &&
         version <= 3 && config->rx != NULL && config->rx_cap >= XZ_WS_BUFFER_BYTES_MIN &&
         config->tx != NULL && config->tx_cap >= XZ_WS_BUFFER_BYTES_MIN && config->random != NULL &&
         config->hello.frame_ms >= 0 && (config->mcp.tools != NULL || config->mcp.tools_len == 0) &&
         (config->mcp.tools_len == 0 || (config->mcp.name != NULL && config->mcp.version != NULL));
}

xz_status xz_client_init(xz_client *client, const xz_config *config) {
  memset(client, 0, sizeof *client);
  if (!is_config_good(config)) return XZ_BAD_CONFIG;
  client->config = *config;
  if (client->config.handshake.version == 0) client->config.handshake.version = 3;
  if (client->config.hello.frame_ms == 0) client->config.hello.frame_ms = 60;
  client->config.hello.version = client->config.handshake.version;
  client->config.hello.has_mcp = config->mcp.tools_len > 0;
  client->ws.rx = config->rx;
  client->ws.rx_cap = config->rx_cap;
  client->ws.tx = config->tx;
  client->ws.tx_cap = config->tx_cap;
  client->ws.random = config->random;
  client->ws.random_context = config->random_context;
  client->ws.checks_accept = config->checks_accept;
  return XZ_OK;
}

xz_status xz_client_open(xz_client *client) {
  if (client->ws.state != XZ_WS_SHUT) return XZ_BAD_STATE;
  xz_status status = xz_ws_open(&client->ws, &client->config.handshake);
  if (status != XZ_OK) return status;
  client->state = XZ_STATE_CONNECTING;
  client->session_id[0] = '\0';
  client->has_clock = false;
  return XZ_OK;
}

static void end(xz_client *client, xz_status why, xz_event *event) {
  client->state = XZ_STATE_IDLE;
  client->is_open = false;
  event->kind = XZ_EVENT_FAILED;
  event->error = why;
}

static xz_status send_text(xz_client *client, const xz_writer *text) {
  return xz_ws_commit(&client->ws, XZ_WS_TEXT, text);
}

static void on_hello(xz_client *client, const xz_message *message, xz_event *event) {
  if (client->is_open) return; /* said once is enough */
  size_t len = message->session_id.len;
  if (len > XZ_SESSION_ID_BYTES_MAX || (len > 0 && memchr(message->session_id.data, 0, len))) {
    xz_ws_close(&client->ws, 1008);
    end(client, XZ_BAD_MESSAGE, event);
    return;
  }
  if (len > 0) memcpy(client->session_id, message->session_id.data, len);
  client->session_id[len] = '\0';
  client->is_open = true;
  client->state = XZ_STATE_IDLE;
  event->kind = XZ_EVENT_OPEN;
  event->sample_rate_hz = message->sample_rate_hz;
  event->frame_ms = message->frame_ms;
}

static void on_mcp(xz_client *client, xz_json request) {
  if (client->config.mcp.tools_len == 0) return; /* not announced */
  xz_writer out = xz_ws_begin(&client->ws);
  xz_write_mcp_begin(&out, client->session_id);
  if (!xz_mcp_answer(&client->config.mcp, request, &out)) return;
  xz_write_mcp_end(&out);
  if (send_text(client, &out) != XZ_OK) client->replies_dropped++;
}

static void on_speaking_ended(xz_client *client, const xz_message *message, xz_event *event) {
  if (client->state != XZ_STATE_SPEAKING) return;
  /* In auto the turn begins when the caller has played what waits, and says so. */
  client->state = client->mode == XZ_MODE_REALTIME ? XZ_STATE_LISTENING : XZ_STATE_IDLE;
  event->kind = XZ_EVENT_SPEAKING_ENDED;
  event->timing = message->timing;
}

static void on_message(xz_client *client, const xz_message *message, xz_event *event) {
  if (!client->is_open && message->kind != XZ_MESSAGE_HELLO) return;
  event->text = message->text;
  event->emotion = message->emotion;
  event->status = message->status;
  event->payload = message->payload;
  event->is_partial = message->is_partial;
  switch (message->kind) {
    case XZ_MESSAGE_IGNORED: break;
    case XZ_MESSAGE_HELLO: on_hello(client, message, event); break;
    case XZ_MESSAGE_STT: event->kind = XZ_EVENT_TRANSCRIPT; break;
    case XZ_MESSAGE_LLM: event->kind = XZ_EVENT_EMOTION; break;
    case XZ_MESSAGE_TTS_START:
      client->state = XZ_STATE_SPEAKING;
      event->kind = XZ_EVENT_SPEAKING;
      break;
    case XZ_MESSAGE_TTS_SENTENCE: event->kind = XZ_EVENT_SENTENCE; break;
    case XZ_MESSAGE_TTS_STOP: on_speaking_ended(client, message, event); break;
    case XZ_MESSAGE_MCP: on_mcp(client, message->payload); break;
    case XZ_MESSAGE_REBOOT: event->kind = XZ_EVENT_REBOOT; break;
    case XZ_MESSAGE_ALERT: event->kind = XZ_EVENT_ALERT; break;
    case XZ_MESSAGE_CUSTOM: event->kind = XZ_EVENT_CUSTOM; break;
  }
}

static void on_text(xz_client *client, char *text, size_t len, xz_event *event) {
  xz_message message;
  xz_status status = xz_message_read(text, len, &message);
  if (status == XZ_OK) {
    on_message(client, &message, event);
  } else {
    event->kind = XZ_EVENT_SKIPPED;
    event->error = status;
  }
}

static void on_binary(xz_client *client, uint8_t *data, size_t len, xz_event *event) {
  xz_frame frame;
  xz_status status = xz_frame_decode(client->config.handshake.version, data, len, &frame);
  if (status != XZ_OK) {
    event->kind = XZ_EVENT_SKIPPED;
    event->error = status;
  } else if (frame.kind == XZ_FRAME_JSON) {
    on_text(client, (char *)data + (frame.payload - data), frame.payload_len, event);
  } else if (client->state == XZ_STATE_SPEAKING) {
    event->kind = XZ_EVENT_AUDIO;
    event->audio = frame;
  }
}

static void on_ws(xz_client *client, const xz_ws_event *from, xz_event *event) {
  switch (from->kind) {
    case XZ_WS_NONE: break;
    case XZ_WS_OPENED: {
      xz_writer out = xz_ws_begin(&client->ws);
      xz_write_hello(&out, &client->config.hello);
      if (send_text(client, &out) != XZ_OK) {
        xz_ws_close(&client->ws, CLOSE_NORMAL);
        end(client, XZ_FULL, event);
      }
      break;
    }
    case XZ_WS_MESSAGE:
      if (from->is_text) on_text(client, (char *)from->data, from->len, event);
      else on_binary(client, from->data, from->len, event);
      break;
    case XZ_WS_CLOSED:
      end(client, XZ_OK, event);
      event->kind = XZ_EVENT_CLOSED;
      event->close_code = from->close_code;
      break;
    case XZ_WS_FAILED:
      end(client, from->status, event);
      event->http_status = from->http_status;
      break;
  }
}

size_t xz_client_receive(xz_client *client, const uint8_t *data, size_t len, xz_event *event) {
  size_t used = 0;
  memset(event, 0, sizeof *event);
  client->has_received = true;
  while (used < len && event->kind == XZ_EVENT_NONE) {
    xz_ws_event from;
    used += xz_ws_receive(&client->ws, data + used, len - used, &from);
    on_ws(client, &from, event);
  }
  return used;
}

void xz_client_disconnected(xz_client *client, xz_event *event) {
  memset(event, 0, sizeof *event);
  if (client->ws.state == XZ_WS_SHUT) return; /* it was told already */
  client->ws.state = XZ_WS_SHUT;
  end(client, XZ_OK, event);
  event->kind = XZ_EVENT_CLOSED;
  event->close_code = 1006; /* RFC 6455, 7.1.5: no Close was received */
}

void xz_client_tick(xz_client *client, uint32_t now_ms, xz_event *event) {
  memset(event, 0, sizeof *event);
  if (client->ws.state == XZ_WS_SHUT) return;
  bool is_connecting = client->state == XZ_STATE_CONNECTING;
  if (!client->has_clock || (client->has_received && !is_connecting)) client->heard_at_ms = now_ms;
  client->has_clock = true;
  client->has_received = false;
  uint32_t limit_ms = is_connecting ? XZ_CONNECT_TIMEOUT_MS : XZ_SILENCE_TIMEOUT_MS;
  if (now_ms - client->heard_at_ms < limit_ms) return; /* unsigned: right across an overflow */
  xz_ws_close(&client->ws, CLOSE_NORMAL);
  end(client, XZ_TIMEOUT, event);
}

const uint8_t *xz_client_output(const xz_client *client, size_t *len) {
  *len = client->ws.tx_len;
  return client->ws.tx;
}

void xz_client_sent(xz_client *client, size_t len) { xz_ws_sent(&client->ws, len); }

xz_status xz_client_listen(xz_client *client, xz_mode mode) {
  if (!client->is_open || client->state == XZ_STATE_SPEAKING) return XZ_BAD_STATE;
  xz_writer out = xz_ws_begin(&client->ws);
  xz_write_listen_start(&out, client->session_id, mode);
  xz_status status = send_text(client, &out);
  if (status != XZ_OK) return status;
  client->mode = mode;
  client->state = XZ_STATE_LISTENING;
  return XZ_OK;
}

xz_status xz_client_listen_stop(xz_client *client) {
  if (client->state != XZ_STATE_LISTENING || client->mode != XZ_MODE_MANUAL) return XZ_BAD_STATE;
  xz_writer out = xz_ws_begin(&client->ws);
  xz_write_listen_stop(&out, client->session_id);
  xz_status status = send_text(client, &out);
  if (status == XZ_OK) client->state = XZ_STATE_IDLE;
  return status;
}

xz_status xz_client_wake_word(xz_client *client, const char *wake_word) {
  if (!client->is_open) return XZ_BAD_STATE;
  xz_writer out = xz_ws_begin(&client->ws);
  xz_write_listen_detect(&out, client->session_id, wake_word, strlen(wake_word));
  return send_text(client, &out);
}

xz_status xz_client_audio(xz_client *client, const uint8_t *packet, size_t len,
                          uint32_t timestamp_ms) {
  bool is_speaking = client->state == XZ_STATE_SPEAKING;
  if (!client->is_open || (is_speaking && client->mode != XZ_MODE_REALTIME)) return XZ_BAD_STATE;
  xz_frame frame = {XZ_FRAME_AUDIO, timestamp_ms, packet, len};
  xz_writer out = xz_ws_begin(&client->ws);
  xz_status status = xz_frame_encode(client->config.handshake.version, &frame, &out);
  return status != XZ_OK ? status : xz_ws_commit(&client->ws, XZ_WS_BINARY, &out);
}

xz_status xz_client_abort(xz_client *client, bool is_wake_word) {
  if (!client->is_open) return XZ_BAD_STATE;
  xz_writer out = xz_ws_begin(&client->ws);
  xz_write_abort(&out, client->session_id, is_wake_word);
  xz_status status = send_text(client, &out);
  bool is_speaking = client->state == XZ_STATE_SPEAKING;
  if (status == XZ_OK && is_speaking && is_wake_word) client->state = XZ_STATE_IDLE;
  return status;
}

void xz_client_close(xz_client *client) {
  xz_ws_close(&client->ws, CLOSE_NORMAL);
  client->is_open = false;
  client->state = XZ_STATE_IDLE;
}
