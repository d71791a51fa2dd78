/* WAV files of 16-bit mono PCM. */
#ifndef HOST_WAV_H
#define HOST_WAV_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Returns all samples; *len is their number. NULL with a line on stderr for any other file. */
int16_t *wav_read(const char *path, uint32_t rate_hz, size_t *len);

/* A file that grows. `wav_close` writes its length; returns false if the disk was full. */
FILE *wav_create(const char *path, uint32_t rate_hz);
void wav_append(FILE *file, const int16_t *samples, size_t len);
int wav_close(FILE *file);

#endif
