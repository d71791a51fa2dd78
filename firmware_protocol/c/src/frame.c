#include "earshot_xiaozhi/frame.h"

#define V2_HEADER_BYTES 16
#define V3_HEADER_BYTES 4

static uint32_t get_u16(const uint8_t *at) { return ((uint32_t)at[0] << 8) | at[1]; }

static uint32_t get_u32(const uint8_t *at) { return (get_u16(at) << 16) | get_u16(at + 2); }

static void put_number(earshot_writer *out, uint32_t number, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
    uint8_t byte = (uint8_t)(number >> shift);
    earshot_put_bytes(out, &byte, 1);
  }
}

static earshot_status take_payload(const uint8_t *payload, size_t len, uint32_t announced,
                                   uint32_t kind, earshot_frame *frame) {
  if (kind > EARSHOT_FRAME_JSON) return EARSHOT_BAD_KIND;
  if (announced > EARSHOT_PAYLOAD_BYTES_MAX) return EARSHOT_TOO_LARGE;
  if (len < announced) return EARSHOT_TRUNCATED;
  if (len > announced) return EARSHOT_TRAILING;
  frame->kind = (earshot_frame_kind)kind;
  frame->payload = payload;
  frame->payload_len = len;
  return EARSHOT_OK;
}

earshot_status earshot_frame_decode(int version, const uint8_t *data, size_t len,
                                    earshot_frame *frame) {
  frame->timestamp_ms = 0;
  switch (version) {
    case 1:
      if (len > EARSHOT_PAYLOAD_BYTES_MAX) return EARSHOT_TOO_LARGE;
      return take_payload(data, len, (uint32_t)len, EARSHOT_FRAME_AUDIO, frame);
    case 2:
      if (len < V2_HEADER_BYTES) return EARSHOT_TRUNCATED;
      if (get_u16(data) != 2) return EARSHOT_BAD_VERSION;
      frame->timestamp_ms = get_u32(data + 8);
      return take_payload(data + V2_HEADER_BYTES, len - V2_HEADER_BYTES, get_u32(data + 12),
                          get_u16(data + 2), frame);
    case 3:
      if (len < V3_HEADER_BYTES) return EARSHOT_TRUNCATED;
      return take_payload(data + V3_HEADER_BYTES, len - V3_HEADER_BYTES, get_u16(data + 2), data[0],
                          frame);
    default: return EARSHOT_BAD_VERSION;
  }
}

earshot_status earshot_frame_encode(int version, const earshot_frame *frame, earshot_writer *out) {
  if (version < 1 || version > 3) return EARSHOT_BAD_VERSION;
  if (version == 1 && frame->kind != EARSHOT_FRAME_AUDIO) return EARSHOT_BAD_KIND;
  if (frame->payload_len > EARSHOT_PAYLOAD_BYTES_MAX) return EARSHOT_TOO_LARGE;
  uint32_t size = (uint32_t)frame->payload_len;
  if (version == 2) {
    put_number(out, 2, 2);
    put_number(out, (uint32_t)frame->kind, 2);
    put_number(out, 0, 4);
    put_number(out, frame->timestamp_ms, 4);
    put_number(out, size, 4);
  } else if (version == 3) {
    put_number(out, (uint32_t)frame->kind, 1);
    put_number(out, 0, 1);
    put_number(out, size, 2);
  }
  earshot_put_bytes(out, frame->payload, frame->payload_len);
  return out->is_full ? EARSHOT_FULL : EARSHOT_OK;
}
