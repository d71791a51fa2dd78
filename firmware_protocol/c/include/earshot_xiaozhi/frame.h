/* Binary WebSocket messages. Each holds one Opus packet, in the same form in both directions.
 *
 *   v1  the packet itself
 *   v2  u16 version, u16 kind, u32 reserved, u32 timestamp_ms, u32 payload_size, payload
 *   v3  u8 kind, u8 reserved, u16 payload_size, payload
 *
 * Numbers are big-endian. */
#ifndef EARSHOT_XIAOZHI_FRAME_H
#define EARSHOT_XIAOZHI_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "earshot_xiaozhi/json.h"
#include "earshot_xiaozhi/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EARSHOT_FRAME_HEADER_BYTES_MAX 16

typedef enum { EARSHOT_FRAME_AUDIO = 0, EARSHOT_FRAME_JSON = 1 } earshot_frame_kind;

typedef struct {
  earshot_frame_kind kind;
  uint32_t timestamp_ms; /* only in v2: timestamp of the server's packet that plays now; else 0 */
  const uint8_t *payload;
  size_t payload_len; /* 0 to 3 bytes mean silence (DTX of Opus) */
} earshot_frame;

/* Reads one complete message. `frame->payload` points into `data`. */
earshot_status earshot_frame_decode(int version, const uint8_t *data, size_t len,
                                    earshot_frame *frame);

/* Appends one message. EARSHOT_FULL if the writer has no room for it. */
earshot_status earshot_frame_encode(int version, const earshot_frame *frame, earshot_writer *out);

#ifdef __cplusplus
}
#endif

#endif
