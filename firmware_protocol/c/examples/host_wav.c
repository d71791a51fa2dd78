#include "host_wav.h"

#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 44

static uint32_t get(const uint8_t *at, int bytes) {
  uint32_t value = 0;
  while (bytes-- > 0) value = (value << 8) | at[bytes];
  return value;
}

static void put(uint8_t *at, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; i++, value >>= 8) at[i] = (uint8_t)value;
}

static int16_t *read_samples(FILE *file, uint32_t size, size_t *len) {
  uint8_t *bytes = malloc(size > 0 ? size : 1);
  int16_t *samples = malloc(size > 0 ? size : 1);
  if (bytes != NULL && samples != NULL) {
    *len = fread(bytes, 1, size, file) / 2;
    for (size_t i = 0; i < *len; i++) samples[i] = (int16_t)get(bytes + 2 * i, 2);
  }
  free(bytes);
  return samples;
}

int16_t *wav_read(const char *path, uint32_t rate_hz, size_t *len) {
  uint8_t head[16] = {0};
  int16_t *samples = NULL;
  int is_right = 0;
  FILE *file = fopen(path, "rb");
  if (file != NULL && fread(head, 1, 12, file) == 12 && memcmp(head, "RIFF", 4) == 0 &&
      memcmp(head + 8, "WAVE", 4) == 0) {
    while (samples == NULL && fread(head, 1, 8, file) == 8) {
      uint32_t size = get(head + 4, 4);
      if (memcmp(head, "fmt ", 4) == 0 && size >= 16 && fread(head, 1, 16, file) == 16) {
        is_right = get(head, 2) == 1 && get(head + 2, 2) == 1 && get(head + 4, 4) == rate_hz &&
                   get(head + 14, 2) == 16;
        size -= 16;
      } else if (is_right && memcmp(head, "data", 4) == 0) {
        samples = read_samples(file, size < 100000000 ? size : 100000000, len);
        continue;
      }
      if (fseek(file, (long)(size + size % 2), SEEK_CUR) != 0) break;
    }
  }
  if (file != NULL) fclose(file);
  if (samples == NULL)
    fprintf(stderr, "%s: no WAV of 16-bit mono PCM at %u Hz\n", path, (unsigned)rate_hz);
  return samples;
}

FILE *wav_create(const char *path, uint32_t rate_hz) {
  uint8_t head[HEADER_BYTES] = "RIFF....WAVEfmt ";
  FILE *file = fopen(path, "wb");
  if (file == NULL) {
    perror(path);
    return NULL;
  }
  put(head + 16, 16, 4);
  put(head + 20, 1, 2); /* PCM */
  put(head + 22, 1, 2); /* mono */
  put(head + 24, rate_hz, 4);
  put(head + 28, 2 * rate_hz, 4);
  put(head + 32, 2, 2);
  put(head + 34, 16, 2);
  memcpy(head + 36, "data", 4);
  fwrite(head, 1, sizeof head, file);
  return file;
}

void wav_append(FILE *file, const int16_t *samples, size_t len) {
  for (size_t i = 0; i < len; i++) {
    uint8_t bytes[2];
    put(bytes, (uint16_t)samples[i], 2);
    fwrite(bytes, 1, 2, file);
  }
}

int wav_close(FILE *file) {
  uint8_t size[4];
  long end = ftell(file);
  put(size, (uint32_t)(end - 8), 4);
  fseek(file, 4, SEEK_SET);
  fwrite(size, 1, 4, file);
  put(size, (uint32_t)(end - HEADER_BYTES), 4);
  fseek(file, HEADER_BYTES - 4, SEEK_SET);
  fwrite(size, 1, 4, file);
  int is_fine = !ferror(file);
  return fclose(file) == 0 && is_fine;
}
