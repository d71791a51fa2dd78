/* Reads JSON (RFC 8259) in place and writes it into a fixed buffer. Allocates nothing.
 *
 * The reader keeps no tree: a value is a piece of the text, and looking up a key walks the object.
 * All functions are safe for any bytes. earshot_json_check returns whether a text is JSON. */
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

/* Returns whether the text is exactly one JSON value, in UTF-8, with at most
 * EARSHOT_JSON_DEPTH_MAX levels. */
bool earshot_json_check(const char *text, size_t len, earshot_json *value);

/* Finds the value of a key; if an object has the key twice, the last one. False if `object` is not
 * an object, or does not have the key. */
bool earshot_json_get(earshot_json object, const char *key, earshot_json *value);

/* Return whether the value is of this type. */
bool earshot_json_is_object(earshot_json value);
bool earshot_json_is_string(earshot_json value);
bool earshot_json_is_number(earshot_json value);

/* Returns whether this is a string with exactly this text, with or without escapes. */
bool earshot_json_equals(earshot_json value, const char *text);

/* Reads true or false. Returns false if the value is neither. */
bool earshot_json_to_bool(earshot_json value, bool *result);

/* Reads a number in any JSON notation, rounded to the nearest integer (halves away from 0). False
 * if it is not a number or does not fit into int32_t. */
bool earshot_json_to_int(earshot_json value, int32_t *result);

/* Decodes a string to UTF-8 with a NUL at the end. The text itself may hold NULs, so use `len`.
 * `out` may be the value itself: decoded text is never longer. False if it is not a string or needs
 * more room. */
bool earshot_json_to_text(earshot_json value, char *out, size_t cap, size_t *len);

/* A text that is being written into a buffer. What does not fit sets `is_full`, and from then on
 * nothing is written. */
typedef struct {
  char *data;
  size_t cap;
  size_t len;
  bool is_full;
} earshot_writer;

/* Returns a writer for an empty buffer of `cap` bytes. */
earshot_writer earshot_writer_to(void *data, size_t cap);

/* Append bytes or a text as they are, and a number in decimal. */
void earshot_put_bytes(earshot_writer *writer, const void *data, size_t len);
void earshot_put(earshot_writer *writer, const char *text);
void earshot_put_uint(earshot_writer *writer, uint32_t number);

/* Append the inside of a JSON string: escaped, with U+FFFD for bytes that are not UTF-8. */
void earshot_put_escaped_bytes(earshot_writer *writer, const char *text, size_t len);
void earshot_put_escaped(earshot_writer *writer, const char *text);

/* Appends a whole JSON string with its quotes. */
void earshot_put_string(earshot_writer *writer, const char *text);

#ifdef __cplusplus
}
#endif

#endif
