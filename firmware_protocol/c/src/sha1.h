/* SHA-1 (RFC 3174) of short texts and Base64 (RFC 4648), for the handshake alone. */
#ifndef XZ_SHA1_H
#define XZ_SHA1_H

#include <stddef.h>
#include <stdint.h>

#define XZ_SHA1_BYTES 20
#define XZ_SHA1_INPUT_BYTES_MAX 119 /* two blocks */

/* `len` <= XZ_SHA1_INPUT_BYTES_MAX */
void xz_sha1(const void *data, size_t len, uint8_t digest[XZ_SHA1_BYTES]);

/* Writes 4 characters per 3 bytes begun, and a NUL. */
void xz_base64(const uint8_t *data, size_t len, char *out);

#endif
