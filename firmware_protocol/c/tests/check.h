/* A check that prints its file and line when it fails. */
#ifndef EARSHOT_TEST_CHECK_H
#define EARSHOT_TEST_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "earshot_xiaozhi.h"

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                \
    }                                                                         \
  } while (0)

#endif
