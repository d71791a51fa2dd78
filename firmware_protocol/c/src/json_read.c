#include <string.h>

#include "earshot_xiaozhi/json.h"
#include "earshot_xiaozhi/status.h"
#include "utf8.h"

typedef struct {
  const unsigned char *at;
  const unsigned char *end;
} cursor;

static cursor cursor_over(const char *text, size_t len) {
  cursor c = {(const unsigned char *)text, (const unsigned char *)text};
  if (len > 0) c.end += len; /* adding 0 to NULL is undefined in C */
  return c;
}

static bool take(cursor *c, unsigned char wanted) {
  if (c->at == c->end || *c->at != wanted) return false;
  c->at++;
  return true;
}

static void skip_space(cursor *c) {
  while (c->at != c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r'))
    c->at++;
}

static bool take_hex4(cursor *c, uint32_t *value) {
  if (c->end - c->at < 4) return false;
  *value = 0;
  for (int i = 0; i < 4; i++) {
    unsigned char ch = *c->at++;
    uint32_t digit;
    if (ch >= '0' && ch <= '9') digit = (uint32_t)ch - '0';
    else if (ch >= 'a' && ch <= 'f') digit = (uint32_t)ch - 'a' + 10;
    else if (ch >= 'A' && ch <= 'F') digit = (uint32_t)ch - 'A' + 10;
    else return false;
    *value = (*value << 4) | digit;
  }
  return true;
}

static bool take_unicode_escape(cursor *c, uint32_t *character) {
  uint32_t low;
  if (!take_hex4(c, character)) return false;
  if (*character < 0xd800 || *character > 0xdfff) return true;
  if (*character > 0xdbff || !take(c, '\\') || !take(c, 'u') || !take_hex4(c, &low)) return false;
  if (low < 0xdc00 || low > 0xdfff) return false;
  *character = 0x10000 + ((*character - 0xd800) << 10) + (low - 0xdc00);
  return true;
}

/* Takes one character inside a string. The end of the string is not one. */
static bool take_character(cursor *c, uint32_t *character) {
  if (c->at == c->end || *c->at < 0x20 || *c->at == '"') return false;
  if (*c->at != '\\') {
    size_t len = earshot_utf8_decode(c->at, (size_t)(c->end - c->at), character);
    c->at += len;
    return len > 0;
  }
  c->at++;
  if (c->at == c->end) return false;
  switch (*c->at++) {
    case '"': *character = '"'; return true;
    case '\\': *character = '\\'; return true;
    case '/': *character = '/'; return true;
    case 'b': *character = '\b'; return true;
    case 'f': *character = '\f'; return true;
    case 'n': *character = '\n'; return true;
    case 'r': *character = '\r'; return true;
    case 't': *character = '\t'; return true;
    case 'u': return take_unicode_escape(c, character);
    default: return false;
  }
}

static bool take_string(cursor *c) {
  uint32_t character;
  if (!take(c, '"')) return false;
  while (!take(c, '"'))
    if (!take_character(c, &character)) return false;
  return true;
}

static bool take_digits(cursor *c) {
  const unsigned char *began = c->at;
  while (c->at != c->end && *c->at >= '0' && *c->at <= '9') c->at++;
  return c->at != began;
}

static bool take_number(cursor *c) {
  take(c, '-');
  if (!take(c, '0') && !take_digits(c)) return false;
  if (take(c, '.') && !take_digits(c)) return false;
  if (take(c, 'e') || take(c, 'E')) {
    if (!take(c, '+')) take(c, '-');
    return take_digits(c);
  }
  return true;
}

static bool take_word(cursor *c, const char *word) {
  size_t len = strlen(word);
  if ((size_t)(c->end - c->at) < len || memcmp(c->at, word, len) != 0) return false;
  c->at += len;
  return true;
}

static bool take_scalar(cursor *c) {
  if (c->at == c->end) return false;
  switch (*c->at) {
    case '"': return take_string(c);
    case 't': return take_word(c, "true");
    case 'f': return take_word(c, "false");
    case 'n': return take_word(c, "null");
    default: return take_number(c);
  }
}

static bool take_key(cursor *c) {
  skip_space(c);
  if (!take_string(c)) return false;
  skip_space(c);
  return take(c, ':');
}

/* Takes one value, without recursion: `objects` has one bit for each open container. */
static bool take_value(cursor *c) {
  uint32_t objects = 0;
  unsigned depth = 0;
  for (;;) {
    bool is_open = false;
    skip_space(c);
    bool is_object = take(c, '{');
    if (is_object || take(c, '[')) {
      if (depth++ == EARSHOT_JSON_DEPTH_MAX) return false;
      objects = (objects << 1) | (is_object ? 1U : 0U);
      skip_space(c);
      is_open = c->at != c->end && *c->at != (is_object ? '}' : ']');
      if (is_open && is_object && !take_key(c)) return false;
    } else if (!take_scalar(c)) {
      return false;
    }
    while (!is_open) { /* after a value or in an empty container: another value, or the end */
      if (depth == 0) return true;
      skip_space(c);
      is_object = (objects & 1U) != 0;
      if (take(c, ',')) {
        if (is_object && !take_key(c)) return false;
        is_open = true;
      } else if (take(c, is_object ? '}' : ']')) {
        objects >>= 1;
        depth--;
      } else {
        return false;
      }
    }
  }
}

bool earshot_json_check(const char *text, size_t len, earshot_json *value) {
  cursor c = cursor_over(text, len);
  skip_space(&c);
  const unsigned char *began = c.at;
  if (!take_value(&c)) return false;
  value->data = (const char *)began;
  value->len = (size_t)(c.at - began);
  skip_space(&c);
  return c.at == c.end;
}

bool earshot_json_get(earshot_json object, const char *key, earshot_json *value) {
  cursor c = cursor_over(object.data, object.len);
  bool is_found = false;
  if (!take(&c, '{')) return false;
  do {
    skip_space(&c);
    const unsigned char *began = c.at;
    if (!take_string(&c)) break;
    earshot_json name = {(const char *)began, (size_t)(c.at - began)};
    skip_space(&c);
    if (!take(&c, ':')) break;
    skip_space(&c);
    began = c.at;
    if (!take_value(&c)) break;
    if (earshot_json_equals(name, key)) {
      value->data = (const char *)began;
      value->len = (size_t)(c.at - began);
      is_found = true;
    }
    skip_space(&c);
  } while (take(&c, ','));
  return is_found;
}

bool earshot_json_is_object(earshot_json value) { return value.len > 0 && value.data[0] == '{'; }

bool earshot_json_is_string(earshot_json value) { return value.len > 0 && value.data[0] == '"'; }

bool earshot_json_is_number(earshot_json value) {
  cursor c = cursor_over(value.data, value.len);
  return take_number(&c) && c.at == c.end;
}

bool earshot_json_equals(earshot_json value, const char *text) {
  cursor c = cursor_over(value.data, value.len);
  const unsigned char *wanted = (const unsigned char *)text;
  if (!take(&c, '"')) return false;
  while (*wanted != 0) {
    unsigned char bytes[EARSHOT_UTF8_BYTES_MAX];
    uint32_t character;
    if (!take_character(&c, &character)) return false;
    size_t len = earshot_utf8_encode(character, bytes);
    for (size_t i = 0; i < len; i++) /* the NUL of `text` equals no byte, so this stops there */
      if (bytes[i] != *wanted++) return false;
  }
  return take(&c, '"') && c.at == c.end;
}

bool earshot_json_to_bool(earshot_json value, bool *result) {
  cursor c = cursor_over(value.data, value.len);
  bool is_true = take_word(&c, "true");
  if (!is_true && !take_word(&c, "false")) return false;
  *result = is_true;
  return c.at == c.end;
}

/* The parts of a number: its digits, and how many of them stand before the point after the
 * exponent was applied. */
typedef struct {
  cursor digits; /* may contain a point */
  int64_t whole_digits;
} decimal;

static decimal take_apart(cursor c) { /* `c`: a number that take_number accepts, without the sign */
  decimal parts = {c, 0};
  while (c.at != c.end && *c.at >= '0' && *c.at <= '9') c.at++;
  parts.whole_digits = c.at - parts.digits.at;
  if (take(&c, '.')) take_digits(&c);
  parts.digits.end = c.at;
  if (c.at != c.end) { /* at the exponent */
    int64_t exponent = 0;
    c.at++;
    bool is_negative = take(&c, '-');
    if (!is_negative) take(&c, '+');
    for (; c.at != c.end; c.at++) /* a larger exponent cannot matter: no text has so many digits */
      if (exponent < INT32_MAX) exponent = exponent * 10 + (*c.at - '0');
    parts.whole_digits += is_negative ? -exponent : exponent;
  }
  return parts;
}

bool earshot_json_to_int(earshot_json value, int32_t *result) {
  if (!earshot_json_is_number(value)) return false;
  cursor c = cursor_over(value.data, value.len);
  bool is_negative = take(&c, '-');
  decimal parts = take_apart(c);
  const int64_t most = is_negative ? -(int64_t)INT32_MIN : INT32_MAX;
  int64_t number = 0, left = parts.whole_digits;
  c = parts.digits;
  for (; c.at != c.end && left > 0; c.at++) {
    if (*c.at == '.') continue;
    number = number * 10 + (*c.at - '0');
    if (number > most) return false;
    left--;
  }
  for (; left > 0 && number > 0; left--) { /* zeros that the exponent adds */
    number *= 10;
    if (number > most) return false;
  }
  if (c.at != c.end && *c.at == '.') c.at++;
  if (left == 0 && c.at != c.end && *c.at >= '5') number++;
  if (number > most) return false;
  *result = (int32_t)(is_negative ? -number : number);
  return true;
}

bool earshot_json_to_text(earshot_json value, char *out, size_t cap, size_t *len) {
  cursor c = cursor_over(value.data, value.len);
  size_t filled = 0;
  if (!take(&c, '"')) return false;
  while (!take(&c, '"')) {
    unsigned char bytes[EARSHOT_UTF8_BYTES_MAX];
    uint32_t character;
    if (!take_character(&c, &character)) return false;
    size_t need = earshot_utf8_encode(character, bytes);
    if (cap - filled <= need) return false; /* 1 for NUL; `filled` is always below `cap` */
    memcpy(out + filled, bytes, need);
    filled += need;
  }
  if (filled >= cap) return false;
  out[filled] = '\0';
  *len = filled;
  return true;
}
