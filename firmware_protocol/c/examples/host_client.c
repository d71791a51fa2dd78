/* Talks with an Earshot server as a board would: asks with WAV files, in real time, one turn each;
 * prints what was understood and answered; writes the answers into a WAV file.
 *
 *   host_client http://HOST:PORT/xiaozhi/ota/ DEVICE_ID ANSWER.wav QUESTION.wav...
 *
 * It has no TLS, so it cannot reach a server that has only https.
 *
 * DEVICE_ID looks like a MAC address. Questions are 16 kHz mono. Ends with 0 if every question was
 * answered, 2 if the device must be approved first (its code is printed), 1 otherwise. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <opus/opus.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "earshot_xiaozhi.h"
#include "host_net.h"
#include "host_wav.h"

#define CLIENT_ID "00000000-0000-4000-8000-000000000001"
#define UP_HZ 16000
#define UP_MS 60
#define UP_SAMPLES (UP_HZ / 1000 * UP_MS)
#define DOWN_HZ 24000
#define DOWN_SAMPLES_MAX (DOWN_HZ / 1000 * 120)
#define TURN_MS_MAX 60000 /* after this time without an answer none will come */

typedef struct {
  earshot_client client;
  int fd;
  OpusEncoder *encoder;
  OpusDecoder *decoder;
  FILE *answer;
  int32_t volume; /* 0 to 100, the server may set it */
  const int16_t *question;
  size_t question_len;
  bool is_answered; /* this turn got sound and its end */
  bool has_sound;
  bool is_over; /* the connection has ended */
} talk;

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint32_t random_bits(void *context) {
  uint32_t bits = 0;
  if (fread(&bits, sizeof bits, 1, context) != 1) abort();
  return bits;
}

static const char *set_volume(void *context, earshot_json arguments, earshot_writer *result) {
  int32_t *volume = context, wanted;
  earshot_json value;
  if (!earshot_json_get(arguments, "volume", &value) || !earshot_json_to_int(value, &wanted) ||
      wanted < 0 || wanted > 100)
    return "volume must be a number from 0 to 100";
  *volume = wanted;
  printf("volume: %d\n", (int)wanted);
  earshot_put_escaped(result, "true");
  return NULL;
}

static void play(talk *t, const earshot_frame *packet) {
  static int16_t samples[DOWN_SAMPLES_MAX];
  /* Opus takes an empty packet as lost, and fills the gap. */
  const uint8_t *data = packet->payload_len > 0 ? packet->payload : NULL;
  int wanted = data != NULL ? DOWN_SAMPLES_MAX : DOWN_HZ / 1000 * 60;
  int len = opus_decode(t->decoder, data, (opus_int32)packet->payload_len, samples, wanted, 0);
  if (len < 0) {
    fprintf(stderr, "a packet of %zu bytes is no Opus\n", packet->payload_len);
    return;
  }
  for (int i = 0; i < len; i++) samples[i] = (int16_t)(samples[i] * t->volume / 100);
  wav_append(t->answer, samples, (size_t)len);
  t->has_sound = true;
}

static void handle(talk *t, const earshot_event *event) {
  switch (event->kind) {
    case EARSHOT_EVENT_NONE:
    case EARSHOT_EVENT_SPEAKING:
    case EARSHOT_EVENT_CUSTOM:
    case EARSHOT_EVENT_REBOOT: break;
    case EARSHOT_EVENT_OPEN:
      printf("connected: session %s\n", t->client.session_id);
      earshot_client_listen(&t->client, EARSHOT_MODE_AUTO);
      break;
    case EARSHOT_EVENT_TRANSCRIPT:
      printf("%s: %s\n", event->is_partial ? "partial" : "transcript", event->text.data);
      break;
    case EARSHOT_EVENT_EMOTION: break;
    case EARSHOT_EVENT_SENTENCE: printf("answer: %s\n", event->text.data); break;
    case EARSHOT_EVENT_AUDIO: play(t, &event->audio); break;
    case EARSHOT_EVENT_SPEAKING_ENDED:
      if (event->timing.response_latency_ms != EARSHOT_UNKNOWN_MS)
        printf("latency: %d ms\n", (int)event->timing.response_latency_ms);
      t->is_answered = t->has_sound;
      if (!t->is_answered) earshot_client_listen(&t->client, EARSHOT_MODE_AUTO);
      break;
    case EARSHOT_EVENT_ALERT: printf("alert: %s\n", event->text.data); break;
    case EARSHOT_EVENT_SKIPPED:
      fprintf(stderr, "a message was skipped: %s\n", earshot_status_name(event->error));
      break;
    case EARSHOT_EVENT_CLOSED:
      fprintf(stderr, "the server closed: %d\n", (int)event->close_code);
      t->is_over = true;
      break;
    case EARSHOT_EVENT_FAILED:
      fprintf(stderr, "failed: %s, HTTP status %d\n", earshot_status_name(event->error),
              event->http_status);
      t->is_over = true;
      break;
  }
  fflush(stdout);
}

/* Sends the next 60 ms of the question, or of the silence after it. */
static void speak(talk *t) {
  int16_t samples[UP_SAMPLES] = {0};
  uint8_t packet[4000];
  size_t len = t->question_len < UP_SAMPLES ? t->question_len : UP_SAMPLES;
  if (len > 0) memcpy(samples, t->question, len * sizeof *samples);
  t->question += len;
  t->question_len -= len;
  opus_int32 size = opus_encode(t->encoder, samples, UP_SAMPLES, packet, sizeof packet);
  if (size >= 0 && earshot_client_audio(&t->client, packet, (size_t)size, 0) == EARSHOT_FULL)
    fprintf(stderr, "the network is slow: 60 ms of speech are lost\n");
}

static void receive(talk *t) {
  uint8_t data[4096];
  earshot_event event;
  ssize_t got = recv(t->fd, data, sizeof data, 0);
  if (got <= 0) {
    if (got < 0 && errno == EINTR) return;
    earshot_client_disconnected(&t->client, &event);
    handle(t, &event);
    t->is_over = true;
  }
  for (size_t used = 0; got > 0 && used < (size_t)got;) {
    used += earshot_client_receive(&t->client, data + used, (size_t)got - used, &event);
    handle(t, &event);
  }
}

static void flush(talk *t) {
  size_t len;
  const uint8_t *data = earshot_client_output(&t->client, &len);
  ssize_t sent = len > 0 ? send(t->fd, data, len, MSG_NOSIGNAL) : 0;
  if (sent > 0) earshot_client_sent(&t->client, (size_t)sent);
}

/* Asks one question and waits for its answer. */
static bool take_turn(talk *t, const int16_t *question, size_t len) {
  uint64_t began_ms = now_ms(), next_ms = began_ms;
  t->question = question;
  t->question_len = len;
  t->is_answered = t->has_sound = false;
  while (!t->is_answered && !t->is_over && now_ms() - began_ms < TURN_MS_MAX) {
    earshot_event event;
    uint64_t moment_ms = now_ms();
    if (moment_ms >= next_ms) {
      next_ms += UP_MS;
      if (earshot_client_state(&t->client) == EARSHOT_STATE_LISTENING) speak(t);
      earshot_client_tick(&t->client, (uint32_t)moment_ms, &event);
      handle(t, &event);
      continue;
    }
    flush(t);
    struct pollfd wait = {t->fd, POLLIN, 0};
    if (poll(&wait, 1, (int)(next_ms - moment_ms)) > 0) receive(t);
  }
  flush(t);
  return t->is_answered;
}

static bool converse(talk *t, char **questions, int count) {
  static const int16_t pause[DOWN_HZ / 2]; /* half a second between two answers in the file */
  bool is_answered = true;
  for (int i = 0; i < count && is_answered; i++) {
    size_t len;
    int16_t *question = wav_read(questions[i], UP_HZ, &len);
    if (question == NULL) return false;
    if (i > 0) {
      wav_append(t->answer, pause, sizeof pause / sizeof *pause);
      earshot_client_listen(&t->client, EARSHOT_MODE_AUTO);
    }
    is_answered = take_turn(t, question, len);
    free(question);
  }
  earshot_client_close(&t->client);
  flush(t);
  return is_answered;
}

static bool start(talk *t, const net_url *where, const char *token, const char *device_id,
                  FILE *entropy) {
  static uint8_t rx[16384], tx[8192];
  static const char schema[] =
      "{\"type\":\"object\",\"properties\":{\"volume\":{\"type\":\"integer\","
      "\"minimum\":0,\"maximum\":100}},\"required\":[\"volume\"]}";
  static earshot_tool tools[1];
  earshot_tool volume = {"self.audio_speaker.set_volume",
                         "Set the volume of the speaker, 0 to 100.",
                         schema,
                         false,
                         set_volume,
                         &t->volume};
  tools[0] = volume;
  earshot_config config;
  memset(&config, 0, sizeof config);
  earshot_handshake handshake = {where->authority, where->path, token, device_id, CLIENT_ID, 3};
  earshot_mcp mcp = {"host_client", "0.1.0", tools, 1};
  config.handshake = handshake;
  config.hello.wants_partial = config.hello.wants_timing = true;
  config.mcp = mcp;
  config.rx = rx;
  config.rx_cap = sizeof rx;
  config.tx = tx;
  config.tx_cap = sizeof tx;
  config.random = random_bits;
  config.random_context = entropy;
  return earshot_client_init(&t->client, &config) == EARSHOT_OK &&
         earshot_client_open(&t->client) == EARSHOT_OK;
}

static bool prepare_opus(talk *t) {
  int problem = 0;
  t->encoder = opus_encoder_create(UP_HZ, 1, OPUS_APPLICATION_VOIP, &problem);
  if (problem == OPUS_OK) t->decoder = opus_decoder_create(DOWN_HZ, 1, &problem);
  if (problem != OPUS_OK) return false;
  opus_encoder_ctl(t->encoder, OPUS_SET_COMPLEXITY(0)); /* what an ESP32 can afford */
  opus_encoder_ctl(t->encoder, OPUS_SET_DTX(1));
  return true;
}

int main(int argc, char **argv) {
  static talk t;
  net_checked_in check_in;
  net_url where;
  if (argc < 5) {
    fprintf(stderr,
            "usage: %s http://HOST:PORT/xiaozhi/ota/ DEVICE_ID ANSWER.wav QUESTION.wav...\n",
            argv[0]);
    return 1;
  }
  if (!net_check_in(argv[1], argv[2], CLIENT_ID, &check_in)) return 1;
  if (check_in.code[0] != '\0' && check_in.token[0] == '\0') {
    printf("code: %s\n", check_in.code);
    return 2;
  }
  FILE *entropy = fopen("/dev/urandom", "rb");
  if (entropy == NULL || !net_parse(check_in.url, &where)) return 1;
  t.volume = 100;
  bool is_answered = false;
  if (prepare_opus(&t) && start(&t, &where, check_in.token, argv[2], entropy) &&
      (t.fd = net_connect(&where)) >= 0 && (t.answer = wav_create(argv[3], DOWN_HZ)) != NULL) {
    is_answered = converse(&t, argv + 4, argc - 4);
    is_answered = wav_close(t.answer) && is_answered;
    close(t.fd);
  }
  opus_encoder_destroy(t.encoder);
  opus_decoder_destroy(t.decoder);
  fclose(entropy);
  return is_answered ? 0 : 1;
}
