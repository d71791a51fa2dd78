/* A device's own tools, offered to the server through MCP (JSON-RPC 2.0): `initialize`,
 * `tools/list` in pages, `tools/call`. */
#ifndef EARSHOT_XIAOZHI_MCP_H
#define EARSHOT_XIAOZHI_MCP_H

#include <stdbool.h>
#include <stddef.h>

#include "earshot_xiaozhi/json.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EARSHOT_MCP_PAGE_BYTES 8000 /* longest page of `tools/list`; shorter in a small `tx` */

/* A tool runs inside earshot_client_receive. Nothing is sent or received until it returns; keep the
 * microphone's sound of that time, or drop it. If the work takes more than about 20 ms, only start
 * it, answer that it was started, and return.
 *
 * A tool must not call earshot_client_ functions, because its result is being written into their
 * output. They refuse with EARSHOT_BAD_STATE. Call them (listen, close) after receive returned. */
typedef struct {
  const char *name; /* such as "self.audio_speaker.set_volume": ASCII without quotes, not empty */
  const char *description;
  const char *input_schema; /* JSON; NULL: no arguments */
  bool is_user_only;        /* listed only if the server asks for tools for users, too */
  /* Writes the result with earshot_put_escaped, as it becomes part of a JSON string, and returns
   * NULL. If the call failed, it returns an error text instead. `arguments` is an object with any
   * content: check its values. */
  const char *(*call)(void *context, earshot_json arguments, earshot_writer *result);
  void *context; /* passed to `call` */
} earshot_tool;

typedef struct {
  const char *name; /* of the board */
  const char *version;
  const earshot_tool *tools;
  size_t tools_len;
} earshot_mcp;

/* Answers one request. False if no answer is due: for a notification, and for an id that is not a
 * number (the firmware drops these, too). An answer that does not fit is replaced by an error that
 * says so. If the error does not fit either, `out` is full afterwards.
 *
 * Errors have a `code`, as JSON-RPC requires; the firmware's have only a `message`. */
bool earshot_mcp_answer(const earshot_mcp *mcp, earshot_json request, earshot_writer *out);

#ifdef __cplusplus
}
#endif

#endif
