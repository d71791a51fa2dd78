/* The only functions of a C library that are needed, to compile without one. */
#ifndef EARSHOT_TEST_STRING_H
#define EARSHOT_TEST_STRING_H

#include <stddef.h>

void *memchr(const void *data, int byte, size_t len);
int memcmp(const void *left, const void *right, size_t len);
void *memcpy(void *to, const void *from, size_t len);
void *memmove(void *to, const void *from, size_t len);
void *memset(void *data, int byte, size_t len);
char *strchr(const char *text, int ch);
size_t strlen(const char *text);
char *strpbrk(const char *text, const char *any);

#endif
