#include "earshot_xiaozhi.h"

#include <string.h>

enum { CLOSE_NORMAL = 1000 };

static bool are_tools_good(const earshot_mcp *mcp) {
  if (mcp->tools_len == 0) return true;
  if (mcp->tools == NULL || mcp->name == NULL || mcp->version == NULL) return false;
  for (size_t i = 0; i < mcp->tools_len; i++) {
    const earshot_tool *tool = &mcp->tools[i];
    /* An empty name would be read as the cursor of the first page: the list would never end. */
    if (tool->name == NULL || *tool->name == '\0') return false;
    if (tool->description == NULL || tool->call == NULL) return false;
  }
  return true;
}

static bool is_config_good(const earshot_config *config) {
  int version = config->handshake.version;
  return config->handshake.host != NULL && config->handshake.path != NULL && version >= 0 &&
         version <= 3 && config->rx != NULL && config->rx_cap >= EARSHOT_WS_BUFFER_BYTES_MIN &&
         config->tx != NULL && config->tx_cap >= EARSHOT_WS_BUFFER_BYTES_MIN &&
         config->random != NULL && config->hello.frame_ms >= 0 && are_tools_good(&config->mcp);
}

earshot_status earshot_client_init(earshot_client *client, const earshot_config *config) {
  memset(client, 0, sizeof *client);
  if (!is_config_good(config)) return EARSHOT_BAD_CONFIG;
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
  client->ws.skips_accept = config->skips_accept;
  return EARSHOT_OK;
}

earshot_status earshot_client_open(earshot_client *client) {
  if (client->is_answering || client->ws.state != EARSHOT_WS_SHUT) return EARSHOT_BAD_STATE;
  earshot_status status = earshot_ws_open(&client->ws, &client->config.handshake);
  if (status != EARSHOT_OK) return status;
  client->state = EARSHOT_STATE_CONNECTING;
  client->mode = EARSHOT_MODE_AUTO; /* with the last mode the client might listen unasked */
  client->session_id[0] = '\0';
  client->has_received = false;
  client->has_clock = false;
  return EARSHOT_OK;
}

static void end(earshot_client *client, earshot_status why, earshot_event *event) {
  client->state = EARSHOT_STATE_CLOSED;
  event->kind = EARSHOT_EVENT_FAILED;
  event->error = why;
}

/* True after the server's hello and before any Close. */
static bool is_open(const earshot_client *client) {
  return client->state > EARSHOT_STATE_CONNECTING;
}

/* Returns whether a call is allowed now. If not, the event says that a tool made the call. */
static bool may_begin(const earshot_client *client, earshot_event *event) {
  memset(event, 0, sizeof *event);
  if (!client->is_answering) return true;
  event->kind = EARSHOT_EVENT_SKIPPED;
  event->error = EARSHOT_BAD_STATE;
  return false;
}

static earshot_status send_text(earshot_client *client, const earshot_writer *text) {
  return earshot_ws_commit(&client->ws, EARSHOT_WS_TEXT, text);
}

static void on_hello(earshot_client *client, const earshot_message *message, earshot_event *event) {
  if (is_open(client)) return; /* only the first hello counts */
  size_t len = message->session_id.len;
  if (len > EARSHOT_SESSION_ID_BYTES_MAX || (len > 0 && memchr(message->session_id.data, 0, len))) {
    earshot_ws_close(&client->ws, 1008);
    end(client, EARSHOT_BAD_MESSAGE, event);
    return;
  }
  if (len > 0) memcpy(client->session_id, message->session_id.data, len);
  client->session_id[len] = '\0';
  client->state = EARSHOT_STATE_IDLE;
  event->kind = EARSHOT_EVENT_OPEN;
  event->sample_rate_hz = message->sample_rate_hz;
  event->frame_ms = message->frame_ms;
}

static void on_mcp(earshot_client *client, earshot_json request) {
  if (client->config.mcp.tools_len == 0) return; /* the hello announced no tools */
  earshot_writer out = earshot_ws_begin(&client->ws);
  earshot_write_mcp_begin(&out, client->session_id);
  client->is_answering = true;
  bool has_answer = earshot_mcp_answer(&client->config.mcp, request, &out);
  client->is_answering = false;
  if (!has_answer) return;
  earshot_write_mcp_end(&out);
  if (send_text(client, &out) != EARSHOT_OK) client->replies_dropped++;
}

static void on_speaking_ended(earshot_client *client, const earshot_message *message,
                              earshot_event *event) {
  if (client->state != EARSHOT_STATE_SPEAKING) return;
  /* In auto mode the turn begins when the caller reports that all sound was played. */
  client->state =
      client->mode == EARSHOT_MODE_REALTIME ? EARSHOT_STATE_LISTENING : EARSHOT_STATE_IDLE;
  event->kind = EARSHOT_EVENT_SPEAKING_ENDED;
  event->timing = message->timing;
}

static void on_message(earshot_client *client, const earshot_message *message,
                       earshot_event *event) {
  if (!is_open(client) && message->kind != EARSHOT_MESSAGE_HELLO) return;
  event->text = message->text;
  event->emotion = message->emotion;
  event->status = message->status;
  event->payload = message->payload;
  event->is_partial = message->is_partial;
  switch (message->kind) {
    case EARSHOT_MESSAGE_IGNORED: break;
    case EARSHOT_MESSAGE_HELLO: on_hello(client, message, event); break;
    case EARSHOT_MESSAGE_STT: event->kind = EARSHOT_EVENT_TRANSCRIPT; break;
    case EARSHOT_MESSAGE_LLM: event->kind = EARSHOT_EVENT_EMOTION; break;
    case EARSHOT_MESSAGE_TTS_START:
      client->state = EARSHOT_STATE_SPEAKING;
      event->kind = EARSHOT_EVENT_SPEAKING;
      break;
    case EARSHOT_MESSAGE_TTS_SENTENCE: event->kind = EARSHOT_EVENT_SENTENCE; break;
    case EARSHOT_MESSAGE_TTS_STOP: on_speaking_ended(client, message, event); break;
    case EARSHOT_MESSAGE_MCP: on_mcp(client, message->payload); break;
    case EARSHOT_MESSAGE_REBOOT: event->kind = EARSHOT_EVENT_REBOOT; break;
    case EARSHOT_MESSAGE_ALERT: event->kind = EARSHOT_EVENT_ALERT; break;
    case EARSHOT_MESSAGE_CUSTOM: event->kind = EARSHOT_EVENT_CUSTOM; break;
  }
}

static void on_text(earshot_client *client, char *text, size_t len, earshot_event *event) {
  earshot_message message;
  earshot_status status = earshot_message_read(text, len, &message);
  if (status == EARSHOT_OK) {
    on_message(client, &message, event);
  } else {
    event->kind = EARSHOT_EVENT_SKIPPED;
    event->error = status;
  }
}

static void on_binary(earshot_client *client, uint8_t *data, size_t len, earshot_event *event) {
  earshot_frame frame;
  earshot_status status = earshot_frame_decode(client->config.handshake.version, data, len, &frame);
  if (status != EARSHOT_OK) {
    event->kind = EARSHOT_EVENT_SKIPPED;
    event->error = status;
  } else if (frame.kind == EARSHOT_FRAME_JSON) {
    on_text(client, (char *)data + (frame.payload - data), frame.payload_len, event);
  } else if (client->state == EARSHOT_STATE_SPEAKING) {
    event->kind = EARSHOT_EVENT_AUDIO;
    event->audio = frame;
  }
}

static void on_ws(earshot_client *client, const earshot_ws_event *from, earshot_event *event) {
  switch (from->kind) {
    case EARSHOT_WS_NONE: break;
    case EARSHOT_WS_OPENED: {
      earshot_writer out = earshot_ws_begin(&client->ws);
      earshot_write_hello(&out, &client->config.hello);
      if (send_text(client, &out) != EARSHOT_OK) {
        earshot_ws_close(&client->ws, CLOSE_NORMAL);
        end(client, EARSHOT_FULL, event);
      }
      break;
    }
    case EARSHOT_WS_MESSAGE:
      if (from->is_text) on_text(client, (char *)from->data, from->len, event);
      else on_binary(client, from->data, from->len, event);
      break;
    case EARSHOT_WS_CLOSED:
      end(client, EARSHOT_OK, event);
      event->kind = EARSHOT_EVENT_CLOSED;
      event->close_code = from->close_code;
      break;
    case EARSHOT_WS_FAILED:
      end(client, from->status, event);
      event->http_status = from->http_status;
      break;
  }
}

size_t earshot_client_receive(earshot_client *client, const uint8_t *data, size_t len,
                              earshot_event *event) {
  size_t used = 0;
  if (!may_begin(client, event)) return 0;
  client->has_received = true;
  while (used < len && event->kind == EARSHOT_EVENT_NONE) {
    earshot_ws_event from;
    used += earshot_ws_receive(&client->ws, data + used, len - used, &from);
    on_ws(client, &from, event);
  }
  return used;
}

void earshot_client_disconnected(earshot_client *client, earshot_event *event) {
  if (!may_begin(client, event)) return;
  if (client->ws.state == EARSHOT_WS_SHUT) return; /* the end was reported already */
  client->ws.state = EARSHOT_WS_SHUT;
  end(client, EARSHOT_OK, event);
  event->kind = EARSHOT_EVENT_CLOSED;
  event->close_code = 1006; /* RFC 6455, 7.1.5: no Close was received */
}

void earshot_client_tick(earshot_client *client, uint32_t now_ms, earshot_event *event) {
  if (!may_begin(client, event) || client->ws.state == EARSHOT_WS_SHUT) return;
  bool is_connecting = client->state == EARSHOT_STATE_CONNECTING;
  if (!client->has_clock || (client->has_received && !is_connecting)) client->heard_at_ms = now_ms;
  client->has_clock = true;
  client->has_received = false;
  uint32_t limit_ms = is_connecting ? EARSHOT_CONNECT_TIMEOUT_MS : EARSHOT_SILENCE_TIMEOUT_MS;
  if (now_ms - client->heard_at_ms < limit_ms) return; /* unsigned: correct across an overflow */
  earshot_ws_close(&client->ws, CLOSE_NORMAL);
  end(client, EARSHOT_TIMEOUT, event);
}

const uint8_t *earshot_client_output(const earshot_client *client, size_t *len) {
  *len = client->is_answering ? 0 : client->ws.tx_len;
  return client->ws.tx;
}

void earshot_client_sent(earshot_client *client, size_t len) {
  if (!client->is_answering) earshot_ws_sent(&client->ws, len);
}

/* Returns whether a message may be sent now. */
static bool may_send(const earshot_client *client) {
  return is_open(client) && !client->is_answering;
}

earshot_status earshot_client_listen(earshot_client *client, earshot_mode mode) {
  if (!may_send(client) || client->state == EARSHOT_STATE_SPEAKING) return EARSHOT_BAD_STATE;
  earshot_writer out = earshot_ws_begin(&client->ws);
  earshot_write_listen_start(&out, client->session_id, mode);
  earshot_status status = send_text(client, &out);
  if (status != EARSHOT_OK) return status;
  client->mode = mode;
  client->state = EARSHOT_STATE_LISTENING;
  return EARSHOT_OK;
}

earshot_status earshot_client_listen_stop(earshot_client *client) {
  if (!may_send(client)) return EARSHOT_BAD_STATE;
  if (client->state != EARSHOT_STATE_LISTENING || client->mode != EARSHOT_MODE_MANUAL)
    return EARSHOT_BAD_STATE;
  earshot_writer out = earshot_ws_begin(&client->ws);
  earshot_write_listen_stop(&out, client->session_id);
  earshot_status status = send_text(client, &out);
  if (status == EARSHOT_OK) client->state = EARSHOT_STATE_IDLE;
  return status;
}

earshot_status earshot_client_wake_word(earshot_client *client, const char *wake_word) {
  if (!may_send(client)) return EARSHOT_BAD_STATE;
  if (wake_word == NULL) return EARSHOT_BAD_MESSAGE;
  earshot_writer out = earshot_ws_begin(&client->ws);
  earshot_write_listen_detect(&out, client->session_id, wake_word, strlen(wake_word));
  return send_text(client, &out);
}

earshot_status earshot_client_audio(earshot_client *client, const uint8_t *packet, size_t len,
                                    uint32_t timestamp_ms) {
  bool is_speaking = client->state == EARSHOT_STATE_SPEAKING;
  if (!may_send(client) || (is_speaking && client->mode != EARSHOT_MODE_REALTIME))
    return EARSHOT_BAD_STATE;
  if (packet == NULL && len > 0) return EARSHOT_BAD_MESSAGE;
  earshot_frame frame = {EARSHOT_FRAME_AUDIO, timestamp_ms, packet, len};
  earshot_writer out = earshot_ws_begin(&client->ws);
  earshot_status status = earshot_frame_encode(client->config.handshake.version, &frame, &out);
  return status != EARSHOT_OK ? status : earshot_ws_commit(&client->ws, EARSHOT_WS_BINARY, &out);
}

earshot_status earshot_client_abort(earshot_client *client, bool is_wake_word) {
  if (!may_send(client)) return EARSHOT_BAD_STATE;
  earshot_writer out = earshot_ws_begin(&client->ws);
  earshot_write_abort(&out, client->session_id, is_wake_word);
  earshot_status status = send_text(client, &out);
  bool is_speaking = client->state == EARSHOT_STATE_SPEAKING;
  if (status == EARSHOT_OK && is_speaking && is_wake_word) {
    client->state = EARSHOT_STATE_IDLE;
    /* Until the next listen: an announcement must not begin a turn. */
    client->mode = EARSHOT_MODE_AUTO;
  }
  return status;
}

earshot_status earshot_client_close(earshot_client *client) {
  if (client->is_answering) return EARSHOT_BAD_STATE;
  earshot_ws_close(&client->ws, CLOSE_NORMAL);
  client->state = EARSHOT_STATE_CLOSED;
  return EARSHOT_OK;
}

earshot_state earshot_client_state(const earshot_client *client) { return client->state; }

uint32_t earshot_client_replies_dropped(const earshot_client *client) {
  return client->replies_dropped;
}
