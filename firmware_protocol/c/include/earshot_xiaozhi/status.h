/* Results of calls, and limits that all parts share. */
#ifndef EARSHOT_XIAOZHI_STATUS_H
#define EARSHOT_XIAOZHI_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#define EARSHOT_PAYLOAD_BYTES_MAX 8192 /* an Opus packet of 120 ms at its highest rate is 7.7 kB */
#define EARSHOT_TEXT_BYTES_MAX 65535   /* of one JSON message */
#define EARSHOT_JSON_DEPTH_MAX 32      /* most levels of objects and arrays within each other */

typedef enum {
  EARSHOT_OK = 0,
  EARSHOT_TRUNCATED,   /* a frame shorter than its header says */
  EARSHOT_TRAILING,    /* a frame longer than its header says */
  EARSHOT_TOO_LARGE,   /* larger than one of the limits, or than the caller's buffer */
  EARSHOT_BAD_VERSION, /* a v2 header with another version, or an unsupported version */
  EARSHOT_BAD_KIND,    /* a frame that is neither audio nor JSON */
  EARSHOT_BAD_JSON,    /* not JSON, or not UTF-8 */
  EARSHOT_BAD_MESSAGE, /* a field is missing or has a value that is not allowed */
  EARSHOT_FULL,        /* no room in the output: send what it holds first */
  EARSHOT_BAD_STATE,   /* not allowed now: not connected, speaking, or inside a tool */
  EARSHOT_BAD_CONFIG,  /* a field of earshot_config is missing or too small */
  EARSHOT_REFUSED,     /* the server answered the handshake with something other than 101 */
  EARSHOT_PROTOCOL,    /* the server broke RFC 6455 */
  EARSHOT_TIMEOUT      /* nothing came from the server for too long */
} earshot_status;

/* Returns a short, stable name, such as "too_large". */
const char *earshot_status_name(earshot_status status);

#ifdef __cplusplus
}
#endif

#endif
