#include <string.h>

#include "earshot_xiaozhi/json.h"
#include "utf8.h"

earshot_writer earshot_writer_to(void *data, size_t cap) {
  earshot_writer writer = {data, cap, 0, false};
  return writer;
}

void earshot_put_bytes(earshot_writer *writer, const void *data, size_t len) {
  if (writer->is_full || len > writer->cap - writer->len) {
    writer->is_full = true;
    return;
  }
  if (len > 0) memcpy(writer->data + writer->len, data, len);
  writer->len += len;
}

void earshot_put(earshot_writer *writer, const char *text) {
  earshot_put_bytes(writer, text, strlen(text));
}

void earshot_put_uint(earshot_writer *writer, uint32_t number) {
  char digits[10];
  size_t at = sizeof digits;
  do {
    digits[--at] = (char)('0' + number % 10);
    number /= 10;
  } while (number > 0);
  earshot_put_bytes(writer, digits + at, sizeof digits - at);
}

static void put_control(earshot_writer *writer, unsigned char ch) {
  static const char hex[] = "0123456789abcdef";
  static const char letters[] = "btn?fr"; /* U+0008 to U+000D; U+000B has none */
  if (ch >= 0x08 && ch <= 0x0d && ch != 0x0b) {
    char escape[2] = {'\\', letters[ch - 0x08]};
    earshot_put_bytes(writer, escape, sizeof escape);
  } else {
    char escape[6] = {'\\', 'u', '0', '0', hex[ch >> 4], hex[ch & 0x0fU]};
    earshot_put_bytes(writer, escape, sizeof escape);
  }
}

void earshot_put_escaped_bytes(earshot_writer *writer, const char *text, size_t len) {
  const unsigned char *at = (const unsigned char *)text;
  while (len > 0 && !writer->is_full) {
    uint32_t character;
    size_t taken = earshot_utf8_decode(at, len, &character);
    if (taken == 0) {
      earshot_put(writer, "\xef\xbf\xbd"); /* U+FFFD */
      taken = 1;
    } else if (character < 0x20) {
      put_control(writer, *at);
    } else {
      if (character == '"' || character == '\\') earshot_put(writer, "\\");
      earshot_put_bytes(writer, at, taken);
    }
    at += taken;
    len -= taken;
  }
}

void earshot_put_escaped(earshot_writer *writer, const char *text) {
  earshot_put_escaped_bytes(writer, text, strlen(text));
}

void earshot_put_string(earshot_writer *writer, const char *text) {
  earshot_put(writer, "\"");
  earshot_put_escaped(writer, text);
  earshot_put(writer, "\"");
}
