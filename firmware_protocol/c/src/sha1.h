/* SHA-1 (RFC 3174) of short texts and Base64 (RFC 4648), for the handshake only. */
#ifndef EARSHOT_SHA1_H
#define EARSHOT_SHA1_H

#include <stddef.h>
#include <stdint.h>

#define EARSHOT_SHA1_BYTES 20
#define EARSHOT_SHA1_INPUT_BYTES_MAX 119 /* two blocks */

/* `len` <= EARSHOT_SHA1_INPUT_BYTES_MAX */
void earshot_sha1(const void *data, size_t len, uint8_t digest[EARSHOT_SHA1_BYTES]);

/* Writes 4 characters for every 3 bytes or part of them, and a NUL. */
void earshot_base64(const uint8_t *data, size_t len, char *out);

#endif
