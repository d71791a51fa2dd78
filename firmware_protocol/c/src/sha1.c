#include "sha1.h"

#include <string.h>

#define BLOCK_BYTES 64

static uint32_t rotate(uint32_t value, int bits) {
  return (value << bits) | (value >> (32 - bits));
}

static void add_block(uint32_t state[5], const uint8_t *block) {
  uint32_t words[80];
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
  for (int i = 0; i < 16; i++, block += 4)
    words[i] = ((uint32_t)block[0] << 24) | ((uint32_t)block[1] << 16) | ((uint32_t)block[2] << 8) |
               block[3];
  for (int i = 16; i < 80; i++)
    words[i] = rotate(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
  for (int i = 0; i < 80; i++) {
    uint32_t mixed, constant;
    if (i < 20) mixed = (b & c) | (~b & d), constant = 0x5a827999;
    else if (i < 40) mixed = b ^ c ^ d, constant = 0x6ed9eba1;
    else if (i < 60) mixed = (b & c) | (b & d) | (c & d), constant = 0x8f1bbcdc;
    else mixed = b ^ c ^ d, constant = 0xca62c1d6;
    uint32_t next = rotate(a, 5) + mixed + e + constant + words[i];
    e = d;
    d = c;
    c = rotate(b, 30);
    b = a;
    a = next;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
  state[4] += e;
}

void earshot_sha1(const void *data, size_t len, uint8_t digest[EARSHOT_SHA1_BYTES]) {
  uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  uint8_t padded[2 * BLOCK_BYTES] = {0};
  size_t total = len + 9 <= BLOCK_BYTES ? BLOCK_BYTES : 2 * BLOCK_BYTES;
  memcpy(padded, data, len);
  padded[len] = 0x80;
  padded[total - 2] = (uint8_t)(len * 8 >> 8);
  padded[total - 1] = (uint8_t)(len * 8 & 0xffU);
  for (size_t at = 0; at < total; at += BLOCK_BYTES) add_block(state, padded + at);
  for (int i = 0; i < EARSHOT_SHA1_BYTES; i++)
    digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

void earshot_base64(const uint8_t *data, size_t len, char *out) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < len; i += 3) {
    size_t left = len - i;
    uint32_t group = (uint32_t)data[i] << 16;
    if (left > 1) group |= (uint32_t)data[i + 1] << 8;
    if (left > 2) group |= data[i + 2];
    *out++ = letters[group >> 18];
    *out++ = letters[(group >> 12) & 63U];
    *out++ = left > 1 ? letters[(group >> 6) & 63U] : '=';
    *out++ = left > 2 ? letters[group & 63U] : '=';
  }
  *out = '\0';
}
