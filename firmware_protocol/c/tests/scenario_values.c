/* Tests without a conversation: JSON, hashes, names. */
#include "../src/sha1.h"
#include "scene.h"

static void test_sha1(void) { /* around the end of the first block; RFC 3174's own samples */
  static const struct {
    const char *text;
    const char *digest;
  } cases[] = {
      {"", "2jmj7l5rSw0yVb/vlWAYkK/YBwk="},
      {"abc", "qZk+NkcGgWq6PiVxeFDCbJzQ2J0="},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "hJg+RBw70m66rkqh+VEp5eVGcPE="},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint8_t digest[EARSHOT_SHA1_BYTES];
    char text[29];
    earshot_sha1(cases[i].text, strlen(cases[i].text), digest);
    earshot_base64(digest, sizeof digest, text);
    CHECK(strcmp(text, cases[i].digest) == 0);
  }
}

static void test_statuses_have_names(void) {
  for (int status = EARSHOT_OK; status <= EARSHOT_TIMEOUT; status++)
    for (int other = EARSHOT_OK; other < status; other++)
      CHECK(strcmp(earshot_status_name((earshot_status)status),
                   earshot_status_name((earshot_status)other)) != 0);
  CHECK(strcmp(earshot_status_name(EARSHOT_TIMEOUT), "timeout") == 0);
}

static void test_json(void) {
  static const struct {
    const char *text;
    bool is_good;
  } cases[] = {
      {"0", true},
      {"-0.5e-7", true},
      {"[]", true},
      {"{}", true},
      {"[[],{}]", true},
      {"\"\"", true},
      {" null\n", true},
      {"{\"a\":{\"b\":[1,2]}}", true},
      {"[,]", false},
      {"[1,]", false},
      {"{\"a\"}", false},
      {"{\"a\":1,}", false},
      {"{,}", false},
      {"01", false},
      {"1.", false},
      {".5", false},
      {"+1", false},
      {"1e", false},
      {"-", false},
      {"nul", false},
      {"[1 2]", false},
      {"[}", false},
      {"\"\\x\"", false},
      {"\"\xc0\x80\"", false},
      {"\"\xed\xa0\x80\"", false},
      {"\"\xf4\x90\x80\x80\"", false},
      {"\"\xe4\xbd\xa0\"", true},
      {"\"\x1f\"", false},
      {"\"\\ud83d\\ud83d\"", false},
      {"\"\\ud83d\\ude00\"", true},
      {"{1:2}", false},
      {"[]]", false},
      {"\"\\udc00\\ud800\"", false},
  };
  earshot_json value, found;
  int32_t number;
  bool truth;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    CHECK(earshot_json_check(cases[i].text, strlen(cases[i].text), &value) == cases[i].is_good);
  char deep[2 * EARSHOT_JSON_DEPTH_MAX + 2];
  for (size_t depth = EARSHOT_JSON_DEPTH_MAX; depth <= EARSHOT_JSON_DEPTH_MAX + 1; depth++) {
    memset(deep, '[', depth);
    memset(deep + depth, ']', depth);
    CHECK(earshot_json_check(deep, 2 * depth, &value) == (depth <= EARSHOT_JSON_DEPTH_MAX));
  }
  static const char object[] =
      "{\"\\u0061\":-2147483647,\"b\":2147483648,\"c\":1e3,\"a\" : 1.5,\"d\":true}";
  CHECK(earshot_json_check(object, sizeof object - 1, &value));
  CHECK(earshot_json_get(value, "a", &found) && earshot_json_to_int(found, &number) && number == 2);
  CHECK(earshot_json_get(value, "b", &found) && !earshot_json_to_int(found, &number));
  earshot_json huge = {"99999999999999999999999999", 26};
  CHECK(!earshot_json_to_int(huge, &number));
  CHECK(earshot_json_get(value, "c", &found) && earshot_json_to_int(found, &number) &&
        number == 1000);
  CHECK(earshot_json_get(value, "d", &found) && earshot_json_to_bool(found, &truth) && truth);
  CHECK(!earshot_json_get(value, "e", &found) && !earshot_json_to_bool(value, &truth));
  char text[5] = "????", room[40];
  size_t len;
  earshot_writer out = earshot_writer_to(room, sizeof room);
  earshot_put_string(&out,
                     "a\xff\xe4\xbd"
                     "b"); /* no UTF-8: one U+FFFD per byte */
  CHECK(out.len == 13 && memcmp(room,
                                "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                                "b\"",
                                13) == 0);
  earshot_json word = {"\"\\u4f60\"", 8};
  CHECK(!earshot_json_to_text(word, text, 3, &len) && text[3] == '?'); /* three bytes and a NUL */
  CHECK(earshot_json_to_text(word, text, 4, &len) && len == 3 && strcmp(text, "\xe4\xbd\xa0") == 0);
}

static void test_numbers(void) {
  static const struct {
    const char *text;
    bool is_good;
    int32_t number;
  } cases[] = {
      {"0", true, 0},
      {"-0.0e5", true, 0},
      {"2147483647", true, INT32_MAX},
      {"2147483647.4", true, INT32_MAX},
      {"2147483647.5", false, 0},
      {"2147483648", false, 0},
      {"-2147483648", true, INT32_MIN},
      {"-2147483648.49", true, INT32_MIN},
      {"-2147483648.5", false, 0},
      {"-2147483649", false, 0},
      {"1e3", true, 1000},
      {"1E+3", true, 1000},
      {"24e3", true, 24000},
      {"1.5e1", true, 15},
      {"1.24e1", true, 12},
      {"1.26e1", true, 13},
      {"0.0004e4", true, 4},
      {"15e-1", true, 2},
      {"-15e-1", true, -2},
      {"14e-1", true, 1},
      {"5e-1", true, 1},
      {"5e-2", true, 0},
      {"99e-2", true, 1},
      {"2147483647e0", true, INT32_MAX},
      {"0.2147483648e10", false, 0},
      {"-0.2147483648e10", true, INT32_MIN},
      {"1e10", false, 0},
      {"1e999999999999999999999", false, 0},
      {"0e999999999999999999999", true, 0},
      {"1e-999999999999999999999", true, 0},
      {"true", false, 0},
      {"\"1\"", false, 0},
      {"1e", false, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    earshot_json value = {cases[i].text, strlen(cases[i].text)};
    int32_t number = 0;
    CHECK(earshot_json_to_int(value, &number) == cases[i].is_good);
    CHECK(number == cases[i].number);
  }
}

static void test_controls(void) { /* every character that must be escaped, there and back */
  char all[0x21], room[300];
  earshot_json value;
  size_t len;
  for (int i = 0; i < 0x20; i++) all[i] = (char)i;
  all[0x20] = '"';
  earshot_writer out = earshot_writer_to(room, sizeof room);
  earshot_put(&out, "\"");
  earshot_put_escaped_bytes(&out, all, sizeof all);
  earshot_put(&out, "\"");
  CHECK(earshot_json_check(room, out.len, &value));
  CHECK(earshot_json_to_text(value, room, sizeof room, &len));
  CHECK(len == sizeof all && memcmp(room, all, len) == 0);
  earshot_json name = {"\"a\\u0000\"", 9}, longer = {"\"a\\u4f60\"", 9};
  CHECK(!earshot_json_equals(name, "a") && !earshot_json_equals(longer, "a\xe4") &&
        earshot_json_equals(longer, "a\xe4\xbd\xa0"));
}

void check_values(void) {
  test_sha1();
  test_statuses_have_names();
  test_json();
  test_numbers();
  test_controls();
}
