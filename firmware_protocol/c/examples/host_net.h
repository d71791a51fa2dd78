/* TCP, and the check-in over HTTP that returns the address to connect to. */
#ifndef HOST_NET_H
#define HOST_NET_H

#define NET_TEXT_BYTES 512

typedef struct {
  char authority[NET_TEXT_BYTES]; /* host and port as in the URL, for the header `Host` */
  char host[NET_TEXT_BYTES];      /* without the brackets of an IPv6 address */
  char port[8];
  char path[NET_TEXT_BYTES];
} net_url;

/* Splits http://host[:port]/path or ws://host[:port]/path; the host may be an IPv6 address in
 * brackets. False with a line on stderr for anything else: without TLS there is no https or wss. */
int net_parse(const char *url, net_url *parts);

/* Returns a connected socket, or -1 with a line on stderr. */
int net_connect(const net_url *where);

typedef struct {
  char url[NET_TEXT_BYTES];
  char token[NET_TEXT_BYTES];
  char code[32]; /* code for the approval of a new device; empty otherwise */
} net_checked_in;

/* POSTs a check-in. False with a line on stderr unless the server answers with 200 and JSON. */
int net_check_in(const char *url, const char *device_id, const char *client_id,
                 net_checked_in *answer);

#endif
