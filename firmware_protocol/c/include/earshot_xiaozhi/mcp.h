/* A device's own tools, offered to the server through MCP (JSON-RPC 2.0): `initialize`,
 * `tools/list` in pages, `tools/call`. */
#ifndef EARSHOT_XIAOZHI_MCP_H
#define EARSHOT_XIAOZHI_MCP_H

#include <stdbool.h>
#include <stddef.h>

#include "earshot_xiaozhi/json.h"

#define EARSHOT_MCP_PAGE_BYTES 8000 /* of one `tools/list`; less if the output buffer is smaller */

typedef struct {
  const char *name; /* such as "self.audio_speaker.set_volume"; ASCII without quotes */
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
 * number (the firmware drops these, too). */
bool earshot_mcp_answer(const earshot_mcp *mcp, earshot_json request, earshot_writer *out);

#endif
