/* One client, and a server whose messages the test chooses. */
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

/* Pass bytes, a frame or a JSON message to the client, and return the one event that follows. */
earshot_event give(const void *data, size_t len);
earshot_event give_frame(unsigned first_byte, const void *payload, size_t len);
earshot_event say(const char *json);

/* Takes the first frame from the output into `sent` and unmasks it. */
bool take_sent(void);
bool has_sent(const char *text);

/* Opens the client that `r` holds, up to its hello. */
void dial(void);
/* Passes the server's hello to the client. */
void be_greeted(void);
/* Make a new client: up to its hello, and up to the server's hello. */
void shake_hands(int version, size_t rx_cap, size_t tx_cap);
void open_client(int version);

void check_tools(void);
void check_values(void);

#endif
