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

/* A tool works inside earshot_client_receive, and nothing is sent or received until it returns:
 * what the microphone hears meanwhile is yours to keep or to drop. So start what takes longer than
 * some 20 ms, answer that it was started, and return.
 *
 * It must not call earshot_client_ functions: its result is being written into their output. They
 * refuse with EARSHOT_BAD_STATE; keep what you want to do (listen, close) until receive returns. */
typedef struct {
  const char *name; /* such as "self.audio_speaker.set_volume"; ASCII without quotes, not "" */
  const char *description;
  const char *input_schema; /* JSON; NULL: no arguments */
  bool is_user_only;        /* listed only when the server asks for such tools, too */
  /* Writes the result with earshot_put_escaped (it lands in a JSON string) and returns NULL, or
   * returns what went wrong. `arguments` is an object of any content: check what you read. */
  const char *(*call)(void *context, earshot_json arguments, earshot_writer *result);
  void *context;
} earshot_tool;

typedef struct {
  const char *name; /* of the board */
  const char *version;
  const earshot_tool *tools;
  size_t tools_len;
} earshot_mcp;

/* Answers one request. False if there is nothing to answer: a notification, or an id that is no
 * number (the firmware drops these, too). What finds no room becomes an error that says so; if
 * there is no room even for that, the writer is full.
 *
 * Errors have a `code`, as JSON-RPC wants it; the firmware's have only a `message`. */
bool earshot_mcp_answer(const earshot_mcp *mcp, earshot_json request, earshot_writer *out);

#ifdef __cplusplus
}
#endif

#endif
