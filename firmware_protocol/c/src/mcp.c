#include "earshot_xiaozhi/mcp.h"

#include <string.h>

#define MCP_END_BYTES 2    /* the end of the answer, and of the message around it */
#define PAGE_END_BYTES 160 /* what may follow the tools: a cursor, a few brackets, the envelope */

static void put_error(xz_writer *out, const char *what, xz_json about) {
  xz_put(out, "\"error\":{\"message\":\"");
  xz_put_escaped(out, what);
  if (xz_json_is_string(about) && about.len <= 130) /* as it is: escaped already */
    xz_put_bytes(out, about.data + 1, about.len - 2);
  xz_put(out, "\"}");
}

static void put_initialized(const xz_mcp *mcp, xz_writer *out) {
  xz_put(out, "\"result\":{\"protocolVersion\":\"2024-11-05\",\"capabilities\":{\"tools\":{}},"
              "\"serverInfo\":{\"name\":");
  xz_put_string(out, mcp->name);
  xz_put(out, ",\"version\":");
  xz_put_string(out, mcp->version);
  xz_put(out, "}}");
}

static void put_tool(const xz_tool *tool, bool is_first, xz_writer *out) {
  xz_put(out, is_first ? "{\"name\":" : ",{\"name\":");
  xz_put_string(out, tool->name);
  xz_put(out, ",\"description\":");
  xz_put_string(out, tool->description);
  xz_put(out, ",\"inputSchema\":");
  xz_put(out, tool->input_schema ? tool->input_schema : "{\"type\":\"object\",\"properties\":{}}");
  if (tool->is_user_only) xz_put(out, ",\"annotations\":{\"audience\":[\"user\"]}");
  xz_put(out, "}");
}

/* The tools from the one that the cursor names, as many as fit; at least one, or none ever would. */
static void put_list(const xz_mcp *mcp, xz_json params, xz_writer *out) {
  xz_json cursor = {NULL, 0}, value;
  bool with_user_only = false, is_first = true;
  size_t room = out->cap - out->len;
  size_t most = out->len + (room < XZ_MCP_PAGE_BYTES ? room : XZ_MCP_PAGE_BYTES);
  xz_json_get(params, "cursor", &cursor);
  if (xz_json_get(params, "withUserTools", &value)) xz_json_to_bool(value, &with_user_only);
  bool is_begun = !xz_json_is_string(cursor) || xz_json_equals(cursor, "");
  const char *next = NULL;
  xz_put(out, "\"result\":{\"tools\":[");
  for (size_t i = 0; i < mcp->tools_len && next == NULL; i++) {
    const xz_tool *tool = &mcp->tools[i];
    size_t mark = out->len;
    is_begun = is_begun || xz_json_equals(cursor, tool->name);
    if (!is_begun || (tool->is_user_only && !with_user_only)) continue;
    put_tool(tool, is_first, out);
    if (!is_first && (out->is_full || out->len + PAGE_END_BYTES > most)) {
      out->len = mark;
      out->is_full = false;
      next = tool->name;
    }
    is_first = false;
  }
  xz_put(out, "]");
  if (next != NULL) {
    xz_put(out, ",\"nextCursor\":");
    xz_put_string(out, next);
  }
  xz_put(out, "}");
}

static void put_call(const xz_mcp *mcp, xz_json params, xz_writer *out) {
  static const xz_json none = {"{}", 2};
  xz_json name = {NULL, 0}, arguments = none, nothing = {NULL, 0};
  size_t i = 0, mark = out->len;
  xz_json_get(params, "name", &name);
  if (xz_json_get(params, "arguments", &arguments) && !xz_json_is_object(arguments))
    arguments = none;
  while (i < mcp->tools_len && !xz_json_equals(name, mcp->tools[i].name)) i++;
  if (i == mcp->tools_len) {
    put_error(out, "Unknown tool: ", name);
    return;
  }
  xz_put(out, "\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"");
  const char *problem = mcp->tools[i].call(mcp->tools[i].context, arguments, out);
  if (problem == NULL) {
    xz_put(out, "\"}],\"isError\":false}");
    if (out->len + MCP_END_BYTES <= out->cap && !out->is_full) return;
    problem = "The result is too large";
  }
  out->len = mark;
  out->is_full = false;
  put_error(out, problem, nothing);
}

bool xz_mcp_answer(const xz_mcp *mcp, xz_json request, xz_writer *out) {
  xz_json id, method, params = {NULL, 0};
  if (!xz_json_get(request, "id", &id) || !xz_json_is_number(id)) return false;
  if (!xz_json_get(request, "method", &method) || !xz_json_is_string(method)) return false;
  xz_json_get(request, "params", &params);
  xz_put(out, "{\"jsonrpc\":\"2.0\",\"id\":");
  xz_put_bytes(out, id.data, id.len);
  xz_put(out, ",");
  if (xz_json_equals(method, "initialize")) put_initialized(mcp, out);
  else if (xz_json_equals(method, "tools/list")) put_list(mcp, params, out);
  else if (xz_json_equals(method, "tools/call")) put_call(mcp, params, out);
  else put_error(out, "Method not implemented: ", method);
  xz_put(out, "}");
  return true;
}
