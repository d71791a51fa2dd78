/* What a call came to, and the limits that all parts share. */
#ifndef EARSHOT_XIAOZHI_STATUS_H
#define EARSHOT_XIAOZHI_STATUS_H

#define XZ_PAYLOAD_BYTES_MAX 8192 /* an Opus packet of 120 ms at its highest rate is 7.7 kB */
#define XZ_TEXT_BYTES_MAX 65535   /* of one JSON message */
#define XZ_JSON_DEPTH_MAX 32      /* objects and arrays within each other */

typedef enum {
  XZ_OK = 0,
  XZ_TRUNCATED,   /* a frame shorter than its header says */
  XZ_TRAILING,    /* a frame longer than its header says */
  XZ_TOO_LARGE,   /* above one of the limits, or above the caller's buffer */
  XZ_BAD_VERSION, /* a v2 header of another version, or no version of ours */
  XZ_BAD_KIND,    /* a frame that is neither audio nor JSON */
  XZ_BAD_JSON,    /* no JSON, or no UTF-8 */
  XZ_BAD_MESSAGE, /* JSON, but a field is missing or has a value that is not allowed */
  XZ_FULL,        /* no room in the output: send what waits there first */
  XZ_BAD_STATE,   /* right call, wrong moment: not connected, or speaking */
  XZ_BAD_CONFIG,  /* a field of xz_config is missing or too small */
  XZ_REFUSED,     /* the server answered the handshake with something other than 101 */
  XZ_PROTOCOL,    /* the server broke RFC 6455 */
  XZ_TIMEOUT      /* nothing came for too long */
} xz_status;

/* A short, stable name, such as "too_large". */
const char *xz_status_name(xz_status status);

#endif
