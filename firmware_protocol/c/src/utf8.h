/* UTF-8 (RFC 3629), one character at a time. */
#ifndef EARSHOT_UTF8_H
#define EARSHOT_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define EARSHOT_UTF8_BYTES_MAX 4

/* Returns the length in bytes of the character at `data`; 0 if it is not UTF-8. */
size_t earshot_utf8_decode(const unsigned char *data, size_t len, uint32_t *character);

/* Writes 1 to 4 bytes and returns their number. */
size_t earshot_utf8_encode(uint32_t character, unsigned char out[EARSHOT_UTF8_BYTES_MAX]);

#endif
