/* JSON (RFC 8259) read in place and written into a fixed buffer. Nothing is allocated.
 *
 * The reader keeps no tree: a value is a piece of the text, and looking up a key walks the object.
 * All functions are safe on any bytes; xz_json_check says whether a text is JSON at all. */
#ifndef EARSHOT_XIAOZHI_JSON_H
#define EARSHOT_XIAOZHI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  const char *data; /* NULL: no such value */
  size_t len;
} xz_json;

/* Whether the text is exactly one JSON value, in UTF-8, nested at most XZ_JSON_DEPTH_MAX deep. */
bool xz_json_check(const char *text, size_t len, xz_json *value);

/* The value of a key. False if there is none, or if this is no object. The last of equal keys. */
bool xz_json_get(xz_json object, const char *key, xz_json *value);

bool xz_json_is_object(xz_json value);
bool xz_json_is_string(xz_json value);
bool xz_json_is_number(xz_json value);

/* Whether this is a string with exactly this text, however it is escaped. */
bool xz_json_equals(xz_json value, const char *text);

bool xz_json_to_bool(xz_json value, bool *result);

/* A number rounded to the nearest integer. False if it is none or beyond 32 bits. */
bool xz_json_to_int(xz_json value, int32_t *result);

/* The text of a string in UTF-8, ended with NUL (which it may also hold: trust `len`). `out` may be
 * the value itself: decoded text is never longer. False if it is no string or needs more room. */
bool xz_json_to_text(xz_json value, char *out, size_t cap, size_t *len);

/* A text under construction. Once `is_full`, nothing more is written. */
typedef struct {
  char *data;
  size_t cap;
  size_t len;
  bool is_full;
} xz_writer;

xz_writer xz_writer_to(void *data, size_t cap);

void xz_put_bytes(xz_writer *writer, const void *data, size_t len);
void xz_put(xz_writer *writer, const char *text);     /* as it is */
void xz_put_uint(xz_writer *writer, uint32_t number); /* in decimal */

/* The inside of a JSON string: escaped, and U+FFFD for what is not UTF-8. */
void xz_put_escaped_bytes(xz_writer *writer, const char *text, size_t len);
void xz_put_escaped(xz_writer *writer, const char *text);

/* A whole JSON string, with its quotes. */
void xz_put_string(xz_writer *writer, const char *text);

#endif
