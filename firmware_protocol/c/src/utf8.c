#include "utf8.h"

size_t earshot_utf8_decode(const unsigned char *data, size_t len, uint32_t *character) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (len == 0) return 0;
  uint32_t value = data[0];
  size_t need = 1;
  if (value >= 0x80) {
    if ((value & 0xe0U) == 0xc0) need = 2;
    else if ((value & 0xf0U) == 0xe0) need = 3;
    else if ((value & 0xf8U) == 0xf0) need = 4;
    else return 0;
    if (need > len) return 0;
    value &= 0x7fU >> need;
    for (size_t i = 1; i < need; i++) {
      if ((data[i] & 0xc0U) != 0x80) return 0;
      value = (value << 6) | (data[i] & 0x3fU);
    }
  }
  if (value < least[need] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return 0;
  *character = value;
  return need;
}

size_t earshot_utf8_encode(uint32_t character, unsigned char out[EARSHOT_UTF8_BYTES_MAX]) {
  if (character < 0x80) {
    out[0] = (unsigned char)character;
    return 1;
  }
  size_t len = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
  for (size_t i = len - 1; i > 0; i--) {
    out[i] = (unsigned char)(0x80U | (character & 0x3fU));
    character >>= 6;
  }
  out[0] = (unsigned char)((0xf00U >> len) | character);
  return len;
}
