#include "handshake.h"

#include <string.h>

#include "sha1.h"

/* Rejects line ends in a header's value: with them a token could add headers. */
static void put_value(earshot_writer *out, const char *text) {
  if (strpbrk(text, "\r\n") != NULL) out->is_full = true;
  earshot_put(out, text);
}

static void put_header(earshot_writer *out, const char *name, const char *value) {
  if (value == NULL || *value == '\0') return;
  earshot_put(out, name);
  earshot_put(out, ": ");
  put_value(out, value);
  earshot_put(out, "\r\n");
}

void earshot_handshake_write(earshot_writer *out, const earshot_handshake *handshake,
                             const char *key) {
  earshot_put(out, "GET ");
  put_value(out, handshake->path);
  earshot_put(out, " HTTP/1.1\r\n");
  put_header(out, "Host", handshake->host);
  earshot_put(out, "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n");
  put_header(out, "Sec-WebSocket-Key", key);
  if (handshake->token != NULL && *handshake->token != '\0') {
    earshot_put(out, "Authorization: ");
    if (strchr(handshake->token, ' ') == NULL) earshot_put(out, "Bearer ");
    put_value(out, handshake->token);
    earshot_put(out, "\r\n");
  }
  earshot_put(out, "Protocol-Version: ");
  earshot_put_uint(out, (uint32_t)handshake->version);
  earshot_put(out, "\r\n");
  put_header(out, "Device-Id", handshake->device_id);
  put_header(out, "Client-Id", handshake->client_id);
  earshot_put(out, "\r\n");
}

void earshot_handshake_accept(const char *key, char accept[29]) {
  static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"; /* RFC 6455, 1.3 */
  char joined[24 + sizeof guid];
  uint8_t digest[EARSHOT_SHA1_BYTES];
  memcpy(joined, key, 24);
  memcpy(joined + 24, guid, sizeof guid);
  earshot_sha1(joined, sizeof joined - 1, digest);
  earshot_base64(digest, sizeof digest, accept);
}

static char lower(char ch) { return ch >= 'A' && ch <= 'Z' ? (char)(ch - 'A' + 'a') : ch; }

/* Returns whether a line is this header (`name` in lower case) with this value. */
static bool is_header(const char *line, size_t len, const char *name, const char *value) {
  size_t name_len = strlen(name), value_len = strlen(value);
  if (len <= name_len || line[name_len] != ':') return false;
  for (size_t i = 0; i < name_len; i++)
    if (lower(line[i]) != name[i]) return false;
  line += name_len + 1;
  len -= name_len + 1;
  while (len > 0 && (*line == ' ' || *line == '\t')) line++, len--;
  while (len > 0 && (line[len - 1] == ' ' || line[len - 1] == '\t')) len--;
  return len == value_len && memcmp(line, value, len) == 0;
}

static bool has_accept(const char *head, size_t len, const char *key) {
  char accept[29];
  earshot_handshake_accept(key, accept);
  while (len > 0) {
    const char *line_end = memchr(head, '\r', len);
    size_t line_len = line_end != NULL ? (size_t)(line_end - head) : len;
    if (is_header(head, line_len, "sec-websocket-accept", accept)) return true;
    size_t taken = len - line_len < 2 ? len : line_len + 2; /* with its CRLF */
    head += taken;
    len -= taken;
  }
  return false;
}

earshot_status earshot_handshake_check(const char *head, size_t len, const char *key,
                                       bool skips_accept, int *http_status) {
  static const char start[] = "HTTP/1.1 ";
  size_t at = sizeof start - 1;
  if (len < at + 4 || memcmp(head, start, at) != 0) return EARSHOT_PROTOCOL;
  *http_status = 0;
  for (size_t i = at; i < at + 3; i++) {
    if (head[i] < '0' || head[i] > '9') return EARSHOT_PROTOCOL;
    *http_status = *http_status * 10 + (head[i] - '0');
  }
  if (*http_status != 101) return EARSHOT_REFUSED;
  return skips_accept || has_accept(head, len, key) ? EARSHOT_OK : EARSHOT_PROTOCOL;
}
