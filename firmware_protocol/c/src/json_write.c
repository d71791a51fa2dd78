#include <string.h>

#include "earshot_xiaozhi/json.h"
#include "utf8.h"

xz_writer xz_writer_to(void *data, size_t cap) {
  xz_writer writer = {data, cap, 0, false};
  return writer;
}

void xz_put_bytes(xz_writer *writer, const void *data, size_t len) {
  if (writer->is_full || len > writer->cap - writer->len) {
    writer->is_full = true;
    return;
  }
  if (len > 0) memcpy(writer->data + writer->len, data, len);
  writer->len += len;
}

void xz_put(xz_writer *writer, const char *text) { xz_put_bytes(writer, text, strlen(text)); }

void xz_put_uint(xz_writer *writer, uint32_t number) {
  char digits[10];
  size_t at = sizeof digits;
  do {
    digits[--at] = (char)('0' + number % 10);
    number /= 10;
  } while (number > 0);
  xz_put_bytes(writer, digits + at, sizeof digits - at);
}

static void put_control(xz_writer *writer, unsigned char ch) {
  static const char hex[] = "0123456789abcdef";
  static const char letters[] = "btn?fr"; /* U+0008 to U+000D; U+000B has none */
  if (ch >= 0x08 && ch <= 0x0d && ch != 0x0b) {
    char escape[2] = {'\\', letters[ch - 0x08]};
    xz_put_bytes(writer, escape, sizeof escape);
  } else {
    char escape[6] = {'\\', 'u', '0', '0', hex[ch >> 4], hex[ch & 0x0fU]};
    xz_put_bytes(writer, escape, sizeof escape);
  }
}

void xz_put_escaped_bytes(xz_writer *writer, const char *text, size_t len) {
  const unsigned char *at = (const unsigned char *)text;
  while (len > 0 && !writer->is_full) {
    uint32_t character;
    size_t taken = xz_utf8_decode(at, len, &character);
    if (taken == 0) {
      xz_put(writer, "\xef\xbf\xbd"); /* U+FFFD */
      taken = 1;
    } else if (character < 0x20) {
      put_control(writer, *at);
    } else {
      if (character == '"' || character == '\\') xz_put(writer, "\\");
      xz_put_bytes(writer, at, taken);
    }
    at += taken;
    len -= taken;
  }
}

void xz_put_escaped(xz_writer *writer, const char *text) {
  xz_put_escaped_bytes(writer, text, strlen(text));
}

void xz_put_string(xz_writer *writer, const char *text) {
  xz_put(writer, "\"");
  xz_put_escaped(writer, text);
  xz_put(writer, "\"");
}
