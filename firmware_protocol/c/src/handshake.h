/* The HTTP part of a WebSocket connection (RFC 6455, section 4). */
#ifndef EARSHOT_HANDSHAKE_H
#define EARSHOT_HANDSHAKE_H

#include <stdbool.h>

#include "earshot_xiaozhi/websocket.h"

void earshot_handshake_write(earshot_writer *out, const earshot_handshake *handshake,
                             const char *key);

/* Checks a complete response head with its empty line. EARSHOT_REFUSED sets `http_status`. */
earshot_status earshot_handshake_check(const char *head, size_t len, const char *key,
                                       bool skips_accept, int *http_status);

/* Computes the value of Sec-WebSocket-Accept: 28 characters and a NUL. */
void earshot_handshake_accept(const char *key, char accept[29]);

#endif
