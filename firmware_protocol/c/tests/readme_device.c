/* The six functions of the README's device, with a server that sends fixed answers. */
#include "../src/handshake.h"
#include "server.h"

void converse(const char *host, const char *token, const char *mac, const char *uuid);
int network_read(uint8_t *data, size_t cap);
int network_write(const uint8_t *data, size_t len);
size_t microphone_packet(uint8_t *data, size_t cap);
void speaker_packet(const uint8_t *data, size_t len);
void show(const char *what, const char *text);
uint32_t random_bits(void *context);

static int step, spoken, written;
static char key[25]; /* of the handshake, from the request */

/* The README's device checks the accept, as every client should. */
static int answer_handshake(uint8_t *data, size_t cap) {
  char accept[29];
  earshot_handshake_accept(key, accept);
  int len = snprintf((char *)data, cap,
                     "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                     "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
                     accept);
  CHECK(len > 0 && (size_t)len < cap);
  return len;
}

int network_read(uint8_t *data, size_t cap) {
  static const char *const texts[] = {
      server_hello, "{\"type\":\"stt\",\"text\":\"lamp on\"}",
      "{\"type\":\"tts\",\"state\":\"start\"}",
      "{\"type\":\"tts\",\"state\":\"sentence_start\",\"text\":\"Done.\"}"};
  CHECK(cap >= 300);
  switch (step++) {
    case 0: return answer_handshake(data, cap);
    case 1:
    case 2:
    case 3:
    case 4: return (int)server_frame(data, 0x81, texts[step - 2], strlen(texts[step - 2]));
    case 5: return (int)server_frame(data, 0x82, "\0\0\0\3abc", 7);
    case 6: return (int)server_frame(data, 0x81, "{\"type\":\"tts\",\"state\":\"stop\"}", 29);
    case 7: return 0; /* nothing arrived */
    case 8: return (int)server_frame(data, 0x88, "\x03\xe8", 2);
    default: return -1;
  }
}

int network_write(const uint8_t *data, size_t len) {
  static const char name[] = "Sec-WebSocket-Key: ";
  for (size_t at = 0; written == 0 && at + sizeof name + 24 < len; at++)
    if (memcmp(data + at, name, sizeof name - 1) == 0) memcpy(key, data + at + sizeof name - 1, 24);
  written += (int)len;
  return (int)len;
}

size_t microphone_packet(uint8_t *data, size_t cap) {
  CHECK(cap > 3);
  memset(data, 7, 3);
  spoken++;
  return 3;
}

void speaker_packet(const uint8_t *data, size_t len) { printf("speaker: %.*s\n", (int)len, data); }

void show(const char *what, const char *text) { printf("%s: %s\n", what, text); }

uint32_t random_bits(void *context) {
  (void)context;
  return 4;
}

int main(void) {
  converse("127.0.0.1", "key", "02:00:00:00:00:01", "uuid");
  printf("packets spoken: %d\n", spoken);
  CHECK(written > 200);
  return 0;
}
