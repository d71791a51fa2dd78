/* Conversations and broken servers, step by step. Tools and values have files of their own. */
#include "../src/handshake.h"
#include "scene.h"

static void test_request(void) {
  size_t len;
  earshot_config config = rig_config(&r, 0, 1024, 1024);
  config.handshake.token = "dev-7f3c";
  config.handshake.device_id = "a1:b2:c3:d4:e5:f6";
  config.handshake.client_id = "0b6f";
  CHECK(earshot_client_init(&r.client, &config) == EARSHOT_OK &&
        earshot_client_open(&r.client) == EARSHOT_OK);
  char *text = (char *)r.tx;
  earshot_client_output(&r.client, &len);
  text[len] = '\0';
  CHECK(strncmp(text, "GET /xiaozhi/v1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n", 43) == 0);
  CHECK(strstr(text, "\r\nAuthorization: Bearer dev-7f3c\r\n") != NULL);
  CHECK(strstr(text, "\r\nProtocol-Version: 3\r\n") != NULL);
  CHECK(strstr(text, "\r\nDevice-Id: a1:b2:c3:d4:e5:f6\r\nClient-Id: 0b6f\r\n\r\n") != NULL);
  rig_free(&r);
  config = rig_config(&r, 1, 1024, 1024);
  config.handshake.token = "Basic x"; /* with a space: sent unchanged */
  CHECK(earshot_client_init(&r.client, &config) == EARSHOT_OK &&
        earshot_client_open(&r.client) == EARSHOT_OK);
  earshot_client_output(&r.client, &len);
  r.tx[len] = '\0';
  CHECK(strstr((char *)r.tx, "\r\nAuthorization: Basic x\r\n") != NULL);
  config.handshake.token = "x\r\nEvil: y";
  CHECK(earshot_client_init(&r.client, &config) == EARSHOT_OK);
  CHECK(earshot_client_open(&r.client) == EARSHOT_BAD_CONFIG);
  rig_free(&r);
}

static void test_config(void) {
  earshot_config good = rig_config(&r, 3, 512, 512), bad = good;
  bad.tx_cap = 511;
  CHECK(earshot_client_init(&r.client, &bad) == EARSHOT_BAD_CONFIG);
  bad = good;
  bad.handshake.version = 4;
  CHECK(earshot_client_init(&r.client, &bad) == EARSHOT_BAD_CONFIG);
  bad = good;
  bad.random = NULL;
  CHECK(earshot_client_init(&r.client, &bad) == EARSHOT_BAD_CONFIG);
  CHECK(earshot_client_init(&r.client, &good) == EARSHOT_OK);
  CHECK(earshot_client_listen(&r.client, EARSHOT_MODE_AUTO) == EARSHOT_BAD_STATE);
  CHECK(earshot_client_audio(&r.client, NULL, 0, 0) == EARSHOT_BAD_STATE);
  rig_free(&r);
}

static void test_accept(void) {
  char accept[29], response[300];
  earshot_handshake_accept("dGhlIHNhbXBsZSBub25jZQ==", accept); /* RFC 6455, 1.3 */
  CHECK(strcmp(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") == 0);
  for (int is_right = 0; is_right < 2; is_right++) {
    earshot_config config = rig_config(&r, 3, 1024, 1024);
    config.skips_accept = false;
    CHECK(earshot_client_init(&r.client, &config) == EARSHOT_OK &&
          earshot_client_open(&r.client) == EARSHOT_OK);
    earshot_handshake_accept(r.client.ws.key, accept);
    if (!is_right) accept[5] ^= 1;
    snprintf(response, sizeof response,
             "HTTP/1.1 101 X\r\nServer: x\r\nsec-webSocket-ACCEPT:\t %s \r\nX: y\r\n\r\n", accept);
    earshot_event event = give(response, strlen(response));
    CHECK(event.kind == (is_right ? EARSHOT_EVENT_NONE : EARSHOT_EVENT_FAILED));
    CHECK(is_right || event.error == EARSHOT_PROTOCOL);
    rig_free(&r);
  }
}

static void test_responses(void) {
  static const struct {
    const char *text;
    earshot_status error;
    int http_status;
  } cases[] = {
      {"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", EARSHOT_REFUSED, 401},
      {"HTTP/1.1 200 OK\r\n\r\n", EARSHOT_REFUSED, 200},
      {"HTTP/1.0 101 X\r\n\r\n", EARSHOT_PROTOCOL, 0},
      {"HTTP/1.1 1x1 X\r\n\r\n", EARSHOT_PROTOCOL, 1},
      {"\r\n\r\n", EARSHOT_PROTOCOL, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    earshot_config config = rig_config(&r, 3, 512, 512);
    CHECK(earshot_client_init(&r.client, &config) == EARSHOT_OK &&
          earshot_client_open(&r.client) == EARSHOT_OK);
    earshot_event event = give(cases[i].text, strlen(cases[i].text));
    CHECK(event.kind == EARSHOT_EVENT_FAILED && event.error == cases[i].error);
    CHECK(event.http_status == cases[i].http_status &&
          earshot_client_state(&r.client) == EARSHOT_STATE_CLOSED);
    CHECK(earshot_client_open(&r.client) == EARSHOT_OK); /* another attempt is allowed */
    memset(wire, 'a', 513);
    event = give(wire, 513);
    CHECK(event.kind == EARSHOT_EVENT_FAILED && event.error == EARSHOT_TOO_LARGE);
    rig_free(&r);
  }
}

static void test_turn_in_auto(void) {
  open_client(3);
  CHECK(earshot_client_audio(&r.client, (const uint8_t *)"w", 1, 0) ==
        EARSHOT_OK); /* the wake word's */
  CHECK(take_sent() && sent.opcode == 2 && sent.len == 5 &&
        memcmp(sent.payload, "\0\0\0\1w", 5) == 0);
  CHECK(earshot_client_wake_word(&r.client, "hi \"esp\"") == EARSHOT_OK);
  CHECK(
      has_sent("{\"session_id\":\"s-1\",\"type\":\"listen\",\"state\":\"detect\",\"text\":\"hi "
               "\\\"esp\\\"\"}"));
  CHECK(earshot_client_listen(&r.client, EARSHOT_MODE_AUTO) == EARSHOT_OK);
  CHECK(earshot_client_state(&r.client) == EARSHOT_STATE_LISTENING);
  CHECK(has_sent(
      "{\"session_id\":\"s-1\",\"type\":\"listen\",\"state\":\"start\",\"mode\":\"auto\"}"));
  CHECK(earshot_client_listen_stop(&r.client) == EARSHOT_BAD_STATE);
  CHECK(give_frame(0x82, "\0\0\0\1x", 5).kind == EARSHOT_EVENT_NONE); /* sound before tts start */
  earshot_event event = say("{\"type\":\"stt\",\"text\":\"lamp\",\"partial\":true}");
  CHECK(event.kind == EARSHOT_EVENT_TRANSCRIPT && event.is_partial &&
        strcmp(event.text.data, "lamp") == 0);
  CHECK(say("{\"type\":\"tts\",\"state\":\"start\"}").kind == EARSHOT_EVENT_SPEAKING);
  CHECK(earshot_client_state(&r.client) == EARSHOT_STATE_SPEAKING);
  CHECK(earshot_client_audio(&r.client, (const uint8_t *)"x", 1, 0) == EARSHOT_BAD_STATE);
  CHECK(earshot_client_listen(&r.client, EARSHOT_MODE_AUTO) == EARSHOT_BAD_STATE);
  event = give_frame(0x82, "\0\0\0\1x", 5);
  CHECK(event.kind == EARSHOT_EVENT_AUDIO && event.audio.payload_len == 1 &&
        event.audio.payload[0] == 'x');
  event = give_frame(0x82, "\0\0\0\2x", 5); /* broken: skipped, and no more */
  CHECK(event.kind == EARSHOT_EVENT_SKIPPED && event.error == EARSHOT_TRUNCATED);
  CHECK(earshot_client_abort(&r.client, false) == EARSHOT_OK &&
        earshot_client_state(&r.client) == EARSHOT_STATE_SPEAKING);
  CHECK(has_sent("{\"session_id\":\"s-1\",\"type\":\"abort\"}"));
  event = say("{\"type\":\"tts\",\"state\":\"stop\",\"timing\":{\"response_latency_ms\":41.5}}");
  CHECK(event.kind == EARSHOT_EVENT_SPEAKING_ENDED && event.timing.response_latency_ms == 42);
  CHECK(event.timing.first_audio_ms == EARSHOT_UNKNOWN_MS &&
        earshot_client_state(&r.client) == EARSHOT_STATE_IDLE);
  CHECK(say("{\"type\":\"tts\",\"state\":\"stop\"}").kind == EARSHOT_EVENT_NONE);
  CHECK(earshot_client_listen(&r.client, EARSHOT_MODE_AUTO) == EARSHOT_OK && take_sent());
  earshot_client_close(&r.client);
  CHECK(take_sent() && sent.opcode == 8 && memcmp(sent.payload, "\x03\xe8", 2) == 0);
  CHECK(earshot_client_state(&r.client) == EARSHOT_STATE_CLOSED);
  CHECK(earshot_client_listen(&r.client, EARSHOT_MODE_AUTO) == EARSHOT_BAD_STATE);
  rig_free(&r);
}

static void test_other_modes(void) {
  open_client(2);
  CHECK(earshot_client_listen(&r.client, EARSHOT_MODE_MANUAL) == EARSHOT_OK && take_sent());
  CHECK(earshot_client_listen_stop(&r.client) == EARSHOT_OK &&
        earshot_client_state(&r.client) == EARSHOT_STATE_IDLE);
  CHECK(has_sent("{\"session_id\":\"s-1\",\"type\":\"listen\",\"state\":\"stop\"}"));
  CHECK(say("{\"type\":\"tts\",\"state\":\"start\"}").kind == EARSHOT_EVENT_SPEAKING);
  CHECK(say("{\"type\":\"tts\",\"state\":\"stop\"}").kind == EARSHOT_EVENT_SPEAKING_ENDED);
  CHECK(earshot_client_state(&r.client) == EARSHOT_STATE_IDLE);
  CHECK(earshot_client_listen(&r.client, EARSHOT_MODE_REALTIME) == EARSHOT_OK && take_sent());
  CHECK(say("{\"type\":\"tts\",\"state\":\"start\"}").kind == EARSHOT_EVENT_SPEAKING);
  CHECK(earshot_client_audio(&r.client, (const uint8_t *)"x", 1, 0x01020304) == EARSHOT_OK);
  CHECK(take_sent() && memcmp(sent.payload, "\0\2\0\0\0\0\0\0\1\2\3\4\0\0\0\1x", 17) == 0);
  CHECK(say("{\"type\":\"tts\",\"state\":\"stop\"}").kind == EARSHOT_EVENT_SPEAKING_ENDED);
  CHECK(earshot_client_state(&r.client) == EARSHOT_STATE_LISTENING);
  CHECK(say("{\"type\":\"tts\",\"state\":\"start\"}").kind == EARSHOT_EVENT_SPEAKING);
  CHECK(earshot_client_abort(&r.client, true) == EARSHOT_OK &&
        take_sent()); /* a wake word: at once */
  CHECK(earshot_client_listen(&r.client, EARSHOT_MODE_AUTO) == EARSHOT_OK && take_sent());
  CHECK(give_frame(0x82, "late", 4).kind == EARSHOT_EVENT_SKIPPED);
  CHECK(say("{\"type\":\"tts\",\"state\":\"stop\"}").kind == EARSHOT_EVENT_NONE);
  CHECK(earshot_client_state(&r.client) == EARSHOT_STATE_LISTENING);
  rig_free(&r);
}

static void announce(void) {
  CHECK(earshot_client_state(&r.client) == EARSHOT_STATE_IDLE);
  CHECK(say("{\"type\":\"tts\",\"state\":\"start\"}").kind == EARSHOT_EVENT_SPEAKING);
  CHECK(earshot_client_audio(&r.client, (const uint8_t *)"x", 1, 0) == EARSHOT_BAD_STATE);
  CHECK(say("{\"type\":\"tts\",\"state\":\"stop\"}").kind == EARSHOT_EVENT_SPEAKING_ENDED);
  CHECK(earshot_client_state(&r.client) == EARSHOT_STATE_IDLE);
}

typedef enum { BY_US, BY_THE_NETWORK, BY_SILENCE, WAYS_TO_END } way_to_end;

static void end_conversation(way_to_end way) {
  earshot_event event;
  if (way == BY_US) CHECK(earshot_client_close(&r.client) == EARSHOT_OK);
  if (way == BY_THE_NETWORK) earshot_client_disconnected(&r.client, &event);
  if (way == BY_SILENCE) {
    earshot_client_tick(&r.client, 1000, &event);
    earshot_client_tick(&r.client, 1000 + EARSHOT_SILENCE_TIMEOUT_MS, &event);
    CHECK(event.kind == EARSHOT_EVENT_FAILED);
  }
  CHECK(earshot_client_state(&r.client) == EARSHOT_STATE_CLOSED);
  CHECK(earshot_client_listen(&r.client, EARSHOT_MODE_AUTO) == EARSHOT_BAD_STATE);
}

/* The second conversation begins like the first, whatever ended that one. */
static void test_reconnect(void) {
  for (way_to_end way = BY_US; way < WAYS_TO_END; way++) {
    earshot_event event;
    open_client(3);
    CHECK(earshot_client_listen(&r.client, EARSHOT_MODE_REALTIME) == EARSHOT_OK);
    give("\x82\x7e\x01", 3); /* the connection breaks within the header of a frame */
    end_conversation(way);
    dial();
    earshot_client_tick(&r.client, 5000000, &event); /* much later, and not too late */
    CHECK(event.kind == EARSHOT_EVENT_NONE);
    be_greeted();
    announce();
    CHECK(earshot_client_listen(&r.client, EARSHOT_MODE_AUTO) == EARSHOT_OK);
    CHECK(has_sent(
        "{\"session_id\":\"s-1\",\"type\":\"listen\",\"state\":\"start\",\"mode\":\"auto\"}"));
    rig_free(&r);
  }
}

/* A wake word ends a realtime turn. An announcement before the next turn begins none. */
static void test_announcement_after_an_abort(void) {
  open_client(3);
  CHECK(earshot_client_listen(&r.client, EARSHOT_MODE_REALTIME) == EARSHOT_OK);
  CHECK(say("{\"type\":\"tts\",\"state\":\"start\"}").kind == EARSHOT_EVENT_SPEAKING);
  CHECK(earshot_client_abort(&r.client, true) == EARSHOT_OK);
  announce();
  rig_free(&r);
}

static void test_other_messages(void) {
  open_client(3);
  CHECK(say("{\"type\":\"system\",\"command\":\"reboot\"}").kind == EARSHOT_EVENT_REBOOT);
  earshot_event event =
      say("{\"type\":\"alert\",\"status\":\"a\",\"message\":\"b\",\"emotion\":\"c\"}");
  CHECK(event.kind == EARSHOT_EVENT_ALERT && *event.status.data == 'a' && *event.text.data == 'b');
  CHECK(*event.emotion.data == 'c');
  event = say("{\"type\":\"custom\",\"payload\":{\"a\":1}}");
  CHECK(event.kind == EARSHOT_EVENT_CUSTOM && event.payload.len == 7);
  CHECK(say("{\"type\":\"llm\",\"emotion\":\"sad\"}").kind == EARSHOT_EVENT_EMOTION);
  CHECK(say("{\"type\":\"tts\",\"state\":\"sentence_start\",\"text\":\"x\"}").kind ==
        EARSHOT_EVENT_SENTENCE);
  CHECK(say(server_hello).kind == EARSHOT_EVENT_NONE); /* a second hello changes nothing */
  event = say("{\"type\":\"stt\",\"text\":\"say \"hi\"\"}");
  CHECK(event.kind == EARSHOT_EVENT_SKIPPED && event.error == EARSHOT_BAD_JSON &&
        earshot_client_state(&r.client) == EARSHOT_STATE_IDLE);
  CHECK(give_frame(0x82, "\1\0\0\x1e{\"type\":\"tts\",\"state\":\"start\"}", 34).kind ==
        EARSHOT_EVENT_SPEAKING); /* JSON in a binary frame */
  CHECK(say("{\"type\":\"mcp\",\"payload\":{\"id\":1,\"method\":\"initialize\"}}").kind ==
        EARSHOT_EVENT_NONE);
  CHECK(!take_sent()); /* no tools, none announced */
  rig_free(&r);
}

static void test_session_id(void) {
  char text[200];
  for (int len = EARSHOT_SESSION_ID_BYTES_MAX; len <= EARSHOT_SESSION_ID_BYTES_MAX + 1; len++) {
    shake_hands(3, 1024, 1024);
    CHECK(say("{\"type\":\"tts\",\"state\":\"start\"}").kind ==
          EARSHOT_EVENT_NONE); /* before hello */
    snprintf(text, sizeof text,
             "{\"type\":\"hello\",\"transport\":\"websocket\",\"session_id\":\"%0*d\"}", len, 7);
    CHECK(say(text).kind ==
          (len > EARSHOT_SESSION_ID_BYTES_MAX ? EARSHOT_EVENT_FAILED : EARSHOT_EVENT_OPEN));
    rig_free(&r);
  }
}

static void test_pings(void) {
  open_client(3);
  memset(wire + 1000, 'p', 125);
  CHECK(give_frame(0x89, wire + 1000, 125).kind == EARSHOT_EVENT_NONE);
  CHECK(take_sent() && sent.opcode == 10 && sent.len == 125 && sent.payload[124] == 'p');
  CHECK(give_frame(0x89, "", 0).kind == EARSHOT_EVENT_NONE && take_sent() && sent.len == 0);
  CHECK(give_frame(0x8a, "x", 1).kind == EARSHOT_EVENT_NONE && !take_sent());
  for (int i = 0; i < 100; i++) give_frame(0x89, wire + 1000, 125); /* unsent pongs */
  CHECK(r.client.ws.tx_len <= r.client.ws.tx_cap);
  earshot_client_close(&r.client); /* and there is still room to say goodbye */
  while (take_sent()) CHECK(sent.opcode == 10 || sent.opcode == 8);
  CHECK(sent.opcode == 8);
  rig_free(&r);
}

static void test_closes(void) {
  static const struct {
    const char *payload;
    size_t len;
    earshot_event_kind kind;
    int code;
  } cases[] = {
      {"", 0, EARSHOT_EVENT_CLOSED, 1005},
      {"\x03\xe8", 2, EARSHOT_EVENT_CLOSED, 1000},
      {"\x0f\xa1why", 5, EARSHOT_EVENT_CLOSED, 4001},
      {"\x03", 1, EARSHOT_EVENT_FAILED, 0},
      {"\x03\xed", 2, EARSHOT_EVENT_FAILED, 0}, /* 1005 and 1006 must not be sent */
      {"\x03\xee", 2, EARSHOT_EVENT_FAILED, 0},
      {"\x03\xec", 2, EARSHOT_EVENT_FAILED, 0},
      {"\x03\xf6", 2, EARSHOT_EVENT_CLOSED, 1014},
      {"\x03\xf7", 2, EARSHOT_EVENT_FAILED, 0},
      {"\x00\x01", 2, EARSHOT_EVENT_FAILED, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    open_client(3);
    earshot_event event = give_frame(0x88, cases[i].payload, cases[i].len);
    CHECK(event.kind == cases[i].kind && event.close_code == cases[i].code);
    CHECK(take_sent() && sent.opcode == 8 &&
          earshot_client_state(&r.client) == EARSHOT_STATE_CLOSED);
    bool is_echo = cases[i].kind == EARSHOT_EVENT_CLOSED;
    size_t echo_len = cases[i].len < 2 ? cases[i].len : 2;
    CHECK(!is_echo ||
          (sent.len == echo_len && memcmp(sent.payload, cases[i].payload, echo_len) == 0));
    CHECK(is_echo || memcmp(sent.payload, "\x03\xea", 2) == 0); /* 1002 */
    CHECK(give_frame(0x81, "x", 1).kind == EARSHOT_EVENT_NONE); /* later data is ignored */
    earshot_client_disconnected(&r.client, &event);
    CHECK(event.kind == EARSHOT_EVENT_NONE);
    rig_free(&r);
  }
  open_client(3);
  earshot_event event;
  earshot_client_disconnected(&r.client, &event);
  CHECK(event.kind == EARSHOT_EVENT_CLOSED && event.close_code == 1006);
  rig_free(&r);
}

static void test_broken_frames(void) {
  static const struct {
    const char *bytes;
    size_t len;
    earshot_status error;
  } cases[] = {
      {"\x81\x81\0\0\0\0x", 7, EARSHOT_PROTOCOL},           /* masked */
      {"\xc1\x01x", 3, EARSHOT_PROTOCOL},                   /* RSV1 without an extension */
      {"\x91\x01x", 3, EARSHOT_PROTOCOL},                   /* RSV3 */
      {"\x83\x01x", 3, EARSHOT_PROTOCOL},                   /* reserved opcodes */
      {"\x8b\x01x", 3, EARSHOT_PROTOCOL},                   /**/
      {"\x09\x01x", 3, EARSHOT_PROTOCOL},                   /* a ping in fragments */
      {"\x89\x7e\x00\x7e", 4, EARSHOT_PROTOCOL},            /* a ping of 126 bytes */
      {"\x80\x01x", 3, EARSHOT_PROTOCOL},                   /* a continuation without a beginning */
      {"\x01\x01x\x81\x01y", 6, EARSHOT_PROTOCOL},          /* a message within another */
      {"\x82\x7f\x80\0\0\0\0\0\0\0", 10, EARSHOT_PROTOCOL}, /* 2^63 bytes */
      {"\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff", 10, EARSHOT_TOO_LARGE},
      {"\x82\x7e\x10\x01", 4, EARSHOT_TOO_LARGE},          /* one byte more than rx */
      {"\x02\x01x\x80\x7e\x10\x00", 7, EARSHOT_TOO_LARGE}, /* the sum of the fragments is */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t cut = 0; cut <= cases[i].len; cut++) {
      open_client(3);
      earshot_event event = give(cases[i].bytes, cut), rest;
      rest = give(cases[i].bytes + cut, cases[i].len - cut);
      if (rest.kind != EARSHOT_EVENT_NONE) event = rest;
      CHECK(event.kind == EARSHOT_EVENT_FAILED && event.error == cases[i].error);
      CHECK(take_sent() && sent.opcode == 8 && sent.len == 2);
      CHECK(sent.payload[1] ==
            (cases[i].error == EARSHOT_TOO_LARGE ? 0xf1 : 0xea)); /* 1009, 1002 */
      rig_free(&r);
    }
}

static void test_longest_message(void) {
  open_client(1);
  CHECK(say("{\"type\":\"tts\",\"state\":\"start\"}").kind == EARSHOT_EVENT_SPEAKING);
  memset(wire + 8192, 'x', 4096);
  earshot_event event = give_frame(0x82, wire + 8192, 4096); /* fills rx exactly */
  CHECK(event.kind == EARSHOT_EVENT_AUDIO && event.audio.payload_len == 4096);
  event = give_frame(0x82, "", 0); /* v1: nothing is DTX */
  CHECK(event.kind == EARSHOT_EVENT_AUDIO && event.audio.payload_len == 0);
  rig_free(&r);
}

static void test_full_output(void) {
  static const uint8_t packet[200] = {1};
  size_t len, packets = 0;
  open_client(3);
  while (earshot_client_audio(&r.client, packet, sizeof packet, 0) == EARSHOT_OK) packets++;
  CHECK(packets > 10 && packets < 20);
  CHECK(earshot_client_listen(&r.client, EARSHOT_MODE_AUTO) != EARSHOT_OK ||
        r.client.ws.tx_len < 4096);
  earshot_client_output(&r.client, &len);
  CHECK(len <= 4096 - EARSHOT_WS_RESERVED_BYTES);
  for (; packets > 0; packets--) { /* what was accepted arrives whole */
    CHECK(take_sent() && sent.len == 204 && sent.payload[4] == 1);
  }
  CHECK(earshot_client_audio(&r.client, packet, sizeof packet, 0) == EARSHOT_OK);
  CHECK(earshot_client_audio(&r.client, wire, EARSHOT_PAYLOAD_BYTES_MAX + 1, 0) ==
        EARSHOT_TOO_LARGE);
  CHECK(earshot_client_audio(&r.client, NULL, 1, 0) == EARSHOT_BAD_MESSAGE);
  CHECK(earshot_client_audio(&r.client, NULL, 0, 0) == EARSHOT_OK); /* DTX */
  CHECK(earshot_client_wake_word(&r.client, NULL) == EARSHOT_BAD_MESSAGE);
  rig_free(&r);
}

static void test_hello_without_room(void) { /* the request was never sent */
  static char token[150];
  earshot_config config = rig_config(&r, 3, 512, 512);
  config.handshake.token = memset(token, 't', sizeof token - 1);
  CHECK(earshot_client_init(&r.client, &config) == EARSHOT_OK &&
        earshot_client_open(&r.client) == EARSHOT_OK);
  earshot_event event = give(accepted, sizeof accepted - 1);
  CHECK(event.kind == EARSHOT_EVENT_FAILED && event.error == EARSHOT_FULL);
  CHECK(earshot_client_state(&r.client) == EARSHOT_STATE_CLOSED &&
        r.client.ws.state == EARSHOT_WS_SHUT);
  rig_free(&r);
}

static void test_time(void) {
  earshot_event event;
  shake_hands(3, 512, 512);
  earshot_client_tick(&r.client, 0xfffffff0, &event); /* the counter overflows on the way */
  CHECK(event.kind == EARSHOT_EVENT_NONE);
  give_frame(0x89, "", 0); /* a ping is no hello */
  earshot_client_tick(&r.client, 0xfffffff0 + EARSHOT_CONNECT_TIMEOUT_MS - 1, &event);
  CHECK(event.kind == EARSHOT_EVENT_NONE);
  earshot_client_tick(&r.client, 0xfffffff0 + EARSHOT_CONNECT_TIMEOUT_MS, &event);
  CHECK(event.kind == EARSHOT_EVENT_FAILED && event.error == EARSHOT_TIMEOUT);
  rig_free(&r);
  open_client(3);
  earshot_client_tick(&r.client, 5, &event);
  earshot_client_tick(&r.client, 5 + EARSHOT_SILENCE_TIMEOUT_MS - 1, &event);
  CHECK(event.kind == EARSHOT_EVENT_NONE);
  say("{\"type\":\"llm\"}");
  earshot_client_tick(&r.client, 5 + EARSHOT_SILENCE_TIMEOUT_MS, &event);
  CHECK(event.kind == EARSHOT_EVENT_NONE);
  earshot_client_tick(&r.client, 5 + 2 * EARSHOT_SILENCE_TIMEOUT_MS, &event);
  CHECK(event.kind == EARSHOT_EVENT_FAILED && event.error == EARSHOT_TIMEOUT &&
        earshot_client_state(&r.client) == EARSHOT_STATE_CLOSED);
  rig_free(&r);
}

int main(void) {
  test_config();
  test_request();
  test_accept();
  test_responses();
  test_turn_in_auto();
  test_other_modes();
  test_reconnect();
  test_announcement_after_an_abort();
  test_other_messages();
  test_session_id();
  test_pings();
  test_closes();
  test_broken_frames();
  test_longest_message();
  test_full_output();
  test_hello_without_room();
  test_time();
  check_tools();
  check_values();
  puts("ok");
  return 0;
}
