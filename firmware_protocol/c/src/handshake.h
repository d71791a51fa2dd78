/* The HTTP part of a WebSocket connection (RFC 6455, section 4). */
#ifndef XZ_HANDSHAKE_H
#define XZ_HANDSHAKE_H

#include <stdbool.h>

#include "earshot_xiaozhi/websocket.h"

void xz_handshake_write(xz_writer *out, const xz_handshake *handshake, const char *key);

/* Judges a whole response head, its empty line included. XZ_REFUSED sets `http_status`. */
xz_status xz_handshake_check(const char *head, size_t len, const char *key, bool checks_accept,
                             int *http_status);

/* What a server must put in Sec-WebSocket-Accept: 28 characters and a NUL. */
void xz_handshake_accept(const char *key, char accept[29]);

#endif
