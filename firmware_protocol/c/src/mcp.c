#include "earshot_xiaozhi/mcp.h"

#include <string.h>

#define MCP_END_BYTES 2    /* closes the answer and the message around it */
#define PAGE_END_BYTES 160 /* may follow the tools: a cursor, brackets, the envelope */

/* JSON-RPC 2.0, 5.1 */
#define METHOD_NOT_FOUND "-32601"
#define INVALID_PARAMS "-32602"
#define INTERNAL_ERROR "-32603"
#define TOOL_FAILED "-32000" /* from the range for servers' own errors */

static void put_error(earshot_writer *out, const char *code, const char *what, earshot_json about) {
  earshot_put(out, "\"error\":{\"code\":");
  earshot_put(out, code);
  earshot_put(out, ",\"message\":\"");
  earshot_put_escaped(out, what);
  if (earshot_json_is_string(about) && about.len <= 130) /* it is escaped already */
    earshot_put_bytes(out, about.data + 1, about.len - 2);
  earshot_put(out, "\"}");
}

static void put_initialized(const earshot_mcp *mcp, earshot_writer *out) {
  earshot_put(out,
              "\"result\":{\"protocolVersion\":\"2024-11-05\",\"capabilities\":{\"tools\":{}},"
              "\"serverInfo\":{\"name\":");
  earshot_put_string(out, mcp->name);
  earshot_put(out, ",\"version\":");
  earshot_put_string(out, mcp->version);
  earshot_put(out, "}}");
}

static void put_tool(const earshot_tool *tool, bool is_first, earshot_writer *out) {
  earshot_put(out, is_first ? "{\"name\":" : ",{\"name\":");
  earshot_put_string(out, tool->name);
  earshot_put(out, ",\"description\":");
  earshot_put_string(out, tool->description);
  earshot_put(out, ",\"inputSchema\":");
  earshot_put(out,
              tool->input_schema ? tool->input_schema : "{\"type\":\"object\",\"properties\":{}}");
  if (tool->is_user_only) earshot_put(out, ",\"annotations\":{\"audience\":[\"user\"]}");
  earshot_put(out, "}");
}

static void rewind_to(earshot_writer *out, size_t mark) {
  out->len = mark;
  out->is_full = false;
}

/* Writes as many tools as fit, from the one that the cursor names, and at least one: otherwise the
 * list would never end. If not even one fits, the answer is an error, so that the server does not
 * wait in vain. */
static void put_list(const earshot_mcp *mcp, earshot_json params, earshot_writer *out) {
  earshot_json cursor = {NULL, 0}, value;
  bool with_user_only = false, is_first = true;
  size_t room = out->cap - out->len;
  size_t most = out->len + (room < EARSHOT_MCP_PAGE_BYTES ? room : EARSHOT_MCP_PAGE_BYTES);
  earshot_json_get(params, "cursor", &cursor);
  if (earshot_json_get(params, "withUserTools", &value))
    earshot_json_to_bool(value, &with_user_only);
  bool is_begun = !earshot_json_is_string(cursor) || earshot_json_equals(cursor, "");
  const char *next = NULL;
  earshot_put(out, "\"result\":{\"tools\":[");
  for (size_t i = 0; i < mcp->tools_len && next == NULL; i++) {
    const earshot_tool *tool = &mcp->tools[i];
    size_t mark = out->len;
    is_begun = is_begun || earshot_json_equals(cursor, tool->name);
    if (!is_begun || (tool->is_user_only && !with_user_only)) continue;
    put_tool(tool, is_first, out);
    if (!is_first && (out->is_full || out->len + PAGE_END_BYTES > most)) {
      rewind_to(out, mark);
      next = tool->name;
    }
    is_first = false;
  }
  earshot_put(out, "]");
  if (next != NULL) {
    earshot_put(out, ",\"nextCursor\":");
    earshot_put_string(out, next);
  }
  earshot_put(out, "}");
}

static void put_call(const earshot_mcp *mcp, earshot_json params, earshot_writer *out) {
  static const earshot_json none = {"{}", 2};
  earshot_json name = {NULL, 0}, arguments = none, nothing = {NULL, 0};
  size_t i = 0, mark = out->len;
  earshot_json_get(params, "name", &name);
  if (earshot_json_get(params, "arguments", &arguments) && !earshot_json_is_object(arguments))
    arguments = none;
  while (i < mcp->tools_len && !earshot_json_equals(name, mcp->tools[i].name)) i++;
  if (i == mcp->tools_len) {
    put_error(out, INVALID_PARAMS, "Unknown tool: ", name);
    return;
  }
  earshot_put(out, "\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"");
  const char *problem = mcp->tools[i].call(mcp->tools[i].context, arguments, out);
  if (problem == NULL) {
    earshot_put(out, "\"}],\"isError\":false}");
  } else {
    rewind_to(out, mark);
    put_error(out, TOOL_FAILED, problem, nothing);
  }
}

bool earshot_mcp_answer(const earshot_mcp *mcp, earshot_json request, earshot_writer *out) {
  earshot_json id, method, params = {NULL, 0}, nothing = {NULL, 0};
  if (!earshot_json_get(request, "id", &id) || !earshot_json_is_number(id)) return false;
  if (!earshot_json_get(request, "method", &method) || !earshot_json_is_string(method))
    return false;
  earshot_json_get(request, "params", &params);
  earshot_put(out, "{\"jsonrpc\":\"2.0\",\"id\":");
  earshot_put_bytes(out, id.data, id.len);
  earshot_put(out, ",");
  size_t mark = out->len;
  if (earshot_json_equals(method, "initialize")) put_initialized(mcp, out);
  else if (earshot_json_equals(method, "tools/list")) put_list(mcp, params, out);
  else if (earshot_json_equals(method, "tools/call")) put_call(mcp, params, out);
  else put_error(out, METHOD_NOT_FOUND, "Method not implemented: ", method);
  if (out->is_full || out->cap - out->len < MCP_END_BYTES) {
    rewind_to(out, mark);
    put_error(out, INTERNAL_ERROR, "The result is too large", nothing);
  }
  earshot_put(out, "}");
  return true;
}
