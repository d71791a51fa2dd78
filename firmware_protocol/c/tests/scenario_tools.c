/* A device's tools from a server's view. */
#include "scene.h"

static const char *talk_much(void *context, earshot_json arguments, earshot_writer *result) {
  (void)context;
  (void)arguments;
  for (int i = 0; i < 5000; i++) earshot_put_escaped(result, "\n");
  return NULL;
}

static void test_tools(void) {
  static char long_text[1500];
  earshot_tool tools[] = {{"a", long_text, NULL, false, talk_much, NULL},
                          {"b", long_text, NULL, false, talk_much, NULL},
                          {"c", long_text, NULL, true, talk_much, NULL}};
  memset(long_text, 'd', sizeof long_text - 1);
  earshot_config config = rig_config(&r, 3, 4096, 4096);
  config.mcp.name = "board";
  config.mcp.version = "1";
  config.mcp.tools = tools;
  config.mcp.tools_len = 3;
  CHECK(earshot_client_init(&r.client, &config) == EARSHOT_OK &&
        earshot_client_open(&r.client) == EARSHOT_OK);
  earshot_client_sent(&r.client, 4096);
  give(accepted, sizeof accepted - 1);
  CHECK(take_sent() && strstr((char *)sent.payload, "\"features\":{\"mcp\":true}") != NULL);
  CHECK(say(server_hello).kind == EARSHOT_EVENT_OPEN);
  say("{\"type\":\"mcp\",\"payload\":{\"id\":1,\"method\":\"tools/list\",\"params\":{"
      "\"withUserTools\":true}}}");
  CHECK(take_sent() && strstr((char *)sent.payload, "\"name\":\"b\"") != NULL);
  CHECK(strstr((char *)sent.payload, "],\"nextCursor\":\"c\"}}}") != NULL);
  say("{\"type\":\"mcp\",\"payload\":{\"id\":2,\"method\":\"tools/"
      "list\",\"params\":{\"cursor\":\"c\","
      "\"withUserTools\":true}}}");
  CHECK(take_sent() && strstr((char *)sent.payload, "\"name\":\"c\"") != NULL);
  CHECK(strstr((char *)sent.payload, "\"annotations\":{\"audience\":[\"user\"]}}]}}}") != NULL);
  say("{\"type\":\"mcp\",\"payload\":{\"id\":3,\"method\":\"tools/"
      "call\",\"params\":{\"name\":\"a\"}}}");
  CHECK(
      has_sent("{\"session_id\":\"s-1\",\"type\":\"mcp\",\"payload\":{\"jsonrpc\":\"2.0\",\"id\":3,"
               "\"error\":{\"code\":-32603,\"message\":\"The result is too large\"}}}"));
  say("{\"type\":\"mcp\",\"payload\":{\"method\":\"notifications/initialized\"}}");
  say("{\"type\":\"mcp\",\"payload\":{\"id\":\"7\",\"method\":\"initialize\"}}");
  CHECK(!take_sent() && earshot_client_replies_dropped(&r.client) == 0);
  while (earshot_client_audio(&r.client, (const uint8_t *)long_text, 20, 0) == EARSHOT_OK) continue;
  say("{\"type\":\"mcp\",\"payload\":{\"id\":4,\"method\":\"initialize\"}}");
  CHECK(earshot_client_replies_dropped(&r.client) == 1 &&
        earshot_client_state(&r.client) == EARSHOT_STATE_IDLE);
  rig_free(&r);
}

/* Lists all tools and returns the longest page. With any buffer size each comes once. */
static size_t list_all(earshot_tool *tools, size_t count, size_t tx_cap) {
  size_t next = 0, longest = 0;
  char request[200], cursor[20] = "";
  earshot_config config = rig_config(&r, 3, 512, tx_cap);
  config.mcp.name = config.mcp.version = "x";
  config.mcp.tools = tools;
  config.mcp.tools_len = count;
  CHECK(earshot_client_init(&r.client, &config) == EARSHOT_OK &&
        earshot_client_open(&r.client) == EARSHOT_OK);
  earshot_client_sent(&r.client, tx_cap);
  give(accepted, sizeof accepted - 1);
  CHECK(take_sent() && say(server_hello).kind == EARSHOT_EVENT_OPEN);
  do {
    snprintf(request, sizeof request,
             "{\"type\":\"mcp\",\"payload\":{\"id\":1,\"method\":\"tools/list\",\"params\":{"
             "\"cursor\":\"%s\"}}}",
             cursor);
    say(request);
    CHECK(take_sent());
    longest = sent.len > longest ? sent.len : longest;
    const char *at = (const char *)sent.payload;
    while ((at = strstr(at, "{\"name\":\"")) != NULL)
      CHECK(strncmp(at += 9, tools[next].name, strlen(tools[next].name)) == 0 && ++next <= count);
    at = strstr((const char *)sent.payload, "\"nextCursor\":\"");
    cursor[0] = '\0';
    if (at != NULL) CHECK(sscanf(at + 14, "%19[^\"]", cursor) == 1);
  } while (cursor[0] != '\0');
  CHECK(next == count && earshot_client_replies_dropped(&r.client) == 0);
  rig_free(&r);
  return longest;
}

static void test_pages_of_tools(void) {
  static char text[700];
  earshot_tool tools[20];
  static const char *const names[] = {"a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9",
                                      "b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9"};
  memset(text, 'd', sizeof text - 1);
  for (size_t i = 0; i < 20; i++) {
    earshot_tool tool = {names[i], text, NULL, false, talk_much, NULL};
    tools[i] = tool;
  }
  for (size_t tx_cap = 1300; tx_cap < 2100; tx_cap++) CHECK(list_all(tools, 20, tx_cap) < tx_cap);
  size_t longest = list_all(tools, 20, TX_BYTES);
  CHECK(longest > EARSHOT_MCP_PAGE_BYTES - 1000 && longest <= EARSHOT_MCP_PAGE_BYTES + 100);
}

/* A configuration with one tool; its buffers are `r`'s. */
static earshot_config with_tools(const earshot_tool *tools, size_t count) {
  earshot_config config = rig_config(&r, 3, 4096, 4096);
  config.mcp.name = config.mcp.version = "x";
  config.mcp.tools = tools;
  config.mcp.tools_len = count;
  return config;
}

static void begin_with(const earshot_tool *tools, size_t count) {
  earshot_config config = with_tools(tools, count);
  CHECK(earshot_client_init(&r.client, &config) == EARSHOT_OK);
  dial();
  be_greeted();
}

static const char *do_nothing(void *context, earshot_json arguments, earshot_writer *result) {
  (void)context;
  (void)arguments;
  (void)result;
  return NULL;
}

static void test_incomplete_tools(void) {
  static const earshot_tool cases[] = {{NULL, "d", NULL, false, do_nothing, NULL},
                                       {"", "d", NULL, false, do_nothing, NULL},
                                       {"n", NULL, NULL, false, do_nothing, NULL},
                                       {"n", "d", NULL, false, NULL, NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    earshot_tool tools[] = {{"good", "d", NULL, false, do_nothing, NULL}, cases[i]};
    earshot_config config = with_tools(tools, 2);
    CHECK(earshot_client_init(&r.client, &config) == EARSHOT_BAD_CONFIG);
    config.mcp.tools_len = 1;
    CHECK(earshot_client_init(&r.client, &config) == EARSHOT_OK);
    config.mcp.version = NULL;
    CHECK(earshot_client_init(&r.client, &config) == EARSHOT_BAD_CONFIG);
    config.mcp.tools = NULL;
    CHECK(earshot_client_init(&r.client, &config) == EARSHOT_BAD_CONFIG);
    rig_free(&r);
  }
}

static const char *disturb(void *context, earshot_json arguments, earshot_writer *result) {
  earshot_client *client = context;
  earshot_event event;
  size_t len;
  (void)arguments;
  earshot_put_escaped(result, "half, ");
  CHECK(earshot_client_listen(client, EARSHOT_MODE_MANUAL) == EARSHOT_BAD_STATE);
  CHECK(earshot_client_listen_stop(client) == EARSHOT_BAD_STATE);
  CHECK(earshot_client_wake_word(client, "hi") == EARSHOT_BAD_STATE);
  CHECK(earshot_client_audio(client, (const uint8_t *)"x", 1, 0) == EARSHOT_BAD_STATE);
  CHECK(earshot_client_abort(client, true) == EARSHOT_BAD_STATE);
  CHECK(earshot_client_open(client) == EARSHOT_BAD_STATE);
  CHECK(earshot_client_close(client) == EARSHOT_BAD_STATE);
  CHECK(earshot_client_receive(client, (const uint8_t *)"\x89\0", 2, &event) == 0);
  CHECK(event.kind == EARSHOT_EVENT_SKIPPED && event.error == EARSHOT_BAD_STATE);
  earshot_client_tick(client, 1, &event);
  CHECK(event.kind == EARSHOT_EVENT_SKIPPED && event.error == EARSHOT_BAD_STATE);
  earshot_client_disconnected(client, &event);
  CHECK(event.kind == EARSHOT_EVENT_SKIPPED && event.error == EARSHOT_BAD_STATE);
  earshot_client_output(client, &len);
  CHECK(len == 0);
  earshot_client_sent(client, 1);
  CHECK(earshot_client_state(client) == EARSHOT_STATE_LISTENING);
  CHECK(earshot_client_replies_dropped(client) == 0);
  earshot_put_escaped(result, "whole");
  return NULL;
}

static void test_a_tool_that_calls_its_client(void) {
  earshot_tool tools[] = {{"disturb", "d", NULL, false, disturb, &r.client}};
  begin_with(tools, 1);
  CHECK(earshot_client_listen(&r.client, EARSHOT_MODE_MANUAL) == EARSHOT_OK);
  say("{\"type\":\"mcp\",\"payload\":{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":"
      "\"disturb\"}}}");
  CHECK(take_sent()); /* the listen that waited before */
  CHECK(
      has_sent("{\"session_id\":\"s-1\",\"type\":\"mcp\",\"payload\":{\"jsonrpc\":\"2.0\",\"id\":1,"
               "\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"half, whole\"}],\"isError\":"
               "false}}}"));
  CHECK(earshot_client_listen_stop(&r.client) == EARSHOT_OK); /* now all works as before */
  CHECK(earshot_client_close(&r.client) == EARSHOT_OK);
  rig_free(&r);
}

/* A message too large for an empty output is refused with an error; the conversation goes on. */
static void test_answers_too_large(void) {
  static char huge[5000];
  memset(huge, 'd', sizeof huge - 1);
  earshot_tool tools[] = {{"huge", huge, NULL, false, do_nothing, NULL}};
  static const char *const requests[] = {"tools/list", "initialize"};
  for (size_t i = 0; i < 2; i++) {
    char request[200];
    earshot_config config = with_tools(tools, 1);
    config.mcp.version = huge;
    CHECK(earshot_client_init(&r.client, &config) == EARSHOT_OK);
    dial();
    be_greeted();
    snprintf(request, sizeof request, "{\"type\":\"mcp\",\"payload\":{\"id\":9,\"method\":\"%s\"}}",
             requests[i]);
    say(request);
    CHECK(has_sent(
        "{\"session_id\":\"s-1\",\"type\":\"mcp\",\"payload\":{\"jsonrpc\":\"2.0\",\"id\":9,"
        "\"error\":{\"code\":-32603,\"message\":\"The result is too large\"}}}"));
    CHECK(earshot_client_replies_dropped(&r.client) == 0);
    rig_free(&r);
  }
}

void check_tools(void) {
  test_incomplete_tools();
  test_a_tool_that_calls_its_client();
  test_answers_too_large();
  test_tools();
  test_pages_of_tools();
}
