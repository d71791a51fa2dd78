/* JSON (RFC 8259) read in place and written into a fixed buffer. Nothing is allocated.
 *
 * The reader keeps no tree: a value is a piece of the text, and looking up a key walks the object.
 * All functions are safe on any bytes; earshot_json_check says whether a text is JSON at all. */
#ifndef EARSHOT_XIAOZHI_JSON_H
#define EARSHOT_XIAOZHI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const char *data; /* NULL: no such value */
  size_t len;
} earshot_json;

/* Whether the text is exactly one JSON value, in UTF-8, nested at most EARSHOT_JSON_DEPTH_MAX
 * deep. */
bool earshot_json_check(const char *text, size_t len, earshot_json *value);

/* The value of a key. False if there is none, or if this is no object. The last of equal keys. */
bool earshot_json_get(earshot_json object, const char *key, earshot_json *value);

bool earshot_json_is_object(earshot_json value);
bool earshot_json_is_string(earshot_json value);
bool earshot_json_is_number(earshot_json value);

/* Whether this is a string with exactly this text, however it is escaped. */
bool earshot_json_equals(earshot_json value, const char *text);

bool earshot_json_to_bool(earshot_json value, bool *result);

/* A number, in any way that JSON writes one, rounded to the nearest integer (halves away from 0).
 * False if it is none, or if the result is beyond int32_t. */
bool earshot_json_to_int(earshot_json value, int32_t *result);

/* The text of a string in UTF-8, ended with NUL (which it may also hold: trust `len`). `out` may be
 * the value itself: decoded text is never longer. False if it is no string or needs more room. */
bool earshot_json_to_text(earshot_json value, char *out, size_t cap, size_t *len);

/* A text under construction. Once `is_full`, nothing more is written. */
typedef struct {
  char *data;
  size_t cap;
  size_t len;
  bool is_full;
} earshot_writer;

earshot_writer earshot_writer_to(void *data, size_t cap);

void earshot_put_bytes(earshot_writer *writer, const void *data, size_t len);
void earshot_put(earshot_writer *writer, const char *text);     /* as it is */
void earshot_put_uint(earshot_writer *writer, uint32_t number); /* in decimal */

/* The inside of a JSON string: escaped, and U+FFFD for what is not UTF-8. */
void earshot_put_escaped_bytes(earshot_writer *writer, const char *text, size_t len);
void earshot_put_escaped(earshot_writer *writer, const char *text);

/* A whole JSON string, with its quotes. */
void earshot_put_string(earshot_writer *writer, const char *text);

#ifdef __cplusplus
}
#endif

#endif
