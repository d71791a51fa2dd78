/* Answers lines of cases on stdin, one line each, so that the test compares them with cases.json:
 *   frame VERSION HEX | read HEX | mcp HEX | build WHAT ARGUMENT...      (hex; "-" is nothing)
 * Each case is also cut at every byte, and received through a WebSocket in pieces. */
#include "rig.h"

#define LINE_BYTES 300000
#define EVERY_CUT_BYTES 1200 /* longer inputs are cut at some 400 places */

static char line[LINE_BYTES];
static uint8_t stream[LINE_BYTES];

static size_t from_hex(const char *hex, uint8_t *out) {
  size_t len = 0;
  unsigned byte;
  if (strcmp(hex, "-") == 0) return 0;
  for (; sscanf(hex + 2 * len, "%2x", &byte) == 1; len++) out[len] = (uint8_t)byte;
  return len;
}

static void print_hex(const uint8_t *data, size_t len) {
  for (size_t i = 0; i < len; i++) printf("%02x", data[i]);
}

static void *exact_copy(const void *data, size_t len) {
  void *copy = malloc(len > 0 ? len : 1);
  CHECK(copy != NULL);
  if (len > 0) memcpy(copy, data, len);
  return copy;
}

static size_t step_of(size_t len) { return len <= EVERY_CUT_BYTES ? 1 : len / 400; }

/* Adds bytes to a hash. */
static uint64_t add_bytes(uint64_t sum, const void *data, size_t len) {
  const uint8_t *at = data;
  for (size_t i = 0; i < len; i++) sum = (sum ^ at[i]) * 1099511628211U;
  return (sum ^ len) * 1099511628211U;
}

/* Adds all fields of an event to a hash. */
static uint64_t add_event(uint64_t sum, const earshot_event *event) {
  int32_t numbers[] = {(int32_t)event->kind,
                       event->is_partial,
                       event->sample_rate_hz,
                       event->frame_ms,
                       event->close_code,
                       (int32_t)event->error,
                       (int32_t)event->audio.timestamp_ms,
                       event->timing.response_latency_ms};
  sum = add_bytes(sum, numbers, sizeof numbers);
  sum = add_bytes(sum, event->text.data, event->text.len);
  sum = add_bytes(sum, event->emotion.data, event->emotion.len);
  sum = add_bytes(sum, event->status.data, event->status.len);
  sum = add_bytes(sum, event->payload.data, event->payload.len);
  return add_bytes(sum, event->audio.payload, event->audio.payload_len);
}

static uint64_t feed(rig *r, const uint8_t *data, size_t len, uint64_t sum) {
  uint8_t *copy = exact_copy(data, len);
  for (size_t used = 0; used < len;) {
    earshot_event event;
    used += earshot_client_receive(&r->client, copy + used, len - used, &event);
    if (event.kind != EARSHOT_EVENT_NONE) sum = add_event(sum, &event);
  }
  free(copy);
  return sum;
}

static void start(rig *r, int version) {
  earshot_config config = rig_config(r, version, RX_BYTES, TX_BYTES);
  CHECK(earshot_client_init(&r->client, &config) == EARSHOT_OK);
  CHECK(earshot_client_open(&r->client) == EARSHOT_OK);
}

static uint64_t through_client(int version, size_t len, size_t cut, uint32_t seed) {
  rig r;
  uint64_t sum = 14695981039346656037U;
  start(&r, version);
  if (seed == 0) {
    sum = feed(&r, stream, cut, sum);
    sum = feed(&r, stream + cut, len - cut, sum);
  } else {
    for (size_t at = 0, piece; at < len; at += piece) {
      piece = next_random(&seed) >> (seed % 2 ? 30 : 22);
      piece = piece > len - at ? len - at : piece;
      sum = feed(&r, stream + at, piece, sum);
    }
  }
  rig_free(&r);
  return sum;
}

static size_t prologue(void) {
  static const char start_speaking[] = "{\"type\":\"tts\",\"state\":\"start\"}";
  size_t len = sizeof accepted - 1;
  memcpy(stream, accepted, len);
  len += server_frame(stream + len, 0x81, server_hello, sizeof server_hello - 1);
  return len + server_frame(stream + len, 0x81, start_speaking, sizeof start_speaking - 1);
}

/* Sends one message through a connection: in one piece, cut at any byte, and in fragments. */
static void check_any_split(int version, unsigned opcode, const uint8_t *data, size_t len) {
  if (len > RX_BYTES) return;
  size_t began = prologue();
  size_t end = began + server_frame(stream + began, 0x80 | opcode, data, len);
  uint64_t whole = through_client(version, end, end, 0);
  for (size_t cut = 0; cut < end; cut += step_of(end))
    CHECK(through_client(version, end, cut, 0) == whole);
  for (uint32_t seed = 1; seed <= 20; seed++) CHECK(through_client(version, end, 0, seed) == whole);
  for (size_t cut = 0; cut <= len; cut += step_of(len)) { /* a fragment, a ping, the rest */
    end = began + server_frame(stream + began, opcode, data, cut);
    end += server_frame(stream + end, 0x89, "hey", 3);
    end += server_frame(stream + end, 0x80, data + cut, len - cut);
    CHECK(through_client(version, end, end, 0) == whole);
    CHECK(through_client(version, end, 0, 7) == whole);
  }
}

static void answer_frame(int version, const uint8_t *data, size_t len) {
  earshot_frame frame, again;
  uint8_t *copy = exact_copy(data, len);
  earshot_status status = earshot_frame_decode(version, copy, len, &frame);
  if (status == EARSHOT_OK) {
    printf("ok %d %u ", (int)frame.kind, (unsigned)frame.timestamp_ms);
    print_hex(frame.payload, frame.payload_len);
    uint8_t *written = malloc(len + 1);
    CHECK(written != NULL);
    for (size_t cap = len > 64 ? len - 64 : 0; cap <= len + 1; cap++) { /* and no room for it */
      earshot_writer out = earshot_writer_to(written, cap);
      CHECK(earshot_frame_encode(version, &frame, &out) == (cap < len ? EARSHOT_FULL : EARSHOT_OK));
      CHECK(cap < len || out.len == len);
    }
    CHECK(earshot_frame_decode(version, written, len, &again) == EARSHOT_OK);
    CHECK(again.kind == frame.kind && again.timestamp_ms == frame.timestamp_ms);
    CHECK(again.payload_len == frame.payload_len);
    CHECK(len == 0 || memcmp(again.payload, frame.payload, frame.payload_len) == 0);
    free(written);
  } else {
    printf("error %s", earshot_status_name(status));
  }
  free(copy);
  for (size_t cut = 0; version > 1 && cut < len; cut += step_of(len)) {
    copy = exact_copy(data, cut);
    CHECK(earshot_frame_decode(version, copy, cut, &frame) != EARSHOT_OK ||
          status == EARSHOT_TRAILING);
    free(copy);
  }
  check_any_split(version, 2, data, len);
}

static void print_field(const char *name, earshot_text text) {
  static char buffer[4 * RX_BYTES];
  if (text.data == NULL) return;
  CHECK(text.data[text.len] == '\0');
  earshot_writer out = earshot_writer_to(buffer, sizeof buffer);
  earshot_put_escaped_bytes(&out, text.data, text.len);
  CHECK(!out.is_full);
  printf(",\"%s\":\"%.*s\"", name, (int)out.len, buffer);
}

static void print_message(const earshot_message *message) {
  static const char *const kinds[] = {
      "ignored",  "hello", "stt",    "llm",   "tts start", "tts sentence_start",
      "tts stop", "mcp",   "reboot", "alert", "custom"};
  const earshot_timing *timing = &message->timing;
  printf("{\"kind\":\"%s\"", kinds[message->kind]);
  print_field("session_id", message->session_id);
  print_field("text", message->text);
  print_field("emotion", message->emotion);
  print_field("status", message->status);
  if (message->is_partial) printf(",\"partial\":true");
  if (message->payload.data != NULL)
    printf(",\"payload\":%.*s", (int)message->payload.len, message->payload.data);
  if (message->kind == EARSHOT_MESSAGE_HELLO)
    printf(",\"sample_rate\":%d,\"frame_duration\":%d", (int)message->sample_rate_hz,
           (int)message->frame_ms);
  if (timing->response_latency_ms != EARSHOT_UNKNOWN_MS)
    printf(",\"timing\":[%d,%d,%d,%d]", (int)timing->response_latency_ms,
           (int)timing->transcript_ms, (int)timing->first_text_ms, (int)timing->first_audio_ms);
  printf("}");
}

static bool is_blank(const uint8_t *data, size_t len) {
  for (size_t i = 0; i < len; i++)
    if (strchr(" \t\r\n", data[i]) == NULL) return false;
  return true;
}

static void answer_read(const uint8_t *data, size_t len) {
  earshot_message message;
  char *copy = exact_copy(data, len);
  earshot_status status = earshot_message_read(copy, len, &message);
  if (status == EARSHOT_OK) print_message(&message);
  else printf("error %s", earshot_status_name(status));
  free(copy);
  for (size_t cut = 0; cut < len; cut += step_of(len)) {
    copy = exact_copy(data, cut);
    earshot_status cut_status = earshot_message_read(copy, cut, &message);
    CHECK(cut_status != EARSHOT_OK || status != EARSHOT_OK || is_blank(data + cut, len - cut));
    free(copy);
  }
  check_any_split(3, 1, data, len);
}

static const char *set_volume(void *context, earshot_json arguments, earshot_writer *result) {
  int32_t volume;
  earshot_json value;
  int32_t *last = context;
  if (!earshot_json_get(arguments, "volume", &value) || !earshot_json_to_int(value, &volume) ||
      volume < 0 || volume > 100)
    return "volume must be 0 to 100";
  *last = volume;
  earshot_put_escaped(result, "true");
  return NULL;
}

static void answer_mcp(const char *text, size_t len, size_t cap) {
  static int32_t volume;
  static const earshot_tool tools[] = {
      {"self.audio_speaker.set_volume", "Set the volume, \"0\" to 100.",
       "{\"type\":\"object\",\"properties\":{\"volume\":{\"type\":\"integer\"}}}", false,
       set_volume, &volume},
      {"self.reboot", "Restart.", NULL, true, set_volume, &volume}};
  static const earshot_mcp mcp = {"bo\"ard", "1.0", tools, 2};
  earshot_json request;
  char *copy = exact_copy(text, len), *room = malloc(cap + 1);
  CHECK(room != NULL);
  earshot_writer out = earshot_writer_to(room, cap);
  if (!earshot_json_check(copy, len, &request)) printf("error bad_json");
  else if (!earshot_mcp_answer(&mcp, request, &out)) printf("none");
  else if (out.is_full) printf("full");
  else printf("%.*s", (int)out.len, room);
  free(room);
  free(copy);
}

static void answer_build(char **words, size_t count) {
  static uint8_t session[1000], text[RX_BYTES], room[4 * RX_BYTES];
  const char *what = words[0];
  session[count > 1 ? from_hex(words[1], session) : 0] = '\0';
  size_t len = count > 2 ? from_hex(words[2], text) : 0;
  const char *id = (const char *)session;
  earshot_writer out = earshot_writer_to(room, sizeof room);
  if (strcmp(what, "hello") == 0) {
    earshot_hello hello = {text[0], 60, text[1] == 1, text[2] == 1, text[3] == 1, text[4] == 1};
    earshot_write_hello(&out, &hello);
  } else if (strcmp(what, "listen_start") == 0) {
    earshot_write_listen_start(&out, id, (earshot_mode)text[0]);
  } else if (strcmp(what, "listen_stop") == 0) {
    earshot_write_listen_stop(&out, id);
  } else if (strcmp(what, "listen_detect") == 0) {
    earshot_write_listen_detect(&out, id, (char *)text, len);
  } else if (strcmp(what, "abort") == 0) {
    earshot_write_abort(&out, id, text[0] == 1);
  } else {
    CHECK(strcmp(what, "mcp") == 0);
    earshot_write_mcp_begin(&out, id);
    earshot_put_bytes(&out, text, len);
    earshot_write_mcp_end(&out);
  }
  CHECK(!out.is_full);
  printf("%.*s", (int)out.len, (char *)room);
}

int main(void) {
  static uint8_t data[LINE_BYTES / 2];
  while (fgets(line, sizeof line, stdin) != NULL) {
    char *words[4];
    size_t count = 0;
    for (char *word = strtok(line, " \n"); word != NULL && count < 4; word = strtok(NULL, " \n"))
      words[count++] = word;
    CHECK(count >= 2);
    if (strcmp(words[0], "frame") == 0)
      answer_frame(atoi(words[1]), data, from_hex(words[2], data));
    else if (strcmp(words[0], "read") == 0) answer_read(data, from_hex(words[1], data));
    else if (strcmp(words[0], "mcp") == 0)
      answer_mcp((char *)data, from_hex(words[2], data), (size_t)atoi(words[1]));
    else answer_build(words + 1, count - 1);
    printf("\n");
  }
  return 0;
}
