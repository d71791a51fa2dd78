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

#define EARSHOT_MCP_PAGE_BYTES 8000 /* of one `tools/list`; less if the output buffer is smaller */

/* A tool runs inside earshot_client_receive. Nothing is sent or received until it returns; keep or
 * drop the microphone's sound of that time. If the work takes more than about 20 ms, only start it,
 * answer that it was started, and return.
 *
 * A tool must not call earshot_client_ functions, because its result is being written into their
 * output. They refuse with EARSHOT_BAD_STATE. Call them (listen, close) after receive returned. */
typedef struct {
  const char *name; /* such as "self.audio_speaker.set_volume"; ASCII without quotes, not "" */
  const char *description;
  const char *input_schema; /* JSON; NULL: no arguments */
  bool is_user_only;        /* listed only when the server asks for such tools, too */
  /* Writes the result with earshot_put_escaped, as it becomes part of a JSON string, and returns
   * NULL; or returns an error text. `arguments` is an object with any content: check its values. */
  const char *(*call)(void *context, earshot_json arguments, earshot_writer *result);
  void *context;
} earshot_tool;

typedef struct {
  const char *name; /* of the board */
  const char *version;
  const earshot_tool *tools;
  size_t tools_len;
} earshot_mcp;

/* Answers one request. False if no answer is due: for a notification, and for an id that is not a
 * number (the firmware drops these, too). An answer without room becomes an error that says so. If
 * there is no room for the error either, the writer is full.
 *
 * Errors have a `code`, as JSON-RPC requires; the firmware's have only a `message`. */
bool earshot_mcp_answer(const earshot_mcp *mcp, earshot_json request, earshot_writer *out);

#ifdef __cplusplus
}
#endif

#endif
