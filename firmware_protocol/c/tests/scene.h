/* One client and its server, who says what the test tells it to. */
#ifndef EARSHOT_TEST_SCENE_H
#define EARSHOT_TEST_SCENE_H

#include "rig.h"

typedef struct {
  unsigned opcode;
  size_t len;
  uint8_t payload[RX_BYTES];
} sent_frame;

extern rig r;
extern uint8_t wire[RX_BYTES + 100];
extern sent_frame sent;

/* The client receives bytes, a frame, a JSON message; the one event that came of them. */
earshot_event give(const void *data, size_t len);
earshot_event give_frame(unsigned first_byte, const void *payload, size_t len);
earshot_event say(const char *json);

/* Takes the first frame from the output into `sent` and unmasks it. */
bool take_sent(void);
bool has_sent(const char *text);

/* Opens the client that `r` holds, up to its hello. */
void dial(void);
/* The server's hello. */
void be_greeted(void);
/* A new client, up to its hello; and with the server's. */
void shake_hands(int version, size_t rx_cap, size_t tx_cap);
void open_client(int version);

void check_tools(void);
void check_values(void);

#endif
