/* Reads what the headers of a request say: all at once, because each call of Envoy searches through all of them. */
#ifndef PENSTOCK_READ_HEADERS_H
#define PENSTOCK_READ_HEADERS_H

#include "envoy_abi.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_HEADERS = 128 }; /* Envoy accepts 100 */
enum { NO_TOKENS, TOKENS_AFTER_EVENTS, TOKENS_AT_ONCE }; /* of a path: what the first piece of a stream has */

/* What a client asks for in headers. */
typedef struct asked {
  char tenant[128];
  size_t tenant_length;
  double ttft_s, tpot_s; /* 0: not in the headers */
  double weight;
  bool sheddable;
  int tokens;
} asked;

static envoy_bytes bytes_of(const char *text) { return (envoy_bytes){text, strlen(text)}; }

static int64_t number_in(envoy_filter f, int of, const char *name) {
  envoy_bytes value = {0};
  int64_t number = 0;
  if (!ENVOY(http_get_header)(f, of, bytes_of(name), &value, 0, NULL)) return 0;
  for (size_t i = 0; i < value.length && i < 9 && value.ptr[i] >= '0' && value.ptr[i] <= '9'; i++)
    number = 10 * number + (value.ptr[i] - '0');
  return number;
}

static bool is_key(const envoy_header *h, const char *name) {
  return h->key_length == strlen(name) && !memcmp(h->key, name, h->key_length);
}

/* Returns the first header that is there of several names, or NULL. */
static const envoy_header *first_of(const envoy_header *all, size_t count, const char *const *names) {
  for (; *names; names++)
    for (size_t i = 0; i < count; i++)
      if (is_key(&all[i], *names)) return &all[i];
  return NULL;
}

static double read_limit_s(const envoy_header *h) {
  char text[32], *end;
  if (!h || !h->value_length || h->value_length >= sizeof text) return 0.0;
  memcpy(text, h->value, h->value_length);
  text[h->value_length] = 0;
  double ms = strtod(text, &end);
  return end != text && !*end && ms > 0 && ms < 1e7 ? ms / 1000 : 0.0;
}

static void read_objective(const envoy_header *h, asked *a) {
  static const char *const LOW[] = {"batch", "sheddable", "low"};
  if (!h) return;
  if (h->value_length == 8 && !strncasecmp(h->value, "critical", 8)) a->weight = 4.0;
  if (h->value_length == 4 && !strncasecmp(h->value, "high", 4)) a->weight = 2.0;
  for (int i = 0; i < 3; i++)
    if (h->value_length == strlen(LOW[i]) && !strncasecmp(h->value, LOW[i], h->value_length)) a->sheddable = true;
}

/* Returns what an engine generates for a path: embeddings and scores have no output, and `/responses` streams begin with
 * events before the first token. */
static int tokens_of(const envoy_header *path) {
  static const char *const ENDS[] = {"/responses", "/completions", "/messages", "/transcriptions", "/translations"};
  const char *query = path ? memchr(path->value, '?', path->value_length) : NULL;
  size_t length = !path ? 0 : query ? (size_t)(query - path->value) : path->value_length;
  for (size_t i = 0; i < sizeof ENDS / sizeof *ENDS; i++) {
    size_t end = strlen(ENDS[i]);
    if (length >= end && !memcmp(path->value + length - end, ENDS[i], end)) return i ? TOKENS_AT_ONCE : TOKENS_AFTER_EVENTS;
  }
  return NO_TOKENS;
}

/* Reads the headers of a request, and removes those that only the gateway may set: `reserved`, each ended by a comma.
 * Returns false if there are too many: then none is removed. */
static bool read_headers(envoy_filter f, const char *reserved, asked *a) {
  static const char *const TENANT[] = {"x-penstock-tenant", "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id", NULL};
  static const char *const OBJECTIVE[] = {"x-penstock-objective", "x-llm-d-inference-objective", "x-gateway-inference-objective", NULL};
  static const char *const TTFT[] = {"x-llm-d-slo-ttft-ms", "x-slo-ttft-ms", NULL};
  static const char *const TPOT[] = {"x-llm-d-slo-tpot-ms", "x-slo-tpot-ms", NULL};
  static const char *const PATH[] = {":path", NULL};
  envoy_header all[MAX_HEADERS];
  size_t count = ENVOY(http_get_headers_size)(f, REQUEST_HEADERS);
  if (count > MAX_HEADERS || !ENVOY(http_get_headers)(f, REQUEST_HEADERS, all)) return false;
  const envoy_header *tenant = first_of(all, count, TENANT);
  a->weight = 1.0;
  a->ttft_s = read_limit_s(first_of(all, count, TTFT)), a->tpot_s = read_limit_s(first_of(all, count, TPOT));
  read_objective(first_of(all, count, OBJECTIVE), a);
  a->tokens = tokens_of(first_of(all, count, PATH));
  if (tenant) {
    a->tenant_length = tenant->value_length < sizeof a->tenant ? tenant->value_length : sizeof a->tenant;
    memcpy(a->tenant, tenant->value, a->tenant_length);
  }
  for (const char *next, *name = reserved; (next = strchr(name, ',')); name = next + 1) {
    size_t length = (size_t)(next - name), found = 0;
    for (size_t i = 0; i < count; i++)
      if (all[i].key_length == length && !memcmp(all[i].key, name, length)) all[i].key_length = 0, found++; /* Envoy frees it */
    if (found) ENVOY(http_set_header)(f, REQUEST_HEADERS, (envoy_bytes){name, length}, (envoy_bytes){NULL, 0});
  }
  return true;
}

#endif
