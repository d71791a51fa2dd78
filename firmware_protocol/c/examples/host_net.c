#define _POSIX_C_SOURCE 200809L

#include "host_net.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "earshot_xiaozhi.h"

static bool copy(char *out, size_t cap, const char *text, size_t len) {
  if (len >= cap) return false;
  memcpy(out, text, len);
  out[len] = '\0';
  return true;
}

/* host, host:port, [IPv6 address] or [IPv6 address]:port */
static bool parse_authority(net_url *parts) {
  const char *host = parts->authority, *end;
  if (*host == '[') {
    end = strchr(++host, ']');
    if (end == NULL) return false;
  } else {
    end = host + strcspn(host, ":");
  }
  const char *port = *end == ']' ? end + 1 : end;
  if (end == host || strchr(host, '@') != NULL ||
      !copy(parts->host, NET_TEXT_BYTES, host, (size_t)(end - host)))
    return false;
  if (*port == '\0') port = ":80";
  size_t digits = strspn(port + 1, "0123456789");
  return *port == ':' && digits > 0 && port[1 + digits] == '\0' &&
         copy(parts->port, sizeof parts->port, port + 1, digits);
}

int net_parse(const char *url, net_url *parts) {
  const char *at = strstr(url, "://");
  if (strncmp(url, "https://", 8) == 0 || strncmp(url, "wss://", 6) == 0) {
    fprintf(stderr, "%s: this example has no TLS: it needs an address with http:// or ws://\n",
            url);
    return 0;
  }
  if (at != NULL && (strncmp(url, "http://", 7) == 0 || strncmp(url, "ws://", 5) == 0)) {
    at += 3;
    size_t authority = strcspn(at, "/");
    const char *path = at[authority] != '\0' ? at + authority : "/";
    if (copy(parts->authority, sizeof parts->authority, at, authority) && parse_authority(parts) &&
        copy(parts->path, sizeof parts->path, path, strlen(path)))
      return 1;
  }
  fprintf(stderr, "%s: not an address such as http://HOST:PORT/PATH or http://[::1]:PORT/PATH\n",
          url);
  return 0;
}

int net_connect(const net_url *where) {
  struct addrinfo wanted, *found = NULL;
  int fd = -1;
  memset(&wanted, 0, sizeof wanted);
  wanted.ai_socktype = SOCK_STREAM;
  int problem = getaddrinfo(where->host, where->port, &wanted, &found);
  for (struct addrinfo *at = found; problem == 0 && at != NULL && fd < 0; at = at->ai_next) {
    fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
    if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
      close(fd);
      fd = -1;
    }
  }
  if (found != NULL) freeaddrinfo(found);
  if (fd < 0) fprintf(stderr, "cannot connect to %s port %s\n", where->host, where->port);
  return fd;
}

/* Returns the text of a key inside the object of another key; "" if there is none. */
static void copy_text(earshot_json object, const char *section, const char *key, char *out,
                      size_t cap) {
  earshot_json found;
  size_t len;
  out[0] = '\0';
  if (!earshot_json_get(object, section, &found) || !earshot_json_get(found, key, &found) ||
      !earshot_json_to_text(found, out, cap, &len))
    out[0] = '\0';
}

/* Sends a request and reads until the server closes. Returns the length, or 0. */
static size_t exchange(int fd, const char *request, size_t request_len, char *answer, size_t cap) {
  size_t len = 0;
  ssize_t got = 0;
  for (size_t sent = 0; sent < request_len; sent += (size_t)got)
    if ((got = send(fd, request + sent, request_len - sent, MSG_NOSIGNAL)) <= 0) return 0;
  while (len < cap && (got = recv(fd, answer + len, cap - len, 0)) > 0) len += (size_t)got;
  return got == 0 ? len : 0;
}

int net_check_in(const char *url, const char *device_id, const char *client_id,
                 net_checked_in *answer) {
  char request[4 * NET_TEXT_BYTES], text[8192], body[256];
  net_url where;
  if (!net_parse(url, &where)) return 0;
  snprintf(body, sizeof body,
           "{\"version\":2,\"application\":{\"name\":\"host_client\",\"version\":\"0.1.0\"},"
           "\"board\":{\"type\":\"host\",\"name\":\"host_client\"}}");
  int request_len =
      snprintf(request, sizeof request,
               "POST %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nDevice-Id: %s\r\n"
               "Client-Id: %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
               where.path, where.authority, device_id, client_id, strlen(body), body);
  if (request_len < 0 || (size_t)request_len >= sizeof request) return 0;
  int fd = net_connect(&where);
  if (fd < 0) return 0;
  size_t len = exchange(fd, request, (size_t)request_len, text, sizeof text - 1);
  close(fd);
  text[len] = '\0';
  const char *end_of_head = strstr(text, "\r\n\r\n");
  earshot_json object;
  bool is_fine = strncmp(text, "HTTP/1.", 7) == 0 && strncmp(text + 8, " 200", 4) == 0;
  if (!is_fine || end_of_head == NULL ||
      !earshot_json_check(end_of_head + 4, len - (size_t)(end_of_head + 4 - text), &object)) {
    fprintf(stderr, "the check-in was answered with: %s\n", text);
    return 0;
  }
  copy_text(object, "websocket", "url", answer->url, sizeof answer->url);
  copy_text(object, "websocket", "token", answer->token, sizeof answer->token);
  copy_text(object, "activation", "code", answer->code, sizeof answer->code);
  return 1;
}
